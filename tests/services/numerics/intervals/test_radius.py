import numpy as np
import pytest
from scipy.stats import beta, norm
from statsmodels.stats.proportion import proportion_confint

from services.numerics.intervals.radius import (
    certified_radius,
    largest_radius,
    lower_bound,
    probability_at,
    radius_of,
    sequential_radius,
)
from services.numerics.intervals.sequential import lower_sequence, upper_sequence


@pytest.mark.parametrize(("hits", "n"), [(0, 100), (61, 100), (99_000, 100_000), (100_000, 100_000)])
def test_lower_bound_is_the_one_of_the_authors_code(hits, n):
    expected = proportion_confint(hits, n, alpha=2 * 0.001, method="beta")[0]
    assert float(lower_bound(hits, n, 0.001)) == pytest.approx(expected, abs=1e-12)
    radius = 0.25 * norm.ppf(expected) if expected > 0.5 else 0.0
    assert float(certified_radius(hits, n, sigma=0.25, alpha=0.001)) == pytest.approx(radius, abs=1e-9)


def test_largest_radius_is_reached_by_all_successes():
    bound = largest_radius(100_000, sigma=0.25, alpha=0.001)
    assert bound == pytest.approx(0.25 * norm.ppf(0.001 ** (1 / 100_000)))
    assert float(certified_radius(100_000, 100_000, sigma=0.25, alpha=0.001)) == pytest.approx(bound)
    assert bound == pytest.approx(0.9526, abs=2e-3)


def test_radius_and_probability_are_inverse():
    r = np.array([0.01, 0.25, 1.0])
    assert radius_of(probability_at(r, 0.5), 0.5) == pytest.approx(r)
    assert radius_of([0.5, 0.2], 0.5).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("margin", [0.02, 0.3, 0.6])
def test_sequential_radius_never_exceeds_the_true_one_too_often(margin):
    """A linear model: x at L2 distance `margin` of the boundary has pA = Phi(margin / sigma) and radius `margin`."""
    sigma, alpha, runs = 0.25, 0.05, 2000
    looks = np.unique(np.geomspace(10, 3000, 30).astype(int))
    rng = np.random.default_rng(4)
    steps = np.diff(np.concatenate([[0], looks]))
    hits = np.cumsum(rng.binomial(steps, norm.cdf(margin / sigma), (runs, len(looks))), axis=1)
    pairs = np.stack([np.broadcast_to(looks, hits.shape), hits]).reshape(2, -1)
    distinct, inverse = np.unique(pairs, axis=1, return_inverse=True)
    result = sequential_radius(distinct[1], distinct[0], sigma=sigma, alpha=alpha)
    low, high = (bound[inverse.ravel()].reshape(hits.shape) for bound in result)
    slack = 3 * np.sqrt(alpha * (1 - alpha) / runs)
    assert (low.max(1) > margin).mean() <= alpha + slack
    assert (high.min(1) < margin).mean() <= alpha + slack


@pytest.mark.parametrize(
    ("sigma", "worst", "low", "best", "nrgc"),
    [("0.25", "cat", 0.209, 0.602, 0.189), ("0.50", "deer", 0.191, None, 0.258)],
)
def test_published_radii_give_the_known_profile(shared_data, sigma, worst, low, best, nrgc):
    rows = np.loadtxt(shared_data / "oracles" / f"rs_cifar10_sigma{sigma}.tsv", skiprows=1)
    names = np.load(shared_data / "cifar10" / "test.npz")["classes"]
    labels, radius = rows[:, 1].astype(int), rows[:, 3] * rows[:, 4]
    means = np.array([radius[labels == k].mean() for k in range(10)])
    assert str(names[means.argmin()]) == worst
    assert means.min() == pytest.approx(low, abs=5e-4)
    assert best is None or means.max() == pytest.approx(best, abs=5e-4)
    assert np.abs(means[:, None] - means[None]).sum() / (2 * 100 * means.mean()) == pytest.approx(nrgc, abs=5e-4)
    assert (rows[rows[:, 2] == -1, 3] == 0).all()
    # The largest radius in the authors' files is the one that 100,000 of 100,000 give at 1 %, not at the paper's 0.1 %.
    assert rows[:, 3].max() == pytest.approx(largest_radius(100_000, sigma=float(sigma), alpha=0.01), abs=5e-3)


def test_bounds_and_radii_to_the_last_digit():
    assert lower_bound([0, 3, 10], [10, 10, 10], 0.05) == pytest.approx(
        [0.0, beta.ppf(0.05, 3, 8), 0.05**0.1], abs=1e-13
    )
    assert lower_bound([0, 5], 5, 0.05).tolist()[0] == 0.0
    assert lower_bound(1, 1, 0.05) == pytest.approx(0.05)
    assert radius_of([0.500001, 1.0], 2.0) == pytest.approx([2 * norm.ppf(0.500001), 2 * norm.ppf(1 - 1e-16)], rel=1e-6)
    assert radius_of(0.5, 2.0) == 0.0 and radius_of(1, 2.0) > 16
    assert probability_at(2, 4.0) == pytest.approx(norm.cdf(0.5))
    assert {radius_of(1, 2.0).dtype, probability_at(2, 4.0).dtype, lower_bound(1, 1, 0.05).dtype} == {np.dtype(float)}
    single = np.float32([0.75, 1.0])
    assert radius_of(single, 2.0) == pytest.approx([2 * norm.ppf(0.75), 16.4], rel=2e-3)
    assert (radius_of(single, 2.0).dtype, probability_at(single, 2.0).dtype) == (np.float64, np.float64)
    assert type(largest_radius(10, sigma=0.5, alpha=0.05)) is float


def test_sequential_radii_are_those_of_the_confidence_sequences():
    hits, draws = [90, 60, 100], [100, 100, 100]
    low, high = sequential_radius(hits, draws, sigma=0.5, alpha=0.05)
    failures = np.array([10, 40, 0])
    assert low == pytest.approx(radius_of(1 - upper_sequence(100, failures, 0.05), 0.5))
    assert high == pytest.approx(radius_of(1 - lower_sequence(100, failures, 0.05), 0.5))
    assert (low[:2] < high[:2]).all() and low[2] > 0
