"""What a file on disk really is, and its hash, before any library is asked to open it.

A download page saved as weights, half a download and a git-lfs pointer are the everyday faults; a library would report
them as "invalid magic number". The kind is read from the first bytes and the table of contents at the end.
"""

from __future__ import annotations

import hashlib
import struct
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from services.errors import Problem, SourceError
from services.loading.confined import pinned, within, within_tree
from services.storage import plainjson

HEAD = 512
BOMB_RATIO = 200
BOMB_FLOOR = 1 << 28
SAFETENSORS_HEADER_LIMIT = 1 << 24
"""Bytes: some hundred thousand tensors. The library's own limit is six times that, which takes a gigabyte to parse."""


def existing(path: Path, where: str, *, folder: bool = False) -> Path:
    """Return `path`, or the name of the open file while files are `held`.

    Raises:
        SourceError: what is missing and where it was looked for, or that it is not granted.
    """
    kind = "folder" if folder else "file"
    if not (path.is_dir() if folder else path.is_file()):
        within(path, where)  # whether there is a file elsewhere stays private
        actual = "a file" if path.is_file() else "a folder" if path.is_dir() else "nothing"
        remedy = f"looked in {path.absolute()}"
        raise SourceError(Problem(where, f"a {kind} at {path}", f"{actual} there", remedy))
    return within_tree(path, where) if folder else pinned(path, where)


def sha256(path: Path) -> str:
    """SHA-256 of the bytes of a file; an unchanged file is hashed once a process, whatever it is called."""
    status = path.stat()
    times = status.st_mtime_ns, status.st_ctime_ns
    return _sha256(_File(path.absolute(), status.st_dev, status.st_ino, status.st_size, times))


@dataclass(frozen=True)
class _File:
    """What tells a file, and its content, from others; not its name."""

    path: Path = field(compare=False)
    device: int
    number: int
    size: int
    times: tuple[int, int]


@lru_cache(maxsize=4096)
def _sha256(known: _File) -> str:
    with known.path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tree_sha256(folder: Path, files: Iterable[Path] | None = None) -> str:
    """SHA-256 of the paths below a folder and of the bytes of all its files, or of the given ones."""
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*") if files is None else files):
        if file.is_file():
            digest.update(f"{file.relative_to(folder)}\0{sha256(file)}\n".encode())
    return digest.hexdigest()


def file_kind(path: Path, where: str) -> str:
    """The kind of a file, from its bytes: "zip", "safetensors", "pickle", "hdf5", "png", "parquet" or "unknown".

    Raises:
        SourceError: it is empty, a web page, an error message, a git-lfs pointer, a truncated archive, or an archive
            that claims to hold far more than its size (a decompression bomb).
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(HEAD)
    _refuse_text(head, size, where)
    if head.startswith(b"PK"):
        _check_zip(path, size, where)
        return "zip"
    if head[8:9] == b"{" and len(head) > 8 and _check_safetensors(path, head, size, where):
        return "safetensors"
    kinds = {b"\x80": "pickle", b"\x89HDF": "hdf5", b"\x89PNG": "png", b"PAR1": "parquet", b"\x93NUMPY": "npy"}
    return next((kind for magic, kind in kinds.items() if head.startswith(magic)), "unknown")


def _refuse_text(head: bytes, size: int, where: str) -> None:
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if size == 0:
        raise SourceError(Problem(where, "a file with content", "an empty file", "fetch it again"))
    if text.startswith(b"version https://git-lfs"):
        raise SourceError(Problem(where, "the file itself", "a git-lfs pointer to it", "run `git lfs pull`"))
    if text.startswith((b"<!doctype", b"<html", b"<head", b"<?xml")):
        remedy = "the download gave a page (login, quota, not found) instead of the file; fetch it again"
        raise SourceError(Problem(where, "binary data", "an HTML page", remedy))
    if text.startswith((b'{"error', b'{"message', b"not found", b"access denied")):
        actual = repr(head[:60].decode("utf-8", "replace"))
        raise SourceError(Problem(where, "binary data", f"a server's error message {actual}", "fetch it again"))


def _check_zip(path: Path, size: int, where: str) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            total = sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, struct.error) as error:
        actual = f"a truncated or damaged archive of {size} bytes ({error})"
        raise SourceError(Problem(where, "a complete file", actual, "fetch it again")) from error
    if total > BOMB_FLOOR and total > BOMB_RATIO * size:
        actual = f"one of {size} bytes that claims to hold {total} bytes"
        raise SourceError(Problem(where, f"an archive that unpacks to at most {BOMB_RATIO} times its size", actual))


def safetensors_size(header: bytes) -> int | None:
    """Bytes of the whole safetensors file that has this header; None when it is none."""
    try:
        entries = plainjson.parsed(header)
        ends = [int(entry["data_offsets"][1]) for name, entry in entries.items() if name != "__metadata__"]
    except (TypeError, ValueError, LookupError, AttributeError):
        return None
    return 8 + len(header) + max(ends, default=0)


def _check_safetensors(path: Path, head: bytes, size: int, where: str) -> bool:
    (length,) = struct.unpack("<Q", head[:8])
    if not 2 <= length <= SAFETENSORS_HEADER_LIMIT:
        return False
    if size < 8 + length:
        actual = f"{size} bytes where the header alone takes {8 + length}"
        raise SourceError(Problem(where, "a complete safetensors file", actual, "fetch it again"))
    with path.open("rb") as file:
        file.seek(8)
        expected = safetensors_size(file.read(length))
    if expected is None:
        return False
    if size != expected:
        actual = f"{size} bytes (truncated or padded)"
        raise SourceError(Problem(where, f"a complete safetensors file of {expected} bytes", actual, "fetch it again"))
    return True
