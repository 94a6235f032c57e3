import numpy as np
import pytest
from scipy import stats

from benchmarks.spending import characteristics, critical_values, spending_boundary, walk_step
from services.numerics.intervals.sequential import Boundary, mixture_boundary

LOOKS = (5, 20, 60, 100, 160, 260, 420, 700)


def test_characteristics_agree_with_simulation():
    boundary = mixture_boundary(0.1, 0.05, 300)
    exact = characteristics(boundary, 0.06)
    walks = np.cumsum(np.random.default_rng(3).random((4000, 300)) < 0.06, axis=1)
    verdict = boundary.decide(np.broadcast_to(np.arange(1, 301), walks.shape), walks)
    first = np.where((verdict != 0).any(1), (verdict != 0).argmax(1), 299)
    outcome = verdict[np.arange(4000), first]
    assert (outcome > 0).mean() == pytest.approx(exact.accept, abs=0.03)
    assert (outcome < 0).mean() == pytest.approx(exact.reject, abs=0.02)
    assert (first + 1).mean() == pytest.approx(exact.expected_draws, rel=0.05)
    assert exact.accept + exact.reject + exact.undecided == pytest.approx(1)


@pytest.mark.parametrize("kappa", [0.02, 0.05, 0.2])
@pytest.mark.parametrize(
    "make", [lambda k: mixture_boundary(k, 0.05, 700), lambda k: spending_boundary(k, 0.05, LOOKS)]
)
def test_exact_errors_stay_below_alpha(kappa, make):
    at_kappa = characteristics(make(kappa), kappa)
    assert at_kappa.accept <= 0.05 + 1e-12
    assert at_kappa.reject <= 0.05 + 1e-12


def test_mixtures_need_fewer_draws_than_spending_where_most_samples_lie():
    spending = spending_boundary(0.05, 0.05, tuple(int(n) for n in np.unique(np.geomspace(60, 2000, 20).astype(int))))
    mixture = mixture_boundary(0.05, 0.05, 2000)
    for p in (0.0, 0.005, 0.5, 0.9):
        assert characteristics(mixture, p).expected_draws < characteristics(spending, p).expected_draws


SMALL = Boundary(0.2, 0.1, 4, np.array([3, 5]), np.array([-1, 4]))
"""Accept after three draws without a failure, reject at the first failure."""


def test_characteristics_by_hand():
    error = characteristics(SMALL, 0.25)
    survive = [0.75, 0.75**2, 0.75**3]
    assert error.accept == pytest.approx(survive[2])
    assert error.reject == pytest.approx(1 - survive[2])
    assert error.undecided == 0.0
    assert error.expected_draws == pytest.approx(1 + survive[0] + survive[1])
    late = characteristics(Boundary(0.2, 0.1, 2, np.array([3, 3, 3]), np.array([-1, 0, 2])), 0.25)
    assert (late.accept, late.undecided) == (0.0, pytest.approx(1 - 0.25**2))
    assert (late.reject, late.expected_draws) == (pytest.approx(0.25**2), 2.0)


def test_one_step_of_the_walk():
    assert walk_step(np.array([0.5, 0.25, 0.0]), 0.2).tolist() == pytest.approx([0.4, 0.3, 0.05])


@pytest.mark.parametrize(
    ("kappa", "alpha", "looks"), [(0.2, 0.1, (10, 25, 60)), (0.05, 0.05, (20, 100, 200)), (0.5, 0.3, (4, 9))]
)
def test_spending_takes_the_largest_critical_values_that_the_budget_allows(kappa, alpha, looks):
    boundary = spending_boundary(kappa, alpha, looks)
    assert (boundary.kappa, boundary.alpha, boundary.horizon) == (kappa, alpha, looks[-1])
    size = len(boundary.accept_at)
    for upper in (False, True):
        result, spent, alive = [], 0.0, np.ones(1)
        previous = 0
        for index, look in enumerate(looks):
            alive = np.convolve(alive, stats.binom.pmf(np.arange(look - previous + 1), look - previous, kappa))
            budget, stop = alpha * (index + 1) / len(looks) - spent, []
            order = range(min(len(alive), size) - 1, -1, -1) if upper else range(len(alive))
            for k in order:
                if alive[stop].sum() + alive[k] > budget + 1e-15:
                    break
                stop.append(k)
            spent += alive[stop].sum()
            alive[stop] = 0.0
            result.append(min(stop, default=size) if upper else max(stop, default=-1))
            previous = look
        assert critical_values(kappa, alpha, looks, size, upper=upper).tolist() == result
        for k in range(size):
            if upper:
                expected = max((look for look, c in zip(looks, result, strict=True) if c <= k), default=-1)
                assert boundary.reject_until[k] == expected
            else:
                expected = min((look for look, c in zip(looks, result, strict=True) if c >= k), default=looks[-1] + 1)
                assert boundary.accept_at[k] == expected
    assert boundary.accept_at.dtype == boundary.reject_until.dtype == np.int64
    assert size == int(stats.binom.isf(1e-12, looks[-1], kappa)) + 2


def test_a_budget_that_is_just_spent_is_spent():
    """P(Bin(2, 1/2) = 0) = P(Bin(2, 1/2) = 2) = 1/4, in binary exactly."""
    assert critical_values(0.5, 0.25, (2,), 3).tolist() == [0]
    assert critical_values(0.5, 0.25, (2,), 3, upper=True).tolist() == [2]
