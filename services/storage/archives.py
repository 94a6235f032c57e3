"""What NumPy and zipfile raise of archives that are damaged, or none."""

from __future__ import annotations

import zipfile
import zlib

NPZ_DAMAGE = (
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    SyntaxError,
    TypeError,
    OverflowError,
    LookupError,
    RecursionError,
    NotImplementedError,
    RuntimeError,
)
"""Of a header or a member that is no such thing; MemoryError, from a false size, some callers catch apart."""
