"""Pickles of others, of which arrays, numbers, text and containers are read, and nothing that runs code.

No object of NumPy is given a state out of the file: a `dtype` takes flags from it, and with other flags the bytes of an
array of objects are taken for addresses. So arrays are made here, of numbers alone.
"""

from __future__ import annotations

import pickle
import re
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

DAMAGE = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    AttributeError,
    LookupError,
    TypeError,
    MemoryError,
    OverflowError,
    ImportError,
    RecursionError,
)
"""What the reading of one raises that is damaged, foreign or hostile."""
_RECONSTRUCT = {("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")}


class _Kind:
    """Stands for a `dtype`: of numbers, with its byte order."""

    __slots__ = ("dtype",)

    def __init__(self, name: str = "", *how: Any) -> None:
        if not isinstance(name, str) or not re.fullmatch(r"[biuf][1248]", name):
            raise pickle.UnpicklingError(f"it refers to numbers of kind {str(name)[:40]!r}")
        self.dtype = np.dtype(name)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


class _Array(np.ndarray[Any, np.dtype[Any]]):
    """An array, of which the file says shape, numbers and order."""

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, columns_first, data = state
        if not isinstance(kind, _Kind) or not isinstance(data, bytes | str):
            raise pickle.UnpicklingError("it refers to an array of something else than numbers")
        raw = data.encode("latin1") if isinstance(data, str) else data
        made: Any = (1, tuple(map(int, shape)), kind.dtype, bool(columns_first), raw)
        super().__setstate__(made)


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("numpy", "dtype"):
            return _Kind
        if (module, name) == ("numpy", "ndarray"):
            return "ndarray"  # named, and not called: an array without content shows memory
        if (module, name) in _RECONSTRUCT:
            return lambda *how: _Array((0,), np.uint8)  # a new one each time: a file may change its attributes
        if (module, name) == ("_codecs", "encode"):  # bytes, as Python 3 writes them for Python 2
            return lambda text, encoding: text.encode("latin1")
        raise pickle.UnpicklingError(f"it refers to {module}.{name}")


def load(file: IO[bytes], *, encoding: str = "latin1") -> Any:
    """What a file holds, as `pickle.load` of one that Python 2 wrote.

    Raises:
        Exception: one of `DAMAGE`; `UnpicklingError` where it refers to anything else.
    """
    content = _ArraysOnly(file, encoding=encoding).load()
    return {key: _plain(value) for key, value in content.items()} if isinstance(content, dict) else _plain(content)


def _plain(value: Any) -> Any:
    array: NDArray[Any] | None = value.view(np.ndarray) if isinstance(value, _Array) else None
    return value if array is None else array
