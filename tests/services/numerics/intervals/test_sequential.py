import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate
from scipy.special import beta, betainc

from benchmarks.coverage.joined import confidence_sequence
from services.numerics.intervals.sequential import (
    Boundary,
    last_true,
    log_evidence_above,
    log_evidence_below,
    lower_sequence,
    mixture_boundary,
    upper_sequence,
)

RUNS = 4000


def _within(rate, level, runs):
    """At most the level, up to three Monte-Carlo standard errors."""
    return rate <= level + 3 * np.sqrt(level * (1 - level) / runs)


def _walks(p, draws, runs, seed):
    rng = np.random.default_rng(seed)
    return np.cumsum(rng.random((runs, draws)) < p, axis=1)


def _at_pairs(bounds, looks, walks):
    """Bounds at every look of every run, each distinct (draws, failures) computed once."""
    pairs = np.stack([np.broadcast_to(looks, walks.shape), walks]).reshape(2, -1)
    distinct, inverse = np.unique(pairs, axis=1, return_inverse=True)
    return [bound[inverse.ravel()].reshape(walks.shape) for bound in bounds(*distinct)]


@pytest.mark.parametrize(("n", "k", "kappa"), [(10, 0, 0.05), (60, 2, 0.05), (30, 9, 0.1), (5, 5, 0.2), (200, 1, 0.01)])
def test_evidence_is_the_mixture_likelihood_ratio(n, k, kappa):
    def ratio(q):
        return np.exp(k * np.log(q / kappa) + (n - k) * np.log((1 - q) / (1 - kappa)))

    below = integrate.quad(lambda t: ratio(t * t) / np.sqrt(kappa), 0, np.sqrt(kappa))[0]
    assert np.exp(log_evidence_below(n, k, kappa)) == pytest.approx(below, rel=1e-6)
    norm = 4 * (1 - kappa**0.25) / 4
    above = integrate.quad(lambda t: ratio(t**4) / norm, kappa**0.25, 1, limit=200)[0]
    assert np.exp(log_evidence_above(n, k, kappa)) == pytest.approx(above, rel=1e-6)


@pytest.mark.parametrize("kappa", [0.05, 0.2])
def test_each_error_is_at_most_alpha_when_monitored_after_every_draw(kappa):
    walks = _walks(kappa, 1500, RUNS, 11)
    n = np.arange(1, 1501)
    verdict = mixture_boundary(kappa, 0.05, 1500).decide(np.broadcast_to(n, walks.shape), walks)
    assert _within((verdict > 0).any(1).mean(), 0.05, RUNS)
    assert _within((verdict < 0).any(1).mean(), 0.05, RUNS)
    assert (verdict > 0).any(1).mean() > 0.02


@settings(max_examples=25, deadline=None)
@given(kappa=st.floats(0.005, 0.4), alpha=st.sampled_from([0.001, 0.05, 0.2]), horizon=st.integers(5, 400))
@pytest.mark.long
def test_boundary_is_where_the_evidence_crosses(kappa, alpha, horizon):
    boundary = mixture_boundary(kappa, alpha, horizon)
    n, k = np.meshgrid(np.arange(1, horizon + 1), np.arange(len(boundary.accept_at)), indexing="ij")
    n, k = n[k <= n], k[k <= n]
    bar = -np.log(alpha)
    accept, reject = log_evidence_below(n, k, kappa) >= bar, log_evidence_above(n, k, kappa) >= bar
    assert np.array_equal(boundary.decide(n, k), np.where(accept, 1, np.where(reject, -1, 0)))
    assert not (accept & reject).any()


@settings(max_examples=40, deadline=None)
@given(n=st.integers(0, 5000), share=st.floats(0, 1))
def test_next_block_never_passes_the_earliest_certificate(n, share):
    boundary = mixture_boundary(0.05, 0.05, 5001)
    k = min(int(share * n), len(boundary.accept_at) - 1)
    block = int(boundary.next_block(np.array([n]), np.array([k]))[0])
    assert 1 <= block <= 5001 - n
    inside = np.arange(1, block)
    assert not (boundary.decide(n + inside, np.full(len(inside), k)) > 0).any() or boundary.accept_at[k] <= n


@pytest.mark.parametrize("p", [0.0, 0.01, 0.3, 0.97])
def test_confidence_sequence_covers_at_all_times_at_once(p):
    looks = np.unique(np.geomspace(1, 2000, 40).astype(int))
    walks = _walks(p, 2000, 2000, 5)[:, looks - 1]
    low, high = _at_pairs(lambda n, k: confidence_sequence(n, k, 0.1), looks, walks)
    missed = ((low > p) | (high < p)).any(1).mean()
    assert _within(missed, 0.1, 2000)
    assert _within((high < p).any(1).mean(), 0.05, 2000)


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 10**6), share=st.floats(0, 1), alpha=st.sampled_from([0.001, 0.05, 0.3]))
def test_sequence_is_ordered_mirrored_and_inverts_the_test(n, share, alpha):
    k = round(share * n)
    upper, lower = float(upper_sequence(n, k, alpha)), float(lower_sequence(n, k, alpha))
    assert 0 <= lower <= k / n <= upper <= 1
    assert lower == pytest.approx(1 - float(upper_sequence(n, n - k, alpha)), abs=1e-15)
    assert float(upper_sequence(n, k, alpha / 2)) >= upper
    for factor, rejected in ((1.02, True), (0.98, False)):
        kappa = k / n + (upper - k / n) * factor
        if k / n < kappa < 1 and upper < 1:
            assert bool(log_evidence_below(n, k, kappa) >= -np.log(alpha)) is rejected


def test_without_draws_nothing_is_known():
    assert upper_sequence(0, 0, 0.05) == 1.0
    assert lower_sequence(0, 0, 0.05) == 0.0


def test_zero_failures_need_little_more_than_one_fixed_look():
    assert mixture_boundary(0.01, 0.05, 10_000).accept_at[0] < 1.3 * 299
    assert mixture_boundary(1e-4, 0.05, 100_000).accept_at[0] < 1.3 * 29_956


def test_evidence_with_other_priors_and_without_draws():
    """int_0^kappa q^(a-1) ... with a given prior a; without draws the evidence is 1."""

    def ratio(q, n, k, kappa):
        return np.exp(k * np.log(q / kappa) + (n - k) * np.log((1 - q) / (1 - kappa)))

    for prior in (0.3, 1.5):
        below = integrate.quad(lambda q, a=prior: a * q ** (a - 1) / 0.2**a * ratio(q, 20, 3, 0.2), 0, 0.2)[0]
        assert np.exp(log_evidence_below(20, 3, 0.2, prior=prior)) == pytest.approx(below, rel=1e-6)
        above = integrate.quad(lambda q, a=prior: a * q ** (a - 1) / (1 - 0.2**a) * ratio(q, 20, 3, 0.2), 0.2, 1)[0]
        assert np.exp(log_evidence_above(20, 3, 0.2, prior=prior)) == pytest.approx(above, rel=1e-6)
    assert log_evidence_below(20, 3, 0.2) == log_evidence_below(20, 3, 0.2, prior=0.5)
    assert log_evidence_above(20, 3, 0.2) == log_evidence_above(20, 3, 0.2, prior=0.25)
    assert (log_evidence_below(0, 0, 0.2), log_evidence_above(0, 0, 0.2)) == (pytest.approx(0), pytest.approx(0))


def test_evidence_broadcasts_and_is_minus_infinity_where_there_is_none():
    n, k = np.array([[10], [20]]), np.array([1, 2, 3])
    for evidence in (log_evidence_below, log_evidence_above):
        table = evidence(n, k, 0.3)
        assert table.shape == (2, 3) and table.dtype == np.float64
        assert table[1, 2] == pytest.approx(float(evidence(20, 3, 0.3)))
    assert log_evidence_below(5000, 5000, 1e-4) == -np.inf
    assert log_evidence_above(10**6, 0, 0.5) == -np.inf


def test_sequences_by_hand():
    """With k = 0 the evidence is B(1/2, n + 1) I_kappa(1/2, n + 1) / (2 sqrt(kappa) (1 - kappa)^n)."""
    upper = float(upper_sequence(30, 0, 0.05))
    evidence = 0.5 * beta(0.5, 31) * betainc(0.5, 31, upper) / np.sqrt(upper) / (1 - upper) ** 30
    assert evidence == pytest.approx(20, rel=1e-9)
    result = upper_sequence([0, 10, 10, 10], [0, 10, 3, 0], 0.05)
    assert result.shape == (4,) and result[:2].tolist() == [1.0, 1.0] and (result[2:] < 1).all()
    assert lower_sequence([10, 10], [10, 0], 0.05).tolist() == [1 - upper_sequence(10, 0, 0.05), 0.0]
    low, high = confidence_sequence(40, 7, 0.1)
    assert (low, high) == (lower_sequence(40, 7, 0.05), upper_sequence(40, 7, 0.05))
    assert upper_sequence(1, 0, 0.9) < 1.0 and upper_sequence(1, 0, 0.001) > 0.999
    whole = upper_sequence(np.array([[10], [20]]), 2, 0.05)
    assert whole.shape == (2, 1) and whole[1, 0] == upper_sequence(20, 2, 0.05)


@pytest.mark.parametrize(
    ("kappa", "alpha", "horizon"), [(0.2, 0.1, 40), (0.05, 0.05, 300), (0.01, 0.01, 3), (0.4, 0.2, 100)]
)
def test_a_boundary_is_the_one_of_a_loop_over_all_draws(kappa, alpha, horizon):
    result = mixture_boundary(kappa, alpha, horizon)
    bar = -np.log(alpha)
    assert (result.kappa, result.alpha, result.horizon) == (kappa, alpha, horizon)
    for k, (accept_at, reject_until) in enumerate(zip(result.accept_at, result.reject_until, strict=True)):
        draws = range(k, horizon + 1)
        accepts = [n for n in draws if log_evidence_below(n, k, kappa) >= bar]
        rejects = [n for n in draws if log_evidence_above(n, k, kappa) >= bar]
        assert accept_at == max(1, min(accepts, default=horizon + 1))
        assert reject_until == max(rejects, default=k - 1)
    assert (result.reject_until[:-1] < horizon).all()
    assert result.reject_until[-1] >= horizon or len(result.accept_at) > horizon
    assert result.accept_at.dtype == result.reject_until.dtype == np.int64


def test_a_boundary_is_made_once():
    assert mixture_boundary(0.2, 0.1, 40) is mixture_boundary(0.2, 0.1, 40)


BOUNDARY = Boundary(0.2, 0.1, 30, np.array([9, 14, 21, 31]), np.array([-1, 0, 2, 30]))


def test_verdicts_by_hand():
    draws, failures = np.array([8, 9, 13, 14, 2, 3, 30, 30]), np.array([0, 0, 1, 1, 2, 2, 3, 7])
    result = BOUNDARY.decide(draws, failures)
    assert result.tolist() == [0, 1, 0, 1, -1, 0, -1, -1] and result.dtype == np.int8


def test_the_quickest_verdict():
    assert BOUNDARY.quickest == 2
    early = Boundary(0.2, 0.1, 30, np.array([1, 14]), np.array([-1, 30]))
    assert early.quickest == 1
    never = Boundary(0.2, 0.1, 30, np.array([9, 14]), np.array([-1, 0]))
    assert never.quickest == 9


def test_blocks_by_hand():
    """Double, at least the quickest verdict, not past the earliest acceptance nor the horizon, at least 1."""
    draws, failures = np.array([0, 2, 4, 6, 9, 18, 28, 30, 20]), np.array([0, 0, 1, 1, 1, 2, 3, 3, 9])
    result = BOUNDARY.next_block(draws, failures)
    assert result.tolist() == [2, 2, 4, 6, 5, 3, 2, 1, 10] and result.dtype == np.int64


def test_the_last_number_at_which_a_condition_holds():
    first, until = np.arange(4), np.array([7, 0, 9, 3])
    assert last_true(lambda n: n <= until, first, 9).tolist() == [7, 0, 9, 3]
    assert last_true(lambda n: n < first, first, 9).tolist() == [-1, 0, 1, 2]
    assert last_true(lambda n: n >= 0, first, 9).tolist() == [9] * 4
