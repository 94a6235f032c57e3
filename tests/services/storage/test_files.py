"""Storage: whole files or none."""

from __future__ import annotations

from pathlib import Path
from typing import IO

import pytest

from services.errors import StorageError
from services.storage import files


def test_what_is_written_is_there_and_nothing_else(tmp_path: Path) -> None:
    url = files.join(str(tmp_path), "a", "b.bin")
    files.write_bytes(url, b"one")
    files.write_bytes(url, b"two")
    assert files.read_bytes(url) == b"two"
    assert files.listing(str(tmp_path / "a")) == ["b.bin"]


def test_a_write_that_fails_half_way_leaves_the_old_file(tmp_path: Path) -> None:
    url = str(tmp_path / "b.bin")
    files.write_bytes(url, b"old")

    def fail(file: IO[bytes]) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(StorageError, match="No space left on device; free space or check the permissions"):
        files.write(url, fail)
    assert files.read_bytes(url) == b"old"
    assert files.listing(str(tmp_path)) == ["b.bin"]


def test_memory_urls_work_like_folders() -> None:
    files.write_bytes("memory://classwise-test/x/y.bin", b"1")
    assert files.exists("memory://classwise-test/x/y.bin")
    assert files.listing("memory://classwise-test/x") == ["y.bin"]
    assert files.listing("memory://classwise-test/none") == []


def test_a_missing_file_and_an_unknown_protocol_are_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="expected a readable file"):
        files.read_bytes(str(tmp_path / "none"))
    with pytest.raises(
        StorageError, match=r"nosuch://x.* found an unknown protocol nosuch; install its fsspec package"
    ):
        files.exists("nosuch://x")


@pytest.mark.parametrize("below", ["", "/a", "/a/b"])
def test_a_file_where_a_folder_is_needed_is_told_in_plain_words(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("x")
    message = "found a file stands where a folder is needed; move that file, or name another folder"
    with pytest.raises(StorageError, match=message):
        files.require_writable(f"{tmp_path}/file{below}", "storage")
    with pytest.raises(StorageError, match=message):
        files.write_bytes(f"{tmp_path}/file{below}/x.bin", b"1")
    with pytest.raises(StorageError, match=r"expected a readable file, found (Not a directory|No such file)"):
        files.read_bytes(f"{tmp_path}/file/x.bin")


def test_storage_that_cannot_be_written_says_what_to_do() -> None:
    remedy = "free space, check the permissions, or name another folder or URL"
    with pytest.raises(StorageError, match=f"found [^\\[]*; {remedy}"):
        files.require_writable("/proc/classwise", "storage")
    with pytest.raises(
        StorageError, match=r"storage: .*found an unknown protocol s3x; install its fsspec package or use a"
    ):
        files.require_writable("s3x://bucket/runs", "storage")


def test_removing_takes_a_folder_with_all_in_it_and_nothing_is_no_fault(tmp_path: Path) -> None:
    files.write_bytes(str(tmp_path / "a" / "b" / "c"), b"1")
    files.remove(str(tmp_path / "a"))
    files.remove(str(tmp_path / "a"))
    assert not (tmp_path / "a").exists()


def test_what_is_local(tmp_path: Path) -> None:
    assert files.is_local(str(tmp_path)) and files.is_local("runs") and not files.is_local("memory://runs")


def test_a_folder_in_the_place_of_a_file_is_told_and_stays_as_it_was(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="expected a file's name, found a folder"):
        files.write_bytes(str(tmp_path), b"1")
    assert not list(tmp_path.iterdir())
