"""A valid file with a few things changed: bytes, lengths, lines, and the words that parsers choke on."""

from __future__ import annotations

import random
import struct
import zlib

WORDS = (
    b"NaN", b"Infinity", b"-1", b"1e999", b"9" * 400, b"null", b"true", b"[]", b"{}", b'""', b"\x00", b"\xff\xfe",
    b"../../etc/passwd", b"<script>", b"\xe2\x80\xae", b"\xed\xa0\x80", b"&a *a", b"!!python/name:os.system", b"%00",
    b"9223372036854775808", b"0x", b"\n", b"'", b'"', b"2001-99-99", b"1:2:3", b"~", b"<<: 1", b"\\ud800",
)  # fmt: skip


def mutated(seed: bytes, number: int) -> bytes:
    """The seed after up to eight changes; the same number gives the same bytes."""
    draw = random.Random(number)
    content = bytearray(seed)
    for _ in range(draw.randint(1, 8)):
        content = _changed(content, draw)
    return _checked(bytes(content)) if draw.random() < 0.5 else bytes(content)


def _changed(content: bytearray, draw: random.Random) -> bytearray:
    if not content:
        return bytearray(draw.choice(WORDS))
    at, length = draw.randrange(len(content)), min(draw.choice((1, 2, 4, 8, 40)), len(content))
    kind = draw.randrange(7)
    if kind == 0:
        content[at] ^= 1 << draw.randrange(8)
    elif kind == 1:
        content[at : at + length] = draw.randbytes(length)
    elif kind == 2:
        del content[at : at + length]
    elif kind == 3:
        content[at:at] = content[max(0, at - length) : at] * draw.randint(1, 20)
    elif kind == 4:
        content[at : at + draw.choice((0, 1, length))] = draw.choice(WORDS)
    elif kind == 5:
        packed = struct.pack("<q", draw.choice((0, -1, 1, 2**31 - 1, 2**31, 2**63 - 1, -(2**63), len(content))))
        content[at : at + 8] = packed[: draw.choice((2, 4, 8))]
    else:
        content = content[:at]
    return content


def _checked(content: bytes) -> bytes:
    """With the checksums of a PNG's chunks made right again, so that the change reaches the decoder."""
    if not content.startswith(b"\x89PNG\r\n\x1a\n"):
        return content
    out, at = bytearray(content[:8]), 8
    while at + 12 <= len(content):
        (length,) = struct.unpack(">I", content[at : at + 4])
        body = content[at + 4 : at + 8 + length]
        out += content[at : at + 4] + body + struct.pack(">I", zlib.crc32(body))
        at += 12 + length
    return bytes(out)
