"""Random starts as a function of (seed, sample id, draw), so that they do not depend on batches or workers."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["uniform", "normal"]

_WORD = (1 << 64) - 1


def generator(sample: int, *, seed: int, draw: int) -> np.random.Generator:
    """The Philox stream of one (seed, sample id, draw); distinct triples give disjoint streams.

    Seed and id are the two words of the key, the draw is the highest word of the counter, which leaves 2**192 blocks
    to each draw.
    """
    key = np.array([seed & _WORD, sample & _WORD], dtype=np.uint64)
    counter = np.array([0, 0, 0, draw & _WORD], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def start_noise(
    ids: NDArray[np.integer[Any]], shape: tuple[int, ...], *, seed: int, draw: int, kind: Kind = "uniform"
) -> NDArray[np.float32]:
    """Noise (n, *shape) for samples `ids` (n,): uniform in [-1, 1), or standard normal."""
    noise = np.empty((len(ids), *shape), dtype=np.float32)
    for row, sample in zip(noise, ids, strict=True):
        stream = generator(int(sample), seed=seed, draw=draw)
        if kind == "uniform":
            stream.random(dtype=np.float32, out=row)
        else:
            stream.standard_normal(dtype=np.float32, out=row)
    return noise * 2 - 1 if kind == "uniform" else noise


def start_lengths(ids: NDArray[np.integer[Any]], *, seed: int, draw: int) -> NDArray[np.float64]:
    """One uniform number in [0, 1) a sample, (n,), from a draw of its own: the radius of a start in an L2 ball."""
    return np.array([generator(int(sample), seed=seed, draw=~draw).random() for sample in ids])
