"""Folders outside of which nothing that a fleet names is opened, wherever links lead.

An allow-list is checked where a fleet is admitted, and looks at the paths that stand in it. Whoever may write to a
granted folder can put links into it: a description, an image, a folder of a class, a file of a table that lies
elsewhere and that the audit's process may read. So what is opened is looked at again, when it is opened.

A name can be given to another file between two looks. While files are `held`, each is opened once and judged by what is
open; from then on its name is that of the open file (Linux: ``/proc/self/fd/N``), which no link can change: what a
library reads and what is hashed is the file that was judged.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from services.errors import Problem, SourceError

_folders: tuple[str, ...] | None = None
_trusted: set[str] = set()
_held: ContextVar[dict[str, tuple[IO[bytes], os.stat_result, str]] | None] = ContextVar("held", default=None)
OPEN_FILES = Path("/proc/self/fd")
DEPTH = 100
"""Of folders in each other."""


def confine(folders: Sequence[str] | None) -> None:
    """Open nothing else in this process from now on, of no folders nothing at all; with None, whatever is named."""
    global _folders
    _folders = None if folders is None else tuple(os.path.realpath(folder) for folder in folders)


@contextmanager
def confined_to(folders: Sequence[str] | None) -> Iterator[None]:
    """The same, for a while."""
    global _folders
    before = _folders
    confine(folders)
    try:
        yield
    finally:
        _folders = before


def trust(folder: Path) -> None:
    """A folder of the program's own: of a package, or one of artifacts; not where it leads as a link."""
    _trusted.add(os.path.join(os.path.realpath(folder.parent), folder.name))  # noqa: PTH118


def is_confined() -> bool:
    """Whether only some folders are granted."""
    return _folders is not None


@contextmanager
def held() -> Iterator[None]:
    """For the block a name is one file, however often it is looked at; inside of another such block, for that one.

    Raises:
        SourceError: a file was written meanwhile, so that what was read and what was hashed may differ.
    """
    if _folders is None or _held.get() is not None:
        yield
        return
    files: dict[str, tuple[IO[bytes], os.stat_result, str]] = {}
    token = _held.set(files)
    try:
        yield
        for name, (file, before, where) in files.items():
            after = os.fstat(file.fileno())
            if _state(after) != _state(before):
                expected = "files that stay as they are while they are read"
                raise SourceError(Problem(where, expected, f"{name}, which was written meanwhile", "audit again"))
    finally:
        _held.reset(token)
        for file, _, _ in files.values():
            file.close()


def _state(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def pinned(path: Path, where: str) -> Path:
    """The name by which a file is opened from now on: of the open file, while files are held.

    Raises:
        SourceError: it leads out of the folders, is no regular file or cannot be opened.
    """
    files, name = _held.get(), str(path.absolute())
    if files is None or not OPEN_FILES.is_dir():
        return within(path, where)
    if name not in files:
        try:
            file = open_granted(path, where)
        except OSError as error:
            raise SourceError(Problem(where, "a file that can be read", str(error))) from error
        files[name] = file, os.fstat(file.fileno()), where
    return OPEN_FILES / str(files[name][0].fileno())


def within(path: Path, where: str) -> Path:
    """The path.

    Raises:
        SourceError: it leads out of the folders.
    """
    if is_confined() and not _is_granted(os.path.realpath(path)):
        raise SourceError(_leads_out(path, where))
    return path


def within_tree(folder: Path, where: str) -> Path:
    """The folder, when no link in it leads out of the granted ones.

    Raises:
        SourceError: one does, or it does itself.
    """
    within(folder, where)
    if is_confined():
        for root, folders, files in os.walk(folder):
            for name in (*folders, *files):
                if (path := Path(root, name)).is_symlink():
                    within(path, where)
    return folder


@contextmanager
def scanned(folder: Path, where: str) -> Iterator[list[os.DirEntry[str]]]:
    """The entries of a folder by name, while it is open: of what is open, so that no link can be changed in between.

    Raises:
        SourceError: it leads out of the granted folders, or cannot be read.
    """
    if os.scandir not in os.supports_fd:  # no POSIX
        within(folder, where)
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY) if os.scandir in os.supports_fd else None
    except OSError as error:
        raise SourceError(_unreadable(folder, error)) from error
    try:
        if opened is not None and is_confined() and not _is_granted(_real_path(opened, folder)):
            raise SourceError(_leads_out(folder, where))
        try:
            with os.scandir(folder if opened is None else opened) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError as error:
            raise SourceError(_unreadable(folder, error)) from error
        yield entries
    finally:
        if opened is not None:
            os.close(opened)


def files_below(
    folder: Path, where: str, *, follow: bool = False, leave: Callable[[str], object] | None = None, depth: int = 0
) -> Iterator[Path]:
    """All regular files below a folder, and with `follow` below links in it to other granted ones; judged as `scanned`.

    Folders of whose name `leave` says so are not opened.

    Raises:
        SourceError: as of `scanned`, or folders lie more than `DEPTH` deep in each other.
    """
    if depth > DEPTH:
        raise SourceError(Problem(str(folder)[:200], f"folders at most {DEPTH} deep in each other", "deeper ones"))
    with scanned(folder, where) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=follow):
                if leave is None or not leave(entry.name):
                    yield from files_below(folder / entry.name, where, follow=follow, leave=leave, depth=depth + 1)
            elif entry.is_file():
                yield folder / entry.name


@contextmanager
def linked(files: Mapping[Path, Path]) -> Iterator[Path]:
    """A folder of links, by their paths in it, for libraries that open files by names of their own."""
    with TemporaryDirectory(prefix="classwise-") as home:
        for place, target in files.items():
            link = Path(home, place)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target.absolute())
        yield Path(home)


@contextmanager
def pinned_files(files: Sequence[Path], where: str) -> Iterator[list[Path]]:
    """Names of the open files for the block, each judged by what is open; their own where the system has no others.

    Raises:
        SourceError: one leads out of the granted folders, or is no regular file.
        OSError: one cannot be opened.
    """
    with ExitStack() as stack:
        held = [stack.enter_context(open_granted(path, where)) for path in files]
        yield [OPEN_FILES / str(file.fileno()) for file in held] if OPEN_FILES.is_dir() else list(files)


def open_granted(path: Path, where: str) -> IO[bytes]:
    """The open file, when it is one of the granted: of what is open, so that no link can be changed in between.

    Raises:
        SourceError: it is not, or is no regular file: a pipe would be waited for.
        OSError: it cannot be opened.
    """
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")
    try:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise SourceError(Problem(where, "a regular file", f"{path}, which is none"))
        if is_confined() and not _is_granted(_real_path(file.fileno(), path)):
            raise SourceError(_leads_out(path, where))
    except BaseException:
        file.close()
        raise
    return file


def _real_path(opened: int, path: Path) -> str:
    try:
        return str(Path(f"/proc/self/fd/{opened}").readlink())
    except OSError:  # no Linux
        return os.path.realpath(path)


def _is_granted(real: str) -> bool:
    return any(Path(real).is_relative_to(folder) for folder in (*(_folders or ()), *_trusted))


def _unreadable(folder: Path, error: OSError) -> Problem:
    return Problem(str(folder), "a folder that can be read", error.strerror or type(error).__name__)


def _leads_out(path: Path, where: str) -> Problem:
    remedy = "copy there what the link names"
    return Problem(where, "files of the folders that are granted", f"{path}, which leads out of them", remedy)
