"""MNIST in its IDX files, packed or not."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from services.errors import Problem, SourceError
from services.training.datasets import Dataset, Part, Split

UBYTE = 0x08


def read(root: Path, split: Split, size: int | None = None) -> Part:
    """Read both files of a split."""
    folder = root / "MNIST" / "raw" if (root / "MNIST" / "raw").is_dir() else root
    stem = "train" if split == "train" else "t10k"
    images = read_idx(folder / f"{stem}-images-idx3-ubyte", 3)
    labels = read_idx(folder / f"{stem}-labels-idx1-ubyte", 1)
    if len(images) != len(labels):
        raise SourceError(Problem(f"mnist ({split})", f"{len(images)} labels, one an image", f"{len(labels)}"))
    return Part(images[:, None], labels.astype(np.int64), tuple(str(k) for k in range(10)))


def read_idx(path: Path, axes: int) -> NDArray[np.uint8]:
    """An IDX file of unsigned bytes with so many axes; `.gz` is looked for as well.

    Raises:
        SourceError: it is missing, no such file, or shorter or longer than its header says.
    """
    data = _bytes(path)
    header = 4 + 4 * axes
    if len(data) < header or data[:4] != bytes([0, 0, UBYTE, axes]):
        raise SourceError(Problem(str(path), f"an IDX file of bytes with {axes} axes", "another kind of file"))
    shape = tuple(int(n) for n in np.frombuffer(data, ">u4", axes, 4))
    body = np.frombuffer(data, np.uint8, offset=header)
    if body.size != math.prod(shape):
        expected = f"{math.prod(shape)} bytes after the header, as its shape {shape} says"
        raise SourceError(Problem(str(path), expected, f"{body.size}", "fetch it again"))
    return body.reshape(shape)


def _bytes(path: Path) -> bytes:
    packed = path.with_name(path.name + ".gz")
    if path.is_file():
        return path.read_bytes()
    if not packed.is_file():
        raise SourceError(Problem(str(path), "an IDX file, packed or not", "nothing there"))
    try:
        return gzip.decompress(packed.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(Problem(str(packed), "a complete gzip file", str(error), "fetch it again")) from error


MNIST = Dataset(read, (1, 28, 28), 10)
