"""The simulation of coverage: a short run of all of it, and that it would notice a promise that is broken."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.coverage import changes, judge, means, metrics, monitored
from benchmarks.coverage.__main__ import PARTS
from benchmarks.coverage.data import BOUND, CLASSES, LEVELS, SHAPES, stacked
from benchmarks.coverage.joined import one_sided
from benchmarks.coverage.judge import Cell, broken, cell, table
from benchmarks.spending import characteristics
from services.numerics.change import changes as compared
from services.numerics.change import worst_change
from services.numerics.intervals.disparity import weakest_interval
from services.numerics.intervals.means import simultaneous
from services.numerics.intervals.sequential import mixture_boundary


@pytest.mark.parametrize("part", [*PARTS])
@pytest.mark.long
def test_every_promise_is_kept_in_a_short_run(part: str) -> None:
    items = list(PARTS[part](20))
    assert {each.level for each in items} >= set(LEVELS)
    assert not broken(items)


def test_a_limit_at_four_times_its_level_is_blamed() -> None:
    rng = np.random.default_rng(0)
    coins = (rng.random((2000, 20)) < 0.3).astype(float)
    limits = one_sided(
        coins.ravel(), np.repeat(np.arange(2000), 20), 2000, bound=1.0, alpha=0.2, method="clopper-pearson"
    )
    (wrong,) = broken(
        [cell("too tight", "n = 20", 0.05, limits.low > 0.3), cell("right", "n = 20", 0.2, limits.low > 0.3)]
    )
    assert wrong.promise == "too tight" and wrong.rate > 0.09
    assert not broken([Cell("too tight", "", 0.05, wrong.misses, wrong.runs, exact=False), Cell("", "", 0.1, 0, 10)])


def test_the_error_of_the_simulation_alone_is_not_blamed() -> None:
    """Exactly as many misses as promised, in many settings: the binomial's own spread stays within the margin."""
    rng = np.random.default_rng(1)
    assert not broken([Cell("", "", 0.05, int(k), 2000) for k in rng.binomial(2000, 0.05, 3000)])


@pytest.mark.parametrize("method", ["betting", "empirical-bernstein", "hoeffding"])
def test_data_sets_side_by_side_get_the_limits_that_each_gets_alone(method: metrics.Method) -> None:
    classes, runs, delta = CLASSES[1], 4, 0.1
    scores = BOUND * classes.draw(np.random.default_rng(2), runs)
    groups, size = stacked(classes.labels, 5, runs), len(classes.sizes)
    joint, own, most = (
        metrics.Box.of(scores.ravel(), groups, runs, alpha, method)
        for alpha in (delta / (2 * size), delta, delta / size)
    )
    for run, row in enumerate(scores):
        box = simultaneous(row, classes.labels, size, bound=BOUND, delta=delta, method=method)
        assert np.allclose(box.low, joint.low[run], atol=1e-9) and np.allclose(box.high, joint.high[run], atol=1e-9)
        least = min(row[classes.labels == k].mean() for k in range(size))
        wcr = weakest_interval(least, row, classes.labels, size, bound=BOUND, delta=delta, method=method)
        assert wcr.low == pytest.approx(own.low[run].min(), abs=1e-9)
        assert wcr.high == pytest.approx(max(least, most.high[run].min()), abs=1e-9)


def test_pairs_side_by_side_get_the_limits_that_each_gets_alone() -> None:
    runs, labels = 3, np.repeat([0, 1], (4, 9))
    before, after = changes.KINDS[5].draw(np.random.default_rng(4), (2, runs, labels.size))[0]
    groups = stacked(labels, 2, runs)
    low = compared(before.ravel(), after.ravel(), groups, 2 * runs, bound=1.0, alpha=0.1).low.reshape(runs, 2)
    high = compared(before.ravel(), after.ravel(), groups, 2 * runs, bound=1.0, alpha=0.05).high.reshape(runs, 2)
    for run in range(runs):
        change = worst_change(before[run], after[run], labels, 2, bound=1.0, alpha=0.1)
        assert (change.low, change.high) == pytest.approx((low[run].min(), high[run].min()), abs=1e-9)


def test_shapes_have_the_means_they_say() -> None:
    for shape in SHAPES:
        drawn = shape.draw(np.random.default_rng(5), 200_000)
        assert drawn.mean() == pytest.approx(shape.mean, abs=0.005)
        assert drawn.min() >= 0.0 and drawn.max() <= 1.0
        assert shape.binary == bool(np.isin(drawn, (0.0, 1.0)).all())
    for kind in (*changes.KINDS, changes.FALLS):
        before, after = kind.draw(np.random.default_rng(6), (200_000,))
        assert (after - before).mean() == pytest.approx(kind.difference, abs=0.01)
        assert kind.chance.sum() == pytest.approx(1.0)
    assert changes.FALLS.difference == pytest.approx(-0.1)
    assert [kind.difference for kind in changes.KINDS] == pytest.approx([0.0] * len(changes.KINDS))


def test_sizes_by_simulation_are_those_of_the_walk() -> None:
    boundary = mixture_boundary(0.2, 0.2, 500)
    exact = characteristics(boundary, 0.2)
    below, above = monitored.of_boundary("verdict", boundary, 4000, np.random.default_rng(7))
    assert below.rate == pytest.approx(exact.accept, abs=0.025)
    assert above.rate == pytest.approx(exact.reject, abs=0.025)
    assert max(exact.accept, exact.reject) <= 0.2


def test_the_exact_sizes_blame_a_boundary_that_is_too_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not monitored.broken_sizes((0.2,))

    def eager(kappa: float, alpha: float, most: int) -> monitored.Boundary:
        return replace(mixture_boundary(kappa, 4 * alpha, most), alpha=alpha)

    monkeypatch.setattr(monitored, "mixture_boundary", eager)
    assert len(monitored.broken_sizes((0.2,))) >= 2


def test_the_fixed_test_needs_the_draws_known_from_the_books() -> None:
    assert monitored.fixed_draws(0.01, 0.0, 0.05, 0.95) == 299
    n = monitored.fixed_draws(0.2, 0.4, 0.05, 0.95)
    critical = next(k for k in range(n + 1) if judge.binom.sf(k - 1, n, 0.2) <= 0.05)
    assert judge.binom.sf(critical - 1, n, 0.4) >= 0.95
    assert judge.binom.sf(critical - 2, n, 0.2) > 0.05


def test_a_bet_is_won_at_the_first_look_whose_bound_clears_the_null() -> None:
    values = (np.random.default_rng(8).random((6, 120)) < 0.95).astype(float)
    stop = monitored.first_rejection(values, 0.8, 0.05, 1)
    for row, first in zip(values, stop, strict=True):
        limits = [_lower(row[:n]) for n in range(1, 121)]
        assert first == next((n for n, low in enumerate(limits, 1) if low > 0.8), 121)


def _lower(row: np.ndarray) -> float:
    zeros = np.zeros(row.size, dtype=int)
    limits = one_sided(row, zeros, 1, bound=1.0, alpha=0.05, method="betting", seed=None, anytime=True)
    return float(limits.low[0])


def test_the_table_tells_the_worst_setting_of_each_promise() -> None:
    lines = table([Cell("p", "easy", 0.05, 1, 100), Cell("p", "hard", 0.05, 7, 100), Cell("q", "easy", 0.05, 0, 50)])
    head, _, p, q = lines.splitlines()
    assert "5 % promised" in head
    assert "| p | 2 | 100 | 7.00 (2.86 to 13.9) | hard |" in p
    assert "| q | 1 | 50 | 0.00 (0.00 to 7.11) | – |" in q


@pytest.mark.long
def test_means_cover_small_and_large_samples_by_all_methods() -> None:
    items = list(means.cells(2))
    assert {each.promise.rpartition(", ")[2] for each in items} >= set(means.METHODS)
    assert any("n = 1," in each.setting for each in items) and any("all 0" in each.setting for each in items)
