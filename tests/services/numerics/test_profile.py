"""Profiles: exact sums, and shards that merge to the whole bit by bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.errors import MeasureError
from services.numerics import profile as profile_module
from services.numerics.profile import Profile


def make(seed: int, n: int, k: int, bound: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.beta(0.3, 2, n) * bound, rng.integers(0, k, n)


@given(st.integers(0, 10**6), st.integers(0, 200), st.integers(1, 6), st.sampled_from([1.0, math.pi / 2, 7.3]))
def test_merged_shards_are_bitwise_the_whole(seed: int, n: int, k: int, bound: float) -> None:
    scores, groups = make(seed, n, k, bound)
    whole = Profile.from_scores(scores, groups, k, bound=bound)
    order = np.random.default_rng(seed).permutation(n)
    shards = [Profile.from_scores(scores[part], groups[part], k, bound=bound) for part in np.array_split(order, 7)]
    merged = Profile.merge(shards)
    np.testing.assert_array_equal(merged.counts, whole.counts)
    np.testing.assert_array_equal(merged.limbs, whole.limbs)
    assert merged.aggregate == whole.aggregate


@given(st.integers(0, 10**6), st.integers(1, 300), st.integers(1, 5))
def test_sums_are_those_of_fsum_and_the_decomposition_is_exact(seed: int, n: int, k: int) -> None:
    scores, groups = make(seed, n, k, 1.25)
    profile = Profile.from_scores(scores, groups, k, bound=1.25)
    for g in range(k):
        exact = math.fsum(scores[groups == g])
        assert profile.sums[g] == pytest.approx(exact, rel=1e-15, abs=n * 2.0**-52)
        assert profile.squares[g] == pytest.approx(math.fsum(scores[groups == g] ** 2), rel=1e-14, abs=n * 2.0**-51)
    parts = profile.counts[profile.defined] / profile.total * profile.means[profile.defined]
    assert profile.aggregate == pytest.approx(math.fsum(parts), rel=1e-14)
    assert profile.aggregate == pytest.approx(math.fsum(scores) / n, rel=1e-14, abs=1e-15)


def test_moments_against_numpy() -> None:
    scores, groups = make(0, 5000, 4, 1.0)
    profile = Profile.from_scores(scores, groups, 4, bound=1.0)
    for g in range(4):
        assert profile.means[g] == pytest.approx(scores[groups == g].mean(), rel=1e-13)
        assert profile.variances[g] == pytest.approx(scores[groups == g].var(), rel=1e-11)


def test_a_group_without_samples_is_undefined_not_zero() -> None:
    profile = Profile.from_scores(np.array([0.5, 0.25]), np.array([0, 2]), 4, bound=1.0)
    np.testing.assert_array_equal(profile.defined, [True, False, True, False])
    assert np.isnan(profile.means[~profile.defined]).all()
    assert np.isnan(profile.variances[~profile.defined]).all()
    empty = Profile.from_scores(np.zeros(0), np.zeros(0, dtype=int), 3, bound=1.0)
    assert empty.aggregate is None


@pytest.mark.parametrize("bad", [[0.5, math.nan], [0.5, 1.1], [-0.2, 0.5], [math.inf, 0.1]])
def test_scores_out_of_range_are_refused(bad: list[float]) -> None:
    with pytest.raises(MeasureError, match="1 of 2 outside or NaN"):
        Profile.from_scores(np.array(bad), np.array([0, 0]), 1, bound=1.0)


def test_what_does_not_fit_is_refused() -> None:
    profile = Profile.from_scores(np.array([0.5]), np.array([0]), 1, bound=1.0)
    with pytest.raises(MeasureError, match="one bound"):
        Profile.merge([profile, Profile.from_scores(np.array([0.5]), np.array([0]), 2, bound=1.0)])
    with pytest.raises(MeasureError, match="at least one"):
        Profile.merge([])
    with pytest.raises(MeasureError, match="bound"):
        Profile.from_scores(np.array([0.5]), np.array([0]), 1, bound=0.0)
    with pytest.raises(MeasureError, match="1 of 1 outside"):
        Profile.from_scores(np.array([0.5]), np.array([1]), 1, bound=1.0)


def test_the_limbs_of_a_score() -> None:
    """A third is a multiple of 2**-26 and a rest in multiples of 2**-53, of the score and of its square; bound 3."""
    third = 1 / 3
    profile = Profile.from_scores(np.array([4 * third]), np.array([0]), 1, bound=3.0)
    high = round(third * 2**26) / 2**26
    rest = round((third - high) * 2**53) / 2**53
    square = third**2
    top = round(square * 2**26) / 2**26
    assert profile.limbs[:, 0].tolist() == [high, rest, top, round((square - top) * 2**53) / 2**53]
    assert profile.sums[0] == pytest.approx(4 * third, rel=1e-15)
    assert profile.squares[0] == pytest.approx((4 * third) ** 2, rel=1e-15)


def test_types_and_the_largest_group() -> None:
    scores, groups = make(1, 50, 3, 1.0)
    profile = Profile.from_scores(scores, groups.astype(np.int8), 3, bound=1.0)
    assert (profile.counts.dtype, profile.limbs.dtype, profile.limbs.shape) == (np.int64, np.float64, (4, 3))
    assert Profile.merge([profile, profile]).counts.dtype == np.int64
    assert Profile.merge(iter([profile])).bound == 1.0
    assert type(profile.aggregate) is float
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profile_module, "MOST_SAMPLES", int(profile.counts.max()))
        assert Profile.from_scores(scores, groups, 3, bound=1.0).total == 50
    none = Profile.from_scores(np.zeros(0), np.zeros(0, int), 0, bound=1.0)
    assert (none.n_groups, none.total, none.aggregate) == (0, 0, None)


@pytest.mark.parametrize(("bound", "scale"), [(1.0, 1.0), (1.25, 2.0), (2.0, 2.0), (2.01, 4.0), (0.3, 0.5)])
def test_the_scale_is_the_power_of_two_above_the_bound(bound: float, scale: float) -> None:
    assert profile_module.scale_of(bound) == scale


def test_variances_are_cut_to_what_is_possible() -> None:
    profile = Profile.from_scores(np.array([0.0, 2.0, 0.7, 0.7, 0.7]), np.array([0, 0, 1, 1, 1]), 2, bound=2.0)
    assert profile.variances[0] == 1.0 and 0.0 <= profile.variances[1] < 1e-15


def test_the_aggregate_of_scores_on_any_scale() -> None:
    scores, groups = make(2, 300, 4, 7.3)
    assert Profile.from_scores(scores, groups, 4, bound=7.3).aggregate == pytest.approx(scores.mean(), rel=1e-14)
