"""Expected calibration error: a naive loop, known values, coverage by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.numerics.calibration_error import BINS, calibration_error


def naive(confidence: np.ndarray, correct: np.ndarray) -> float:
    total = 0.0
    for b in range(BINS):
        inside = [i for i, c in enumerate(confidence) if b / BINS <= c < (b + 1) / BINS or (b == BINS - 1 and c == 1)]
        if inside:
            total += len(inside) * abs(np.mean(correct[inside]) - np.mean(confidence[inside]))
    return total / len(confidence)


@given(st.integers(1, 60), st.integers(0, 1000))
def test_it_is_the_naive_loop(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    confidence, correct = rng.random(count), rng.random(count) < 0.6
    confidence[0] = 1.0
    found = calibration_error(confidence, correct, delta=0.05, seed=0)
    assert found.value == pytest.approx(naive(confidence, correct))
    assert found.low is not None and found.high is not None and found.value is not None
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_extremes() -> None:
    assert calibration_error(np.ones(5), np.zeros(5), delta=0.05, seed=0).value == 1.0
    assert calibration_error(np.ones(5), np.ones(5), delta=0.05, seed=0).value == 0.0
    assert calibration_error(np.zeros(0), np.zeros(0), delta=0.05, seed=0).value is None


@pytest.mark.long
@pytest.mark.parametrize("gap", [0.0, pytest.param(0.1, marks=pytest.mark.slow)])
def test_the_interval_covers(gap: float) -> None:
    """Confidences in the middles of the bins, right with a probability `gap` below them: the true error is the gap."""
    rng, runs, covered, biased = np.random.default_rng(3), 120, 0, 0.0
    for run in range(runs):
        confidence = (rng.integers(6, BINS, 600) + 0.5) / BINS
        correct = rng.random(600) < confidence - gap
        found = calibration_error(confidence, correct, delta=0.1, seed=run)
        assert found.value is not None and found.low is not None and found.high is not None
        covered += found.low <= gap <= found.high
        biased += found.value - gap
    assert covered >= 0.9 * runs - 2.33 * (runs * 0.09) ** 0.5
    assert biased > 0
