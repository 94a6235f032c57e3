"""Any sample source as a training set: npz, Parquet, folders of images, and whatever else audits read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.errors import Problem, SourceError
from services.loading.samples.source import open_samples
from services.records import SampleSpec
from services.training.datasets import Dataset, Part, Split

CHUNK = 1024
LEVELS = np.float32(255.0)


def read(uri: str, split: Split, size: int | None = None) -> Part:
    """All samples of a source, copies of an image once; uint8 where every pixel is a whole level of 255.

    Raises:
        ConfigError: the scheme is unknown.
        SourceError: it cannot be opened, a sample cannot be read, or the source generates samples.
    """
    if uri.startswith("generator:"):
        raise SourceError(Problem(uri, "samples that are stored", "a generator", "write what it makes to an npz"))
    samples = open_samples(SampleSpec(uri))
    parts = [samples.images(start, start + CHUNK) for start in range(0, len(samples), CHUNK)]
    images = _compact(np.concatenate(parts))
    return Part(images, samples.labels, samples.classes)


def _compact(images: NDArray[np.float32]) -> NDArray[Any]:
    levels = np.rint(images * LEVELS).astype(np.uint8)
    return levels if np.array_equal(levels.astype(np.float32) / LEVELS, images) else images


SAMPLES = Dataset(read, None, None, by_uri=True)
