"""Files on any fsspec URL, written whole or not at all.

A file is written under a temporary name beside its target and moved over it, so a reader sees the old file or the new
one and never a part, and a shard that two workers write at the same time ends as one of two equal files.

Every back end of fsspec has errors of its own: botocore's are no `OSError`. `_reaching` is the one place where they
become a `StorageError` with an `OSError` as its cause, whatever failed.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any, cast

import fsspec

from services.errors import ClasswiseError, Problem, StorageError, one_line
from services.storage import rooted

_ABSENT = (FileNotFoundError, NotADirectoryError)
"""What says that no file is there; any other error says nothing about it."""


def filesystem(url: str) -> tuple[Any, str]:
    """Return the fsspec file system of `url` and the path within it."""
    try:
        fs, path = fsspec.core.url_to_fs(url)
    except (ValueError, ImportError) as error:
        expected, remedy = "a local path or a URL that fsspec can open", "install its fsspec package or use a path"
        raise StorageError(Problem(url, expected, _of_protocol(url, error), remedy)) from error
    except Exception as error:
        raise _unreadable(url, error) from _as_os_error(error)
    return fs, path


@contextmanager
def _reaching(url: str, refuse: Callable[[str, Exception], StorageError] | None = None) -> Iterator[None]:
    """What a back end raises, as a `StorageError` whose cause is an `OSError`: that there is no file, or an outage.

    Args:
        refuse: words the error; default: that the file cannot be read.
    """
    try:
        yield
    except ClasswiseError:
        raise
    except Exception as error:
        raise (refuse or _unreadable)(url, error) from _as_os_error(error)


def _as_os_error(error: Exception) -> OSError:
    """The error itself, or an `OSError` that stands for one of the back end's own."""
    if isinstance(error, OSError):
        return error
    translated = OSError(errno.EIO, f"{type(error).__name__}: {one_line(error, 300)}")
    translated.__cause__ = error
    return translated


class _Sent:
    """A file of a back end while it is filled, whose errors are distinguished from those of the code that fills it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: Any) -> int:
        try:
            return self._file.write(data)
        except OSError:
            raise
        except Exception as error:
            raise _as_os_error(error) from error


def _of_protocol(url: str, error: Exception) -> str:
    protocol, mark, _ = url.partition("://")
    unknown = mark and str(error).startswith("Protocol not known")
    return f"an unknown protocol {protocol}" if unknown else str(error)


def is_local(url: str) -> bool:
    """Whether `url` lies on this machine's file system."""
    return _is_here(filesystem(url)[0])


def _is_here(fs: Any) -> bool:
    return "file" in (fs.protocol if isinstance(fs.protocol, tuple | list) else (fs.protocol,))


def keep_within(base: str) -> None:
    """Follow no link out of the storage `base` from now on, in this process; an object store has none."""
    fs, path = filesystem(base)
    if _is_here(fs):
        rooted.add(path)


def leads_out(url: str) -> bool:
    """Whether a link takes what `url` names out of a storage that no link may lead out of."""
    fs, path = filesystem(url)
    return _is_here(fs) and not rooted.is_inside(path)


def _placed(url: str) -> tuple[Any, str]:
    """As `filesystem`, of a place that no link in a guarded storage leads to.

    Raises:
        StorageError: one does.
    """
    fs, path = filesystem(url)
    if _is_here(fs):
        rooted.require_inside(path, url)
    return fs, path


def is_missing(base: str) -> bool:
    """Whether `base` lies on this machine and is no folder. An object store has no empty folders, so it cannot say."""
    fs, path = filesystem(base)
    return is_local(base) and not fs.isdir(path)


def join(base: str, *parts: str) -> str:
    """Join path parts to a local path or URL with single slashes."""
    return "/".join([base.rstrip("/"), *(part.strip("/") for part in parts)])


def exists(url: str) -> bool:
    """Whether a complete file stands at `url`.

    Not by fsspec's own `exists`, which takes every error, an outage of a disk as well, for "there is none".

    Raises:
        StorageError: the storage does not say.
    """
    fs, path = filesystem(url)
    with _reaching(url):
        try:
            fs.info(path)
        except _ABSENT:
            return False
    return True


def ends_with(url: str, end: bytes) -> bool:
    """Whether a local file has that end; a file elsewhere is taken to be whole, for object stores write no parts.

    Raises:
        StorageError: it cannot be read, which says nothing about its end.
    """
    if not is_local(url):
        return True
    fs, path = filesystem(url)
    with _reaching(url):
        try:
            tail: bytes = fs.tail(path, len(end))
        except (*_ABSENT, IsADirectoryError):
            return False
    return tail == end


def listing(url: str) -> list[str]:
    """Names (not paths) in a folder; empty when it does not exist.

    Raises:
        StorageError: it cannot be read.
    """
    fs, path = _placed(url)
    with _reaching(url, _unlisted):
        try:
            return sorted(str(name).rstrip("/").rsplit("/", 1)[-1] for name in fs.ls(path, detail=False))
        except FileNotFoundError:
            return []


def forget_listings(url: str) -> None:
    """As `forget_listing`, for all of that file system: some clients keep what lies below a forgotten folder."""
    fs, _ = filesystem(url)
    fs.invalidate_cache()


def forget_listing(url: str) -> None:
    """Ask the storage itself the next time for what lies in a folder: an object store's client remembers its listings,
    and answers from them whether a file exists."""
    fs, path = filesystem(url)
    fs.invalidate_cache(path)


@dataclass(frozen=True, slots=True)
class Entry:
    """A file: its path below the folder that was walked, its size, and when it was written.

    Attributes:
        modified: seconds since 1970; None when the storage does not say.
    """

    path: str
    size: int
    modified: float | None


def walk(url: str) -> Iterator[Entry]:
    """All files below a folder, however deep; none when it does not exist. Files that go meanwhile are left out.

    Raises:
        StorageError: the storage cannot be reached.
    """
    fs, root = _placed(url)
    with _reaching(url, _unlisted):
        listing = fs.find(root, detail=True, **({"on_error": _unless_absent} if is_local(url) else {}))
    for path, info in listing.items():
        below = str(path).removeprefix(root.rstrip("/")).lstrip("/")
        yield Entry(below, int(info.get("size") or 0), _modified(info))


def _unless_absent(error: OSError) -> None:
    """What fsspec leaves out of a walk in silence is only what went meanwhile."""
    if not isinstance(error, _ABSENT):
        raise error


def modified(url: str) -> float | None:
    """When the file was written, in seconds since 1970; None when the storage does not say; raises as `stamp`."""
    return _modified(_info(url))


def _modified(info: dict[str, Any]) -> float | None:
    for name in ("mtime", "LastModified", "last_modified", "updated", "created"):
        value = info.get(name)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
    return None


def stamp(url: str) -> tuple[int, str]:
    """Size of a file and when it was written, as its file system reports it: another stamp is another content.

    Raises:
        StorageError: it is not there or cannot be read.
    """
    info = _info(url)
    return int(info.get("size") or 0), str(_modified(info) or info.get("ETag") or info.get("etag") or "")


def _info(url: str) -> dict[str, Any]:
    fs, path = filesystem(url)
    with _reaching(url):
        info: dict[str, Any] = fs.info(path)
    return info


def write(url: str, fill: Callable[[IO[bytes]], object]) -> None:
    """Create or replace the file at `url` with what `fill` writes, atomically.

    Raises:
        StorageError: the storage is full, read-only or unreachable.
    """
    fs, path = filesystem(url)
    parent, _, name = path.rpartition("/")
    partial = f"{parent}/.{name}.{uuid.uuid4().hex[:8]}.part" if parent else f".{name}.{uuid.uuid4().hex[:8]}.part"
    local = _is_here(fs)
    if local:
        rooted.require_inside(parent or ".", url)
    if local and fs.isdir(path):  # a move would put the file into it, under the partial name
        raise StorageError(Problem(url, "a file's name", "a folder", "name a file in it"))
    with _reaching(url, _unwritten):
        if parent:
            fs.makedirs(parent, exist_ok=True)
        file = fs.open(partial, "wb")
    try:
        _fill(url, file, fill, local)
        with _reaching(url, _unwritten):
            fs.mv(partial, path)
    except OSError as error:
        raise _unwritten(url, error) from error
    finally:
        with suppress(Exception):  # what went wrong before is the error to report
            if fs.exists(partial):
                fs.rm(partial)


def _fill(url: str, file: Any, fill: Callable[[IO[bytes]], object], local: bool) -> None:
    """Fill a file and close it."""
    try:
        fill(file if local else cast(IO[bytes], _Sent(file)))
        if local:
            file.flush()
            os.fsync(file.fileno())  # a name stands for a whole file, after a power cut as well
    except BaseException:
        with suppress(Exception):
            file.close()
        raise
    with _reaching(url, _unwritten):
        file.close()


def _unwritten(url: str, error: Exception) -> StorageError:
    actual, remedy = _refused(error)
    return StorageError(Problem(url, "storage that can be written", actual, remedy))


_NO_ROOM = "free space or check the permissions"


def _refused(error: Exception) -> tuple[str, str]:
    """Why nothing can be written, and what to do."""
    if isinstance(error, FileExistsError | NotADirectoryError):
        return "a file stands where a folder is needed", "move that file, or name another folder"
    return _plain(error), _NO_ROOM


def _plain(error: Exception) -> str:
    """What the system says, without the error's number."""
    reason = getattr(error, "strerror", None)
    name = getattr(error, "filename", None)
    return (f"{reason}: {name}" if name else str(reason)) if reason else str(error) or type(error).__name__


def require_writable(url: str, where: str) -> None:
    """Write and remove a file in the folder `url`, so that storage that cannot hold results is found before the work.

    Raises:
        StorageError: naming `where`, the field that holds the URL.
    """
    probe = join(url, f".{uuid.uuid4().hex[:8]}.probe")
    try:
        write_bytes(probe, b"classwise")
        remove(probe)
    except StorageError as error:
        actual, remedy = error.problems[0].found, error.problems[0].remedy
        if remedy == _NO_ROOM:
            remedy = "free space, check the permissions, or name another folder or URL"
        raise StorageError(Problem(where, f"a folder that can be written at {url}", actual, remedy)) from error


def remove(url: str) -> None:
    """Remove a file, or a folder with all in it; nothing happens when there is none, or another removes it too."""
    fs, path = filesystem(url)
    if _is_here(fs):  # a link itself may go
        rooted.require_inside(path.rpartition("/")[0] or ".", url)
        if Path(path).is_symlink():
            Path(path).unlink(missing_ok=True)
            return
    if exists(url):
        with _reaching(url, _unwritten), suppress(FileNotFoundError):
            fs.rm(path, recursive=True)


def write_bytes(url: str, data: bytes) -> None:
    """Write `data` to `url` atomically."""
    write(url, lambda file: file.write(data))


def read_bytes(url: str, start: int | None = None, stop: int | None = None, *, most: int | None = None) -> bytes:
    """The content of `url`, or its bytes [start, stop).

    Args:
        most: bytes that the file may have; None for any number. One of a terabyte may take no room on a disk.

    Raises:
        StorageError: it is not there, cannot be read, or has more.
    """
    fs, path = filesystem(url)
    if most is not None and (size := stamp(url)[0]) > most:
        raise StorageError(Problem(url, f"a file of at most {most:,} bytes", f"{size:,}", "look who put it there"))
    with _reaching(url):
        if _is_here(fs) and rooted.base_of(path) is not None:
            return rooted.read(path, url, start, stop)
        data: bytes = fs.cat_file(path, start=start, end=stop)
    return data


def _unreadable(url: str, error: Exception) -> StorageError:
    return StorageError(Problem(url, "a readable file", _plain(error)))


def _unlisted(url: str, error: Exception) -> StorageError:
    return StorageError(Problem(url, "a folder that can be read", _plain(error)))


def is_outage(error: StorageError) -> bool:
    """Whether a file that may well be whole could not be read; not so when none is there, or its content is wrong."""
    cause = error.__cause__
    return isinstance(cause, OSError) and not isinstance(cause, _ABSENT)
