import numpy as np
import pytest

from services.numerics.sequential import mixture_boundary
from services.numerics.spending import characteristics, spending_boundary

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
