"""Why one image cannot be used."""

from __future__ import annotations

import struct
import zlib

DAMAGE = (
    OSError,
    SyntaxError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RuntimeError,
    ArithmeticError,
    EOFError,
    MemoryError,
    struct.error,
    zlib.error,
)
"""What Pillow's decoders raise of files that are no images, as each format has it."""


class Unusable(Exception):
    """One image that cannot be used, and why."""


class CorruptImage(Unusable):
    """It cannot be read: an error, or skipped."""


class SmallImage(Unusable):
    """It is smaller than the crop, and as valid as the others: always an error, for who skips it loses samples."""


class TransparentImage(Unusable):
    """It is not opaque, and nobody said what lies behind it: always an error."""
