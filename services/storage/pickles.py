"""Pickles of others, of which arrays, numbers, text and containers are read, and nothing that runs code."""

from __future__ import annotations

import pickle
from typing import IO, Any

ALLOWED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("_codecs", "encode"),
}
"""All that an array refers to."""
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


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def load(file: IO[bytes], *, encoding: str = "latin1") -> Any:
    """What a file holds, as `pickle.load` of one that Python 2 wrote.

    Raises:
        Exception: one of `DAMAGE`; `UnpicklingError` where it refers to anything else.
    """
    return _ArraysOnly(file, encoding=encoding).load()
