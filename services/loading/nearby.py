"""Files that lie in an object storage, as a copy on this machine: one of each content a process."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from services.errors import Problem, SourceError
from services.loading.confined import is_confined
from services.loading.uris import local_path
from services.records import digest_of
from services.storage import files

_copies: dict[tuple[str, int, str], Path] = {}


def nearby(text: str, where: str) -> Path:
    """The path of a file of this machine, or of a copy of what `text`, a URL such as s3://bucket/w.safetensors, names.

    Raises:
        SourceError: only some folders are granted, so that no URL is.
        StorageError: it is not there, or cannot be read.
    """
    if "://" not in text:
        return local_path(text)
    if is_confined():
        raise SourceError(Problem(where, "a file below a granted folder", text, "put a copy there"))
    size, written = files.stamp(text)
    known = (text, size, written)
    if known not in _copies or not written:
        copy = Path(_folder().name, f"{digest_of(*known)[:16]}-{len(_copies)}{Path(text).suffix}")
        copy.write_bytes(files.read_bytes(text))
        _copies[known] = copy
    return _copies[known]


@cache
def _folder() -> TemporaryDirectory[str]:
    """Removed when the process ends."""
    return TemporaryDirectory(prefix="classwise-")
