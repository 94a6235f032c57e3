"""scikit-learn's digits, which ship with the package: no root, no download. The split is that of `sklearn:digits`."""

from __future__ import annotations

from pathlib import Path

from services.loading.samples.schemes.sklearn import digits
from services.loading.samples.selection import split_half
from services.training.datasets import Dataset, Part, Split


def read(root: Path, split: Split, size: int | None = None) -> Part:
    """Half of each class, as `sklearn:digits?split=train` or `?split=test` has it, in [0, 1]."""
    images, labels = digits(f"digits ({split})")
    rows = split_half(labels, part=split, seed=0)
    return Part(images[rows][:, None], labels[rows], tuple(str(k) for k in range(10)))


DIGITS = Dataset(read, (1, 8, 8), 10, rooted=False)
