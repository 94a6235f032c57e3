"""How many samples would decide: against the bounds themselves, which these samples just clear."""

from __future__ import annotations

import numpy as np
import pytest

from services.numerics.intervals.mixture import log_evidence_of_counts, lower_bound
from services.numerics.intervals.planning import (
    gains,
    gains_of_share,
    samples_to_exceed,
    samples_to_stay_below,
    samples_until,
)


@pytest.mark.parametrize(("share", "null", "alpha"), [(0.9, 0.8, 0.05), (0.97, 0.8, 0.005), (0.32, 0.3, 0.05)])
def test_that_many_and_no_fewer_reach_the_level(share: float, null: float, alpha: float) -> None:
    n = samples_until(gains_of_share(share, null), alpha)
    assert n is not None

    def level(count: float) -> float:
        return float(np.exp(log_evidence_of_counts(share * count, count, null)))

    assert level(n + 1) >= 1 / alpha > level(n * 0.99 - 2)


def test_scores_repeated_so_often_clear_the_threshold() -> None:
    values = np.random.default_rng(0).beta(6, 3, 50)
    for threshold, needed, side in (
        (values.mean() - 0.05, samples_to_exceed, values),
        (values.mean() + 0.05, samples_to_stay_below, 1 - values),
    ):
        n = needed(values, threshold, 0.05)
        assert n is not None
        own = threshold if side is values else 1 - threshold
        many, few = (np.resize(side, count)[None, :] for count in (n + 50, max(1, n - 60)))
        assert lower_bound(many, np.ones_like(many, dtype=bool), 0.05)[0] >= own - 1e-6
        assert lower_bound(few, np.ones_like(few, dtype=bool), 0.05)[0] < own


def test_a_mean_on_the_threshold_or_on_its_other_side_is_never_enough() -> None:
    values = np.array([0.2, 0.8] * 10)
    assert samples_to_exceed(values, 0.5, 0.05) is None
    assert samples_to_exceed(values, 0.7, 0.05) is None
    assert samples_to_stay_below(values, 0.3, 0.05) is None
    assert samples_to_exceed(values, 0.0, 0.05) == 0


def test_fewer_samples_where_the_gap_is_wide() -> None:
    counts = [samples_until(gains_of_share(share, 0.5), 0.05) for share in (0.55, 0.6, 0.7, 0.9, 1.0)]
    assert counts == sorted(counts, key=lambda n: -(n or 0)) and counts[-1] == pytest.approx(7, abs=3)
    assert np.allclose(gains(np.array([1.0, 1.0, 0.0]), 0.5), gains_of_share(2 / 3, 0.5))
