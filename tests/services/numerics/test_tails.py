from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, stats

from services.numerics.ranking.ranks import ranks
from services.numerics.tails import at_least, at_most, gained_beyond, gained_by_chance


def test_both_tails_are_those_of_scipy_for_every_count() -> None:
    for trials in (0, 1, 7, 400):
        counts = np.arange(trials + 1)
        for chance in (0.0, 0.01, 0.5, 0.9, 1.0):
            upper, lower = stats.binom.sf(counts - 1, trials, chance), stats.binom.cdf(counts, trials, chance)
            np.testing.assert_allclose(at_least(counts, trials, chance), upper, rtol=1e-10, atol=1e-300)
            np.testing.assert_allclose(at_most(counts, trials, chance), lower, rtol=1e-10, atol=1e-300)


@pytest.mark.parametrize(("gained", "lost", "counted"), [(18, 5, 226), (61, 21, 188), (300, 250, 800)])
def test_a_margin_on_pairs_is_tangos_score_test(gained: int, lost: int, counted: int) -> None:
    """The oracle maximises the likelihood where the hypothesis just holds, by search."""
    for margin in (0.03, 0.05, 0.1):

        def loss(share: float, margin: float = margin) -> float:
            same = counted - gained - lost
            return -float(gained * np.log(share + margin) + lost * np.log(share) + same * np.log1p(-2 * share - margin))

        share = optimize.minimize_scalar(loss, bounds=(1e-9, (1 - margin) / 2 - 1e-9), options={"xatol": 1e-12}).x
        spread = np.sqrt(counted * (2 * share + margin * (1 - margin)))
        score = float(stats.norm.sf((gained - lost - counted * margin) / spread))
        others = (
            stats.binom.sf(gained - 1, counted, margin),
            stats.binomtest(gained, gained + lost, 0.5, "greater").pvalue,
        )
        assert gained_beyond(gained, lost, counted, margin) == pytest.approx(max(score, *others), rel=1e-4)


def test_a_margin_on_pairs_keeps_its_level_where_pairs_are_few() -> None:
    """Every table of 40 pairs with its exact chance, where exactly the margin more are gained than lost."""
    margin, n = 0.1, 40
    tables = [(b, c) for b in range(n + 1) for c in range(n + 1 - b)]
    p_values = np.array([gained_beyond(b, c, n, margin) for b, c in tables])
    cells = np.array([(b, c, n - b - c) for b, c in tables])
    for lost in (0.0, 0.02, 0.1, 0.3):
        chances = stats.multinomial.pmf(cells, n, [lost + margin, lost, 1 - margin - 2 * lost])
        for level in (0.05, 0.01, 0.002):
            assert chances[p_values <= level].sum() <= 1.4 * level
    assert gained_beyond(20, 1, n, margin) < 0.01 < gained_beyond(6, 0, n, margin) > gained_by_chance(6, 0)


def test_ranks_are_those_of_scipy_with_ties() -> None:
    values = np.random.default_rng(0).integers(0, 5, 40).astype(float)
    assert ranks(values.tolist(), descending=False) == tuple(stats.rankdata(values).tolist())
