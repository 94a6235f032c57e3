"""Starts are a function of (seed, sample id, draw) and of nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest

from services.measures.attacks.starts import start_lengths, start_noise

SHAPE = (3, 8, 8)


def test_a_sample_has_the_same_noise_in_every_batch() -> None:
    ids = np.array([4, 9, 2**40, 7])
    together = start_noise(ids, SHAPE, seed=1, draw=3)
    alone = np.concatenate([start_noise(ids[i : i + 1], SHAPE, seed=1, draw=3) for i in (3, 2, 1, 0)])
    assert np.array_equal(together, alone[::-1])


@pytest.mark.parametrize("change", [{"seed": 2}, {"draw": 4}, {"kind": "normal"}])
def test_each_part_of_the_key_matters(change: dict[str, object]) -> None:
    ids = np.arange(5)
    base = {"seed": 1, "draw": 3}
    first, other = start_noise(ids, SHAPE, **base), start_noise(ids, SHAPE, **{**base, **change})  # type: ignore[arg-type]
    assert not np.any(first == other)
    assert not np.array_equal(start_lengths(ids, seed=1, draw=3), start_lengths(ids, seed=1, draw=4))


def test_the_distributions() -> None:
    ids = np.arange(200)
    uniform = start_noise(ids, (50,), seed=0, draw=0).ravel()
    normal = start_noise(ids, (50,), seed=0, draw=0, kind="normal").ravel()
    assert kstest(uniform, "uniform", (-1, 2)).pvalue > 1e-3
    assert kstest(normal, "norm").pvalue > 1e-3
    assert kstest(start_lengths(np.arange(2000), seed=0, draw=0), "uniform").pvalue > 1e-3


def test_a_negative_seed_is_a_seed() -> None:
    assert not np.array_equal(
        start_noise(np.arange(2), SHAPE, seed=-1, draw=0), start_noise(np.arange(2), SHAPE, seed=1, draw=0)
    )
