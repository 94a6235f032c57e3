"""Folders outside of which nothing that a fleet names is opened, wherever links lead.

An allow-list is checked where a fleet is admitted, and looks at the paths that stand in it. Whoever may write to a
granted folder can put links into it: a description, an image, a folder of a class, a file of a table that lies
elsewhere and that the audit's process may read. So what is opened is looked at again, when it is opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from services.errors import Problem, SourceError

_folders: tuple[str, ...] = ()
_trusted: set[str] = set()


def confine(folders: Sequence[str]) -> None:
    """Open nothing else in this process from now on; without any folder, whatever is named."""
    global _folders
    _folders = tuple(os.path.realpath(folder) for folder in folders)


@contextmanager
def confined_to(folders: Sequence[str]) -> Iterator[None]:
    """The same, for a while."""
    global _folders
    before = _folders
    confine(folders)
    try:
        yield
    finally:
        _folders = before


def trust(folder: Path) -> None:
    """A folder of the program's own: of a package, or one into which it loaded artifacts."""
    _trusted.add(os.path.realpath(folder))


def within(path: Path, where: str) -> Path:
    """The path.

    Raises:
        SourceError: it leads out of the folders.
    """
    if _folders and not _is_granted(os.path.realpath(path)):
        raise SourceError(_leads_out(path, where))
    return path


def within_tree(folder: Path, where: str) -> Path:
    """The folder, when no link in it leads out of the granted ones.

    Raises:
        SourceError: one does, or it does itself.
    """
    within(folder, where)
    if _folders:
        for root, folders, files in os.walk(folder):
            for name in (*folders, *files):
                if (path := Path(root, name)).is_symlink():
                    within(path, where)
    return folder


def open_granted(path: Path, where: str) -> IO[bytes]:
    """The open file, when it is one of the granted: of what is open, so that no link can be changed in between.

    Raises:
        SourceError: it is not.
        OSError: it cannot be opened.
    """
    file = path.open("rb")
    try:
        if _folders and not _is_granted(_real_path(file, path)):
            raise SourceError(_leads_out(path, where))
    except BaseException:
        file.close()
        raise
    return file


def _real_path(file: IO[bytes], path: Path) -> str:
    try:
        return str(Path(f"/proc/self/fd/{file.fileno()}").readlink())
    except OSError:  # no Linux
        return os.path.realpath(path)


def _is_granted(real: str) -> bool:
    return any(Path(real).is_relative_to(folder) for folder in (*_folders, *_trusted))


def _leads_out(path: Path, where: str) -> Problem:
    remedy = "copy there what the link names"
    return Problem(where, "files of the folders that are granted", f"{path}, which leads out of them", remedy)
