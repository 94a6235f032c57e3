"""Storage that goes away: one error of classwise's own, whatever the back end raises, and never "there is none"."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from moto.server import ThreadedMotoServer
from ports import free_port
from s3fs import S3FileSystem

from services.errors import StorageError
from services.loading.nearby import nearby
from services.storage import files
from services.training.epochs.checkpoints import load_progress

OPERATIONS = {
    "exists": lambda base: files.exists(f"{base}/a.bin"),
    "read": lambda base: files.read_bytes(f"{base}/a.bin"),
    "write": lambda base: files.write_bytes(f"{base}/b.bin", b"1"),
    "writable": lambda base: files.require_writable(base, "storage"),
    "listing": files.listing,
    "walk": lambda base: list(files.walk(base)),
    "stamp": lambda base: files.stamp(f"{base}/a.bin"),
    "modified": lambda base: files.modified(f"{base}/a.bin"),
    "remove": lambda base: files.remove(f"{base}/a.bin"),
    "progress": load_progress,
}


class Gone(Exception):
    """What a back end of its own raises."""


class Failing(MemoryFileSystem):  # type: ignore[misc]
    """A memory that can be taken away."""

    protocol = "failing"
    down = False

    def _check(self) -> None:
        if Failing.down:
            raise Gone("the endpoint is gone")

    def info(self, path: str, **options: Any) -> Any:
        self._check()
        return super().info(path, **options)

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        self._check()
        return super().ls(path, detail, **options)

    def _open(self, path: str, mode: str = "rb", *rest: Any, **options: Any) -> Any:
        self._check()
        return super()._open(path, mode, *rest, **options)

    def find(self, path: str, *rest: Any, **options: Any) -> Any:
        self._check()
        return super().find(path, *rest, **options)

    def cat_file(self, path: str, *rest: Any, **options: Any) -> Any:
        self._check()
        return super().cat_file(path, *rest, **options)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self._check()
        super().makedirs(path, exist_ok)


@pytest.fixture
def failing() -> Iterator[str]:
    fsspec.register_implementation("failing", Failing, clobber=True)
    files.write_bytes("failing://runs/a.bin", b"whole")
    yield "failing://runs"
    Failing.down = False


@pytest.fixture(scope="module")
def s3() -> Iterator[tuple[str, ThreadedMotoServer]]:
    """A bucket of a real S3 server, and the server."""
    port = free_port()
    server = ThreadedMotoServer("127.0.0.1", port)
    server.start()
    known = {
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": "tests",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_MAX_ATTEMPTS": "1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in known.items():
            patch.setenv(name, value)
        S3FileSystem.clear_instance_cache()  # a test before may have opened one at another endpoint
        fsspec.filesystem("s3").mkdir("runs")
        yield "s3://runs/x", server
        S3FileSystem.clear_instance_cache()


@pytest.mark.filterwarnings("ignore")
def test_an_s3_endpoint_that_goes_is_an_outage_and_not_an_unforeseen_error(s3: tuple[str, ThreadedMotoServer]) -> None:
    base, server = s3
    files.write_bytes(f"{base}/a.bin", b"whole")
    assert files.read_bytes(f"{base}/a.bin") == b"whole" and files.listing(base) == ["a.bin"]
    assert nearby(f"{base}/a.bin", "a model").read_bytes() == b"whole"
    assert not files.exists(f"{base}/none") and load_progress(base) is None
    server.stop()
    for name, work in OPERATIONS.items():
        files.forget_listings(base)
        with pytest.raises(StorageError) as caught:
            work(base)
        assert files.is_outage(caught.value) or name == "writable", name


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_error_of_a_back_ends_own_is_an_outage(failing: str, name: str) -> None:
    Failing.down = True
    with pytest.raises(StorageError, match="the endpoint is gone"):
        OPERATIONS[name](failing)
    Failing.down = False
    assert files.read_bytes(f"{failing}/a.bin") == b"whole"


def test_an_error_while_a_file_is_filled_is_of_whom_it_is(failing: str) -> None:
    def wrong(file: IO[bytes]) -> None:
        file.write(b"half")
        raise KeyError("of the one who fills")

    with pytest.raises(KeyError):
        files.write(f"{failing}/a.bin", wrong)
    assert files.read_bytes(f"{failing}/a.bin") == b"whole" and files.listing(failing) == ["a.bin"]


def test_a_local_disk_that_does_not_answer_is_not_an_absent_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training would begin anew over the progress that it cannot see."""
    url = f"{tmp_path}/a.bin"
    files.write_bytes(url, b"whole")

    def stat(path: Any, *rest: Any, **options: Any) -> Any:
        if str(path).startswith(str(tmp_path)):
            raise OSError(5, "Input/output error", str(path))
        return kept(path, *rest, **options)

    kept = os.stat
    monkeypatch.setattr(os, "stat", stat)
    for work in (files.exists, load_progress):
        with pytest.raises(StorageError, match="Input/output error") as caught:
            work(url if work is files.exists else str(tmp_path))
        assert files.is_outage(caught.value)
    monkeypatch.undo()
    assert files.exists(url) and not files.exists(f"{url}/below") and not files.exists(f"{tmp_path}/none")
