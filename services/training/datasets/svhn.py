"""SVHN, cropped digits, in the authors' MATLAB files."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np

from services.errors import Problem, SourceError
from services.training.datasets import Dataset, Part, Split


def read(root: Path, split: Split, size: int | None = None) -> Part:
    """`X` is (32, 32, 3, N); in `y` the digit 0 is written as 10."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    path = root / f"{split}_32x32.mat"
    if not path.is_file():
        raise SourceError(Problem(str(path), "the authors' MATLAB file", "nothing there"))
    try:
        arrays = loadmat(str(path), variable_names=("X", "y"))
    except (MatReadError, ValueError, TypeError, OSError, EOFError, zlib.error, NotImplementedError) as error:
        raise SourceError(Problem(str(path), "a readable MATLAB file", str(error), "fetch it again")) from error
    if not {"X", "y"} <= set(arrays) or arrays["X"].ndim != 4 or arrays["X"].shape[3] != arrays["y"].size:
        raise SourceError(Problem(str(path), "X (32, 32, 3, N) and y (N, 1)", "other variables or shapes"))
    images = np.ascontiguousarray(arrays["X"].transpose(3, 2, 0, 1))
    labels = arrays["y"].ravel().astype(np.int64)
    return Part(images, np.where(labels == 10, 0, labels), tuple(str(k) for k in range(10)))


SVHN = Dataset(read, (3, 32, 32), 10)
