"""ProbAcc(rho): the share of samples whose probabilistic robustness PR is at least 1 - rho, as an interval.

100 clean draws leave a failure probability of up to 2.95 % (95 %), so a point estimate of PR cannot be compared with a
small rho. Each sample has a verdict instead (robust, not robust, undecided), and the share lies in
[share certified robust, 1 - share certified not robust].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.binomial import true_share_bounds


@dataclass(frozen=True, slots=True)
class ProbAcc:
    """Verdict counts and the interval they give.

    Attributes:
        robust, not_robust, undecided: counts.
        low, high: [share certified robust, 1 - share certified not robust]; None without samples.
        true_low, true_high: the same with the verdicts' own error rate alpha and the sampling of the points accounted
            for, at level 1 - delta (`true_share_bounds`); None without samples.
    """

    robust: int
    not_robust: int
    undecided: int
    low: float | None
    high: float | None
    true_low: float | None
    true_high: float | None


def probacc(verdicts: NDArray[np.integer], *, alpha: float, delta: float) -> ProbAcc:
    """Summarise verdicts (N,) of 1 (robust), -1 (not robust) and 0 (undecided), each made at level alpha."""
    total, robust, broken = len(verdicts), int((verdicts > 0).sum()), int((verdicts < 0).sum())
    if total == 0:
        return ProbAcc(0, 0, 0, None, None, None, None)
    true = true_share_bounds(robust, broken, total, alpha=alpha, delta=delta)
    return ProbAcc(robust, broken, total - robust - broken, robust / total, 1.0 - broken / total, true.low, true.high)
