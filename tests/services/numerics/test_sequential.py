import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate

from services.numerics.sequential import (
    confidence_sequence,
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
