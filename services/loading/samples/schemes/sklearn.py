"""`sklearn:digits?split=test|train|all&seed=0`: 1,797 handwritten digits of 8x8 that ship with scikit-learn."""

from __future__ import annotations

import gzip
import hashlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from services.errors import Problem, SourceError
from services.loading.confined import trust
from services.loading.fingerprint import existing
from services.loading.samples.selection import split_half
from services.loading.samples.source import Source
from services.loading.samples.stores import array_store
from services.loading.uris import SourceUri, one_of, whole


def open_sklearn(uri: SourceUri, *, allowed_factories: tuple[str, ...]) -> Source:
    """Open the digits; values 0..16 are divided by 16.

    The default is the test half of a stratified split with seed 0, so that a network trained on `split=train` is never
    audited on its own training images by accident.
    """
    if uri.rest != "digits":
        raise SourceError(Problem(uri.text, "sklearn:digits", repr(uri.rest)))
    options = uri.options(split=one_of("train", "test", "all"), seed=whole)
    images, labels = digits(uri.text)
    part = options.get("split", "test")
    rows = np.arange(len(labels)) if part == "all" else split_half(labels, part=part, seed=options.get("seed", 0))
    content = hashlib.sha256(images.tobytes()).hexdigest()
    store = array_store(images[rows], scale=1.0, content=content, where=uri.text)
    return Source(store, labels[rows], tuple(str(k) for k in range(10)), ids=rows.astype(np.int64))


def digits(where: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Images (1797, 8, 8) in [0, 1] and labels (1797,), read from the file that scikit-learn ships.

    Importing `sklearn.datasets` would bring in scipy, pandas and joblib: seconds of a demo's start for one small table.
    """
    spec = find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise SourceError(Problem(where, "the package scikit-learn", "it is not installed"))
    trust(Path(spec.origin).parent)
    file = existing(Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz", where)
    with gzip.open(file, "rt") as lines:
        table = np.loadtxt(lines, delimiter=",")
    return (table[:, :64].reshape(-1, 8, 8) / 16).astype(np.float32), table[:, 64].astype(np.int64)
