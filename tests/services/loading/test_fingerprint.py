"""Files that are not what their name says."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from services.errors import SourceError
from services.loading.fingerprint import existing, file_kind, sha256


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "found an empty file"),
        (b"\n<!DOCTYPE html><html>Quota exceeded</html>", "found an HTML page; the download gave a page"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0",
            "found a git-lfs pointer to it; run `git lfs pull`",
        ),
        (b'{"error": "denied"}', "found a server's error message"),
        (b"PK\x03\x04" + b"0" * 100, "found a truncated or damaged archive of 104 bytes"),
        (struct.pack("<Q", 500) + b'{"a":', "expected a complete safetensors file, found 13 bytes"),
    ],
)
def test_named_plainly(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "weights.pt"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=message):
        file_kind(path, "model a")


def test_half_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save({"w": torch.zeros(1000)}, path)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(SourceError, match="truncated or damaged archive of 2000 bytes"):
        file_kind(path, "model a")


def test_half_a_safetensors_file(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file({"w": torch.zeros(100)}, path)
    assert file_kind(path, "a") == "safetensors"
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(SourceError, match="truncated or padded"):
        file_kind(path, "a")


def test_an_archive_that_claims_too_much(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("images.npy", b"")
    data = bytearray(path.read_bytes())
    entry = data.rindex(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = struct.pack("<I", 0xF0000000)
    path.write_bytes(data)
    with pytest.raises(SourceError, match="claims to hold 4026531840 bytes"):
        file_kind(path, "samples")


def test_missing_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="found nothing there; looked in /"):
        existing(tmp_path / "absent.pt", "model a")
    with pytest.raises(SourceError, match="found a folder there"):
        existing(tmp_path, "model a")


def test_hash_follows_content(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    first = sha256(path)
    path.write_bytes(b"three")
    assert sha256(path) != first
    assert len(io.StringIO(first).read()) == 64
