"""The authors' photographs of frost, which the package `imagecorruptions` carries. None of its code is imported."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from services.errors import MeasureError, Problem

PACKAGE = "imagecorruptions"
FILES = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")
USED = len(FILES)
"""There are six; the authors' program draws from the first five."""


def photo_files() -> tuple[Path, ...]:
    """Where they are.

    Raises:
        MeasureError: the package is not installed, or has no such files.
    """
    try:
        home = Path(str(distribution(PACKAGE).locate_file(f"{PACKAGE}/frost")))
    except PackageNotFoundError:
        home = None
    files = tuple(home / name for name in FILES) if home is not None else ()
    if not files or not all(file.is_file() for file in files):
        found = "no such package" if home is None else f"a package without them at {home}"
        remedy = "install classwise[corruptions], or list names without frost"
        raise MeasureError(Problem("corruptions (frost)", f"photographs of frost in {PACKAGE}", found, remedy))
    return files


@lru_cache(maxsize=USED)
def photo(index: int) -> NDArray[np.uint8]:
    """One of them, (H, W, 3)."""
    from PIL import Image

    with Image.open(photo_files()[index]) as picture:
        return np.asarray(picture.convert("RGB"))
