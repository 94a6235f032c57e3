"""Expected calibration error: how far confidence is from accuracy, with a bootstrap interval.

``ECE = sum_b n_b / n |accuracy_b - confidence_b|`` over bins b of equal width of the confidence (Naeini et al. 2015;
Guo et al. 2017, arXiv 1706.04599, eq. 3). Noise in the bins makes the estimate too large, by an amount that depends on
the truth, so percentiles of resamples miss it. With S_b the sum of accuracy minus confidence in a bin over n, the error
is ``sum_b |S_b|``, and the triangle inequality bounds what noise does to it by ``sum_b |S_b - E S_b|``: the interval is
the estimate plus and minus the bootstrap's 1 - delta quantile of that, which errs on the safe side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.records import Estimate

BINS = 15
RESAMPLES = 2_000


def calibration_error(
    confidence: NDArray[np.floating[Any]], correct: NDArray[Any], *, delta: float, seed: int, bins: int = BINS
) -> Estimate:
    """ECE of confidences (n,) in [0, 1] and whether each answer was right (n,), with an interval at level 1 - delta.

    The n samples must be independent. Undefined without any.
    """
    n = len(confidence)
    if not n:
        return Estimate(None, reason="no samples")
    place = np.minimum((np.asarray(confidence, dtype=np.float64) * bins).astype(np.int64), bins - 1)
    gap = np.asarray(correct, dtype=np.float64) - confidence
    sums = np.bincount(place, weights=gap, minlength=bins) / n
    value = float(np.abs(sums).sum())
    rng = np.random.default_rng([seed, 15])
    noise = np.empty(RESAMPLES)
    for turn in range(RESAMPLES):
        rows = rng.integers(n, size=n)
        noise[turn] = np.abs(np.bincount(place[rows], weights=gap[rows], minlength=bins) / n - sums).sum()
    reach = float(np.quantile(noise, 1 - delta))
    return Estimate(value, max(0.0, value - reach), min(1.0, value + reach))
