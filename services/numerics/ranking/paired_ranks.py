"""Which rows of a ranking differ when all are measured on the same samples: paired resampling of composites.

Of two models that err on the same images the difference is known better than either. The samples are drawn again, the
same for all models; what every draw makes of two scores tells how well.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from services.numerics.arguments import Bools, Floats, fault

DRAWS = 2000
_BLOCK = 1 << 24
"""Numbers drawn at a time."""


def resampled_sums(values: NDArray[np.floating], labels: NDArray[np.integer], *, draws: int, seed: int) -> Floats:
    """Sums of columns by class, of the samples as they are and of `draws` resamples: (1 + draws, K, M).

    A resample has as many samples of each class as there are, drawn with replacement, the same for all columns.

    Args:
        values: (N, M).
        labels: (N,) in [0, K); every class has a sample.

    Raises:
        MeasureError: shapes differ, or a class has no sample.
    """
    table = np.asarray(values, dtype=np.float64)
    counts = np.bincount(labels) if len(labels) else np.zeros(0, int)
    if table.ndim != 2 or len(table) != len(labels) or not len(labels):
        raise fault("values", f"shape ({len(labels)}, M) with a row a label", f"shape {table.shape}")
    if not counts.all():
        raise fault("labels", "a sample of each class", f"none of class {int(np.flatnonzero(counts == 0)[0])}")
    sums = np.empty((1 + draws, len(counts), table.shape[1]))
    for label, count in enumerate(counts.tolist()):
        own = table[labels == label]
        sums[0, label] = own.sum(axis=0)
        rng, start = np.random.default_rng((seed, label)), 1
        for times in _times(rng, count, draws):
            sums[start : start + len(times), label] = times @ own
            start += len(times)
    return sums


def _times(rng: np.random.Generator, count: int, draws: int) -> Iterator[Floats]:
    """How often each of so many samples is drawn, in blocks of resamples."""
    block = max(1, _BLOCK // count)
    for start in range(0, draws, block):
        size = min(block, draws - start)
        places = rng.integers(0, count, (size, count)) + count * np.arange(size)[:, None]
        yield np.bincount(places.ravel(), minlength=size * count).reshape(size, count).astype(np.float64)


def ahead(scores: NDArray[np.floating], *, level: float) -> Bools:
    """Whether each row is ahead of each other one, (N, N): entry (i, k) says that i scores certainly more than k.

    Simultaneous limits of all differences: `D - q s`, D the difference of the samples as they are, s its standard
    deviation over the resamples, and q the 1 - level quantile, over resamples, of the largest `|D_b - D| / s` of any
    pair. With many samples, one or more entries are false with probability about `level`; the guarantee is approximate,
    and about these models on other samples.

    Args:
        scores: (1 + B, N), the samples as they are first.

    Raises:
        MeasureError: fewer than 100 resamples, or a level outside (0, 1).
    """
    if scores.ndim != 2 or len(scores) < 101:
        raise fault("scores", "the samples and at least 100 resamples", f"shape {scores.shape}")
    if not 0 < level < 1:
        raise fault("level", "a number between 0 and 1", str(level))
    first, second = np.triu_indices(scores.shape[1], 1)
    is_ahead = np.zeros((scores.shape[1],) * 2, dtype=bool)
    if not len(first):
        return is_ahead
    differences = scores[:, first] - scores[:, second]
    whole, drawn = differences[0], differences[1:]
    spread = drawn.std(axis=0)
    known = spread > 1e-12
    if known.any():
        largest = (np.abs(drawn - whole)[:, known] / spread[known]).max(axis=1)
        reach = np.quantile(largest, 1 - level) * spread
    else:
        reach = spread
    is_ahead[first, second], is_ahead[second, first] = whole > reach + 1e-12, -whole > reach + 1e-12
    return is_ahead


def places_by(is_ahead: Bools) -> list[tuple[int, int]]:
    """Best and worst place of each row by who is certainly ahead of whom (N, N)."""
    behind, before = is_ahead.sum(axis=0), is_ahead.sum(axis=1)
    return [(int(1 + back), int(len(is_ahead) - front)) for back, front in zip(behind, before, strict=True)]
