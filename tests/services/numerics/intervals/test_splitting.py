from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from services.numerics.intervals.splitting import (
    Population,
    RareEvent,
    SplittingPlan,
    as_margins,
    rare_event,
    summarise,
    systematic,
)

DIMENSION = 32


def _estimate(p, seed, plan):
    """A linear margin: u . w > threshold fails, with P = Phi(-threshold)."""
    threshold = -norm.ppf(p)
    w = np.ones(DIMENSION, dtype=np.float32) / np.sqrt(DIMENSION)
    noise = np.random.default_rng([seed, 1])
    return rare_event(
        lambda u: threshold - (u @ w).astype(np.float64),
        lambda count: noise.standard_normal((count, DIMENSION), dtype=np.float32),
        plan,
        np.random.default_rng([seed, 2]),
    )


def _check(p, repeats, budget):
    plan = SplittingPlan()
    results = [_estimate(p, seed, plan) for seed in range(repeats)]
    values = np.array([event.probability for event in results])
    assert abs(values.mean() / p - 1) < 3.5 * values.std() / p / np.sqrt(repeats) + 0.02
    covered = np.mean([event.low <= p <= event.high for event in results])
    assert covered >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / repeats) - 0.02
    assert np.mean([event.relative_sd for event in results]) < 0.45
    assert max(event.passes for event in results) < budget


@pytest.mark.parametrize(("p", "budget"), [(1e-3, 15_000), (1e-6, 30_000)])
def test_unbiased_and_covering_on_a_linear_model(p, budget):
    _check(p, 40, budget)


@pytest.mark.slow
@pytest.mark.parametrize("p", [1e-3, 1e-5, 1e-6])
def test_unbiased_and_covering_over_many_repeats(p):
    _check(p, 400, 30_000)


def test_a_common_failure_is_a_plain_frequency():
    event = _estimate(0.7, 0, SplittingPlan())
    assert event.passes == 64 * 8
    assert event.low <= 0.7 <= event.high


def test_no_failure_region_is_censored_at_the_floor():
    plan = SplittingPlan(floor=1e-5)
    noise = np.random.default_rng(0)
    event = rare_event(
        lambda u: 1.0 + np.exp(-u[:, 0].astype(float)),
        lambda count: noise.standard_normal((count, 4), dtype=np.float32),
        plan,
        np.random.default_rng(1),
    )
    assert (event.probability, event.low, event.high, event.relative_sd) == (None, 0.0, 1e-5, None)


def test_a_margin_that_is_nan_has_failed():
    event = rare_event(
        lambda u: np.full(len(u), np.nan),
        lambda c: np.zeros((c, 2), np.float32),
        SplittingPlan(),
        np.random.default_rng(0),
    )
    assert event.probability == 1.0


def test_summary_of_equal_replicates_is_a_point():
    event = summarise(np.full(5, 1e-4), passes=10, plan=SplittingPlan())
    assert event.probability == pytest.approx(1e-4)
    assert event.low == pytest.approx(1e-4) and event.high == pytest.approx(1e-4)


PLAN = SplittingPlan(particles=8, replicates=3, quantile=0.5, moves=1, floor=1e-3, delta=0.1)


def start(margins, plan=PLAN):
    """A population with given margins (R, N); latents tell replicate and particle."""
    shape = np.shape(margins)
    latents = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=2).astype(np.float32)
    return Population(latents, np.array(margins, dtype=float), plan)


def test_a_population_begins_as_its_plan_says():
    noise = np.random.default_rng(0).standard_normal((24, 5)).astype(np.float32)
    event = Population.start(lambda u: u[:, 0].astype(np.float64), lambda count: noise[:count].copy(), PLAN)
    np.testing.assert_array_equal(event.latents, noise.reshape(3, 8, 5))
    np.testing.assert_array_equal(event.margins, noise[:, 0].reshape(3, 8))
    assert (event.passes, event.plan) == (24, PLAN)
    assert event.log_p.tolist() == [0.0] * 3 and event.active.tolist() == [True] * 3
    assert event.active.dtype == np.bool_
    assert event.level.tolist() == [np.inf] * 3 and event.step.tolist() == [0.5] * 3


def test_a_split_lowers_the_level_to_the_best_that_is_killed():
    """Of eight particles four survive below the fifth smallest margin; ties at the level die with it."""
    plain = np.array([8, 1, 7, 2, 6, 3, 5, 4.0])
    tied = np.array([8, 4, 7, 2, 6, 3, 4, 4.0])
    failed = np.array([8, -1, 7, 0, 6, -3, -5, 0.0])
    event = start([plain, tied, failed])
    assert event.split(np.random.default_rng(0)) is True
    assert event.active.tolist() == [True, True, False]
    assert event.level.tolist() == [5.0, 4.0, np.inf]
    assert np.exp(event.log_p).tolist() == pytest.approx([4 / 8, 2 / 8, 5 / 8])
    assert sorted(event.margins[0]) == [1, 1, 2, 2, 3, 3, 4, 4]
    assert sorted(event.margins[1]) == [2] * 4 + [3] * 4
    np.testing.assert_array_equal(event.margins[2], failed)
    for r, before in ((0, plain), (1, tied)):
        np.testing.assert_array_equal(before[event.latents[r, :, 1].astype(int)], event.margins[r])
    np.testing.assert_allclose(event.estimates(), [0.5, 0.25, 0.625])


def test_replicates_end_at_the_floor_or_without_survivors():
    result = start([[1.0] * 8, [0.8, 0.1, 0.7, 0.2, 0.6, 0.3, 0.5, 0.4], [8, 1, 7, 2, 6, 3, 5, 4.0]])
    result.log_p[1:] = [np.log(2e-3), np.log(2.001e-3)]
    assert result.split(np.random.default_rng(0)) is True
    assert result.estimates().tolist() == pytest.approx([0.0, 0.0, 1.0005e-3])
    assert result.active.tolist() == [False, False, True]
    result.log_p[2] = -20.0
    assert result.split(np.random.default_rng(0)) is False
    assert result.split(np.random.default_rng(0)) is False


def test_a_level_of_exactly_nought_is_the_failure_region():
    event = start([[8, 1, 7, 0, 0, 0, 0, 0.0]] * 3)
    assert event.split(np.random.default_rng(0)) is False
    assert event.estimates().tolist() == pytest.approx([5 / 8] * 3)


def test_a_move_takes_what_stays_below_the_level_and_adapts_its_step():
    result = start(np.tile([1.0, 2.0, 3.0, 4.0], (3, 1)), replace(PLAN, particles=4))
    result.active[:] = [True, False, True]
    result.level[:] = [2.5, 9.0, 0.5]
    result.step[:] = [0.6, 0.5, 0.021]
    before = result.latents.copy()
    requested = []

    def normals(count):
        requested.append(count)
        return np.ones((count, 2), dtype=np.float32)

    offered = np.array([2.0, 2.5, 0.0, 1.0, 0.5, 0.6, 0.7, 0.8])
    observed = []

    def margin(u):
        observed.append(u)
        return offered

    result.move(margin, normals)
    assert requested == [8]
    proposed = np.stack([0.8 * before[0] + 0.6, np.sqrt(1 - 0.021**2) * before[2] + 0.021]).astype(np.float32)
    np.testing.assert_allclose(observed[0], proposed.reshape(8, 2), rtol=1e-6)
    assert observed[0].dtype == result.latents.dtype == np.float32
    taken = np.array([True, False, True, True])
    np.testing.assert_allclose(result.latents[0], np.where(taken[:, None], proposed[0], before[0]), rtol=1e-6)
    np.testing.assert_array_equal(result.latents[1:], before[1:])
    assert result.margins.tolist() == [[2.0, 2.0, 0.0, 1.0], [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]]
    assert result.passes == 12 + 8
    assert result.step.tolist() == pytest.approx([0.6 * np.exp(0.75 - 0.3), 0.5, 0.02])
    result.step[0] = 0.9
    result.move(lambda u: np.zeros(8), normals)
    assert result.step[0] == 0.98


def test_systematic_resamples_are_as_even_as_can_be():
    alive = np.array([3, 5, 6])
    for seed in range(20):
        result = systematic(alive, 8, np.random.default_rng(seed))
        counts = [int((result == k).sum()) for k in alive]
        assert sum(counts) == 8 and set(counts) <= {2, 3}
        rng = np.random.default_rng(seed)
        offset = rng.random()
        order = rng.permutation(alive)
        assert result.tolist() == [order[int((i + offset) * 3 / 8)] for i in range(8)]

    class Edge:
        def random(self):
            return 1.0

        def permutation(self, values):
            return values

    assert systematic(alive, 3, Edge()).tolist() == [5, 6, 6]


def test_a_summary_by_hand():
    """Replicates 0.01, 0.02 and one that ended at the floor of 0.001, which enters the interval as 0.0005."""
    values = np.array([0.01, 0.02, 0.0])
    result = summarise(values, passes=7, plan=PLAN)
    logs = np.log([0.01, 0.02, 0.0005])
    s2, t = logs.var(ddof=1), student.ppf(0.95, 2)
    half = t * np.sqrt(s2 / 3 + s2**2 / 4)
    assert result == RareEvent(
        0.01,
        pytest.approx(np.exp(logs.mean() + s2 / 2 - half)),
        pytest.approx(min(1.0, np.exp(logs.mean() + s2 / 2 + half))),
        pytest.approx(0.01 / np.sqrt(3) / 0.01),
        7,
        (0.01, 0.02, 0.0),
    )
    close = summarise(np.array([0.01, 0.011, 0.012]), passes=7, plan=PLAN)
    logs = np.log([0.01, 0.011, 0.012])
    s2 = logs.var(ddof=1)
    assert close.high == pytest.approx(np.exp(logs.mean() + s2 / 2 + t * np.sqrt(s2 / 3 + s2**2 / 4)))
    assert summarise(np.array([0.9, 0.1]), passes=1, plan=PLAN).high == 1.0
    assert summarise(np.zeros(2), passes=1, plan=PLAN) == RareEvent(None, 0.0, 1e-3, None, 1, (0.0, 0.0))
    kinds = (result.probability, result.low, result.high, result.relative_sd)
    assert {type(part) for part in kinds} == {float} and {type(value) for value in result.replicates} == {float}


def test_margins_of_any_type_are_float64_and_nan_is_the_worst():
    result = as_margins(np.float32([0.5, np.nan]))
    assert result.tolist() == [0.5, -np.inf] and result.dtype == np.float64


def test_survivors_are_rounded_and_at_least_one():
    assert [SplittingPlan(particles=n, quantile=q).survivors for n, q in ((64, 0.5), (10, 0.26), (4, 0.01))] == [
        32,
        3,
        1,
    ]


def test_every_level_is_followed_by_its_moves():
    calls = []
    noise = np.random.default_rng(0)

    def margin(u):
        calls.append(len(u))
        return 2.0 - u[:, 0].astype(np.float64)

    plan = SplittingPlan(particles=16, replicates=2, moves=3)
    event = rare_event(
        margin, lambda n: noise.standard_normal((n, 2), dtype=np.float32), plan, np.random.default_rng(1)
    )
    assert event.passes == sum(calls) and calls[0] == 32 and (len(calls) - 1) % 3 == 0 and len(calls) > 4
