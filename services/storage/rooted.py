"""Folders that links may not lead out of: a storage is written by workers, which run models of others.

Who may put a link into a storage chooses what another process, with rights of its own, reads there and hands out, or
removes. So a process that reads for others, or removes, names its storage once (`keep_within`); from then on nothing
below it is opened, listed or removed that really lies elsewhere. What is opened is judged by the open file, so that no
link can be changed in between. The folder itself may be a link, and so may the folders above it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO

from services.errors import Problem, StorageError

_bases: set[str] = set()


def add(folder: str) -> None:
    """Links may not lead out of this local folder from now on, in this process."""
    _bases.add(str(Path(folder).absolute()))


def base_of(path: str) -> str | None:
    """The innermost such folder that a path, as it is written, lies in."""
    inside = [base for base in _bases if Path(path).is_relative_to(base)]
    return max(inside, key=len, default=None)


def is_inside(path: str) -> bool:
    """Whether a path leads to where it is written."""
    base = base_of(path)
    return base is None or _is_in(os.path.realpath(path), base)


def require_inside(path: str, url: str) -> None:
    """Check where a path leads.

    Raises:
        StorageError: out of the folder that it is written in.
    """
    if not is_inside(path):
        raise _leads_out(url)


def read(path: str, url: str, start: int | None, stop: int | None) -> bytes:
    """The bytes [start, stop) of a file below such a folder; negative ones count from its end.

    Raises:
        StorageError: it leads out of the folder.
        OSError: it cannot be opened.
    """
    base = base_of(path)
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if base is not None and not _is_in(real_path(file, path), base):
            raise _leads_out(url)
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise StorageError(Problem(url, "a regular file", "a pipe or device, which is waited for"))
        first, last, _ = slice(start, stop).indices(status.st_size)
        file.seek(first)
        return file.read(max(0, last - first))


def real_path(file: IO[bytes], path: str) -> str:
    """Where an open file lies, without links."""
    try:
        return str(Path(f"/proc/self/fd/{file.fileno()}").readlink())
    except OSError:  # no Linux
        return os.path.realpath(path)


def _is_in(real: str, base: str) -> bool:
    return Path(real).is_relative_to(os.path.realpath(base))


def _leads_out(url: str) -> StorageError:
    remedy = "look who put it there; to keep parts of a storage elsewhere, mount them"
    return StorageError(Problem(url, "a file of the storage", "a link that leads out of it", remedy))
