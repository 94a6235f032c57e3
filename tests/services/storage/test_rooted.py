"""Nothing below a guarded storage is opened, listed, written or removed where a link leads out of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from services.errors import StorageError
from services.storage import files

LEADS_OUT = r"a link that leads out of it"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "secret").write_bytes(b"0123456789")
    return folder


@pytest.fixture
def base(tmp_path: Path, outside: Path) -> Path:
    """A storage with a link to a file, one to a folder, and one that stays inside."""
    real = tmp_path / "disk" / "runs"
    (real / "audits").mkdir(parents=True)
    (real / "audits" / "own").write_bytes(b"0123456789")
    (real / "file").symlink_to(outside / "inner" / "secret")
    (real / "folder").symlink_to(outside)
    (real / "again").symlink_to("audits")
    (tmp_path / "runs").symlink_to(real)
    files.keep_within(str(tmp_path / "runs"))
    return tmp_path / "runs"


ACTS: dict[str, Callable[[str], object]] = {
    "read": files.read_bytes,
    "a part": lambda url: files.read_bytes(url, -4),
    "listed": files.listing,
    "walked": lambda url: list(files.walk(url)),
}


@pytest.mark.parametrize("act", sorted(ACTS))
@pytest.mark.parametrize("name", ["file", "folder/inner/secret", "folder", "folder/inner", "audits/../folder/inner"])
def test_nothing_behind_a_link_is_read_or_listed(base: Path, name: str, act: str) -> None:
    with pytest.raises(StorageError, match=LEADS_OUT if act in ("listed", "walked") or "secret" in name else None):
        ACTS[act](f"{base}/{name}")


def test_nothing_behind_a_link_is_written_or_removed(base: Path, outside: Path) -> None:
    before = sorted(outside.rglob("*"))
    for act in (lambda url: files.write_bytes(url, b"x"), files.remove):
        for name in ("folder/inner/secret", "folder/inner/new", "folder/new/new"):
            with pytest.raises(StorageError, match=LEADS_OUT):
                act(f"{base}/{name}")
    files.write_bytes(f"{base}/file", b"mine")  # in the place of the link
    files.remove(f"{base}/folder")
    assert sorted(outside.rglob("*")) == before and (outside / "inner" / "secret").read_bytes() == b"0123456789"
    assert (base / "file").read_bytes() == b"mine" and not os.path.lexists(base / "folder")


def test_links_inside_and_the_folder_itself_are_followed(base: Path) -> None:
    for name in ("audits/own", "again/own"):
        assert files.read_bytes(f"{base}/{name}") == b"0123456789"
        parts = [files.read_bytes(f"{base}/{name}", *part) for part in ((2, 5), (-3, None), (8, 99), (5, 2))]
        assert parts == [b"234", b"789", b"89", b""]
    files.write_bytes(f"{base}/again/new", b"x")
    assert files.listing(f"{base}/again") == ["new", "own"]


def test_what_is_open_counts_and_not_what_stood_there_before(
    base: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever changes a file into a link between a look and the opening has the open file judged."""
    real_open, swapped = os.open, []

    def late(path: str, *arguments: int, **options: int) -> int:
        if Path(path).name == "own":
            swapped.append(path)
            Path(path).unlink()
            Path(path).symlink_to(outside / "inner" / "secret")
        return real_open(path, *arguments, **options)

    monkeypatch.setattr(os, "open", late)
    with pytest.raises(StorageError, match=LEADS_OUT):
        files.read_bytes(f"{base}/audits/own")
    assert swapped


def test_other_folders_are_read_as_ever(base: Path, tmp_path: Path, outside: Path) -> None:
    (tmp_path / "runs2").symlink_to(outside)  # its name begins with that of the storage
    assert files.read_bytes(f"{tmp_path}/runs2/inner/secret") == b"0123456789"
