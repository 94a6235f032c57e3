from __future__ import annotations

import numpy as np
from scipy import stats

from services.numerics.ranking.ranks import ranks
from services.numerics.tails import at_least, at_most


def test_both_tails_are_those_of_scipy_for_every_count() -> None:
    for trials in (0, 1, 7, 400):
        counts = np.arange(trials + 1)
        for chance in (0.0, 0.01, 0.5, 0.9, 1.0):
            upper, lower = stats.binom.sf(counts - 1, trials, chance), stats.binom.cdf(counts, trials, chance)
            np.testing.assert_allclose(at_least(counts, trials, chance), upper, rtol=1e-10, atol=1e-300)
            np.testing.assert_allclose(at_most(counts, trials, chance), lower, rtol=1e-10, atol=1e-300)


def test_ranks_are_those_of_scipy_with_ties() -> None:
    values = np.random.default_rng(0).integers(0, 5, 40).astype(float)
    assert ranks(values.tolist(), descending=False) == tuple(stats.rankdata(values).tolist())
