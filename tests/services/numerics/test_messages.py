"""Every message of the numerics, whole: what was expected, what was found, what to do."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from services.errors import MeasureError
from services.numerics.attributes.disentanglement import mutual_information_gap
from services.numerics.attributes.groupfair import class_counts, gaps, group_counts, matrix_counts
from services.numerics.change import changes, decide, worst_change
from services.numerics.checks import as_indices, as_scores, check_bound, check_level, check_temperature, fault
from services.numerics.composite import check_weights, composite, pareto_front
from services.numerics.confusion import chance_p_value, class_order, confusion_matrix
from services.numerics.disparity import disparity
from services.numerics.intervals.means import Intervals, Sample, limits, one_sided, simultaneous
from services.numerics.intervals.metrics import aggregate_interval, not_separated, wcr_interval
from services.numerics.masking import Observations, find_masking
from services.numerics.paired import paired
from services.numerics.ranks import reranking, spearman
from services.numerics.refutation import falsify
from services.numerics.seeds import over_seeds
from services.records import Estimate

NAN, INF = math.nan, math.inf
LEVEL = "expected a number strictly between 0 and 1, found"
ONE, TWO = np.zeros(1, dtype=int), np.zeros(2, dtype=int)
X = np.array([0.25, 0.5])


def of(values: Any, **limits: Any) -> Any:
    """A composite of two metrics."""
    table = np.array(values, dtype=float)
    options = {"low": table, "high": table, "names": "ab", "weights": (1, 1), "lower_is_better": (False, False)}
    return composite(table, **{**options, **limits})


def falsified(**change: Any) -> Any:
    columns = {"scores": X, "distances": X, "correct": X, "censored": X, "labels": TWO}
    return falsify(**{**columns, **change}, classes=1)


def separated(worst: int) -> Any:
    low, defined = np.array([0.1, NAN]), np.array([True, False])
    return not_separated(Intervals(low, low, defined, ~defined, "betting", 0.05, 1.0), worst)


def changed(**change: Any) -> Any:
    options = {"before": X, "after": X, "groups": TWO, "n_groups": 1, "bound": 1.0, "alpha": 0.05}
    return changes(**{**options, **change})


def counted(decisions: Any, groups: Any = TWO) -> Any:
    return group_counts(np.array([0, 1]), np.array(decisions), groups, 1)


def watched(**columns: Any) -> Any:
    return find_masking(Observations(np.ones(2), np.ones(2), **columns))


CASES: list[tuple[Callable[[], Any], str]] = [
    # checks
    (lambda: as_indices(X, 3, 2, "groups"), "groups: expected shape (3,), found shape (2,)"),
    (lambda: as_indices(X, 2, 2, "groups"), "groups: expected integers, found dtype float64"),
    (
        lambda: as_indices(np.array([5, 0, -2, 1, 4]), 5, 4, "groups"),
        "groups: expected integers in [0, 4), found 3 of 5 outside, from -2 to 5",
    ),
    (lambda: as_scores(np.zeros((1, 2)), 1.0), "scores: expected shape (N,), found shape (1, 2)"),
    (
        lambda: as_scores(np.array([0.1, NAN, 3.0, -1.0]), 1.2533141373, "before"),
        "before: expected numbers in [0, 1.25331], found 3 of 4 outside or NaN",
    ),
    (lambda: check_bound(INF), "bound: expected a positive finite number, found inf"),
    (lambda: check_bound(0.0), "bound: expected a positive finite number, found 0.0"),
    (lambda: check_level(0.0, "delta"), f"delta: {LEVEL} 0.0"),
    (lambda: check_level(1.0, "alpha"), f"alpha: {LEVEL} 1.0"),
    (lambda: check_temperature(0.0), "temperature: expected a positive finite number, found 0.0"),
    (lambda: check_temperature(INF), "temperature: expected a positive finite number, found inf"),
    # changes and pairs
    (lambda: changed(alpha=0.0), f"alpha: {LEVEL} 0.0"),
    (lambda: changed(after=X[:1]), "after: expected 2 scores as before, found 1; pair the audits by sample id"),
    (lambda: changed(before=X * 4), "before: expected numbers in [0, 1], found 1 of 2 outside or NaN"),
    (lambda: changed(after=X * 4), "after: expected numbers in [0, 1], found 1 of 2 outside or NaN"),
    (lambda: changed(bound=-1.0), "bound: expected a positive finite number, found -1.0"),
    (lambda: changed(groups=ONE), "groups: expected shape (2,), found shape (1,)"),
    (
        lambda: changed(before=np.array([0.0, 2.5]), bound=2.5, binary=True),
        "after: expected scores that are all 0 or 2.5 for an exact test, found others",
    ),
    (
        lambda: changed(after=np.array([0.0, 1.0]), binary=True),
        "before: expected scores that are all 0 or 1 for an exact test, found others",
    ),
    (lambda: worst_change(X, X, TWO, 1, bound=1.0, alpha=1.0), f"alpha: {LEVEL} 1.0"),
    (lambda: decide([0.1], [0.2], 0.0), f"alpha: {LEVEL} 0.0"),
    (
        lambda: paired(X, X, TWO, 1, bound=1.5, alpha=0.05, margin=1.5),
        "margin: expected a number in [0, 1.5), found 1.5",
    ),
    (
        lambda: paired(X, X, TWO, 1, bound=1.2533141373, alpha=0.05, margin=-1e-9),
        "margin: expected a number in [0, 1.25331), found -1e-09",
    ),
    (lambda: paired(X, X, TWO, 1, bound=1.0, alpha=1.0), f"alpha: {LEVEL} 1.0"),
    (lambda: paired(X, X, ONE, 1, bound=1.0, alpha=0.05), "groups: expected shape (2,), found shape (1,)"),
    # composites
    (lambda: pareto_front(np.zeros((2, 0)), []), "criteria: expected at least one, found none"),
    (lambda: pareto_front(np.zeros((2, 3)), [True]), "values: expected shape (N, 1), found shape (2, 3)"),
    (lambda: check_weights([1.0], 2), "weights: expected 2 numbers, one a metric, found shape (1,)"),
    (lambda: check_weights([1.0, -1.0], 2), "weights: expected finite numbers of at least 0, found [1.0, -1.0]"),
    (lambda: check_weights([1.0, INF], 2), "weights: expected finite numbers of at least 0, found [1.0, inf]"),
    (lambda: check_weights([0.0, 0.0], 2), "weights: expected at least one above 0, found none"),
    (lambda: of([0.0, 1.0]), "values: expected shape (N, 2), found shape (2,)"),
    (lambda: of([[1, 2]], low=np.zeros((1, 3))), "low: expected shape (N, 2), found shape (1, 3)"),
    (lambda: of([[1, 2]], high=np.zeros((1, 3))), "high: expected shape (N, 2), found shape (1, 3)"),
    (lambda: of([[INF, 2]]), "values: expected finite numbers, or NaN where missing, found infinity"),
    (
        lambda: of([[1, 2]], high=np.array([[1, INF]])),
        "high: expected finite numbers, or NaN where missing, found infinity",
    ),
    (lambda: of([[1, 2]], weights=(1, 2, 3)), "weights: expected 2 numbers, one a metric, found shape (3,)"),
    # confusion
    (lambda: class_order(np.zeros(3, int)), "confusion: expected a square matrix of counts, found shape (3,)"),
    (lambda: class_order(np.zeros((2, 3), int)), "confusion: expected a square matrix of counts, found shape (2, 3)"),
    (lambda: class_order(-np.eye(2, dtype=int)), "confusion: expected a square matrix of counts, found shape (2, 2)"),
    (lambda: chance_p_value(5, 3, chance=0.5), "correct: expected a count in [0, 3], found 5"),
    (lambda: chance_p_value(-1, 3, chance=0.5), "correct: expected a count in [0, 3], found -1"),
    (lambda: chance_p_value(1, 3, chance=1.0), f"chance: {LEVEL} 1.0"),
    (lambda: chance_p_value(1, 3, chance=0.0), f"chance: {LEVEL} 0.0"),
    (
        lambda: confusion_matrix(np.array([0, 3]), TWO, 3),
        "labels: expected integers in [0, 3), found 1 of 2 outside, from 0 to 3",
    ),
    (
        lambda: confusion_matrix(TWO, np.array([4, -1]), 3),
        "predicted: expected integers in [0, 3), found 1 of 1 outside, from 4 to 4",
    ),
    # disentanglement and disparity
    *(
        (
            lambda latents=latents: mutual_information_gap(latents, {}),  # type: ignore[misc]
            f"latents: expected finite numbers (N, L) with N >= 1 and L >= 2, found shape {latents.shape}",
        )
        for latents in (np.zeros(4), np.zeros((3, 1)), np.zeros((0, 2)), np.full((3, 2), NAN))
    ),
    (
        lambda: mutual_information_gap(np.zeros((3, 2)), {"age": np.zeros(2)}),
        "factors (age): expected shape (3,), found shape (2,)",
    ),
    (
        lambda: disparity(np.zeros(2), np.ones(3, bool)),
        "means: expected two arrays of shape (K,), found shapes (2,) and (3,)",
    ),
    (
        lambda: disparity(np.zeros((1, 2)), np.ones((1, 2), bool)),
        "means: expected two arrays of shape (K,), found shapes (1, 2) and (1, 2)",
    ),
    *(
        (
            lambda bad=bad: disparity(np.array([0.5, bad]), np.ones(2, bool)),  # type: ignore[misc]
            "means: expected finite numbers of at least 0, found negative or non-finite ones",
        )
        for bad in (-0.1, INF, NAN)
    ),
    (lambda: disparity(X, np.ones(2, bool), penalty=-1.0), "penalty: expected a number of at least 0, found -1.0"),
    (lambda: disparity(X, np.ones(2, bool), penalty=NAN), "penalty: expected a number of at least 0, found nan"),
    # falsification
    (lambda: falsified(scores=[[1.0]]), "scores: expected shape (N,), found shape (1, 1)"),
    (lambda: falsified(scores=[NAN, 1.0]), "scores: expected finite numbers, found 1 others"),
    (lambda: falsified(distances=[1.0]), "distances: expected shape (2,), found shape (1,)"),
    (lambda: falsified(distances=[INF, NAN]), "distances: expected finite numbers, found 2 others"),
    (lambda: falsified(correct=[1.0]), "correct: expected shape (2,), found shape (1,)"),
    (lambda: falsified(correct=[[1.0, 1.0]]), "correct: expected shape (2,), found shape (1, 2)"),
    (lambda: falsified(censored=[1.0]), "censored: expected shape (2,), found shape (1,)"),
    (lambda: falsified(labels=[0, 1]), "labels: expected integers in [0, 1), found 1 of 2 outside, from 0 to 1"),
    (lambda: falsified(delta=0.0), f"delta: {LEVEL} 0.0"),
    # group fairness
    (lambda: counted([0, 2]), "decisions: expected 0 and 1, found 1 other values of 2"),
    (
        lambda: group_counts(np.array([3, 2]), TWO, TWO, 1),
        "truth: expected 0 and 1, found 2 other values of 2",
    ),
    (lambda: counted([0]), "decisions: expected shape (2, 1) as the truth, for 2 samples, found (1, 1)"),
    (lambda: counted([0, 1], ONE), "groups: expected shape (2,), found shape (1,)"),
    (
        lambda: matrix_counts(np.ones((2, 1)), np.ones((2, 1)), np.ones((3, 1))),
        "decisions: expected shape (2, 1) as the truth, for 3 samples, found (2, 1)",
    ),
    (
        lambda: matrix_counts(np.ones((1, 1)), np.ones((1, 1)), np.array([[3]])),
        "attributes: expected shape (N, A) of 0, 1 and -1 for unknown, found shape (1, 1)",
    ),
    (
        lambda: matrix_counts(np.ones((1, 1)), np.ones((1, 1)), np.array([1])),
        "attributes: expected shape (N, A) of 0, 1 and -1 for unknown, found shape (1,)",
    ),
    (
        lambda: matrix_counts(np.full((1, 1), 5), np.ones((1, 1)), np.ones((1, 1))),
        "truth: expected 0 and 1, found 1 other values of 1",
    ),
    (
        lambda: matrix_counts(np.ones((1, 1)), np.full((1, 1), 5), np.ones((1, 1))),
        "decisions: expected 0 and 1, found 1 other values of 1",
    ),
    (
        lambda: class_counts(np.array([0, 2]), TWO, TWO, n_classes=2, n_groups=1),
        "labels: expected integers in [0, 2), found 1 of 2 outside, from 0 to 2",
    ),
    (
        lambda: class_counts(TWO, np.array([0, -2]), TWO, n_classes=2, n_groups=1),
        "predicted: expected integers in [0, 2), found 1 of 2 outside, from -2 to 0",
    ),
    (
        lambda: class_counts(TWO, TWO, np.array([0, 1]), n_classes=2, n_groups=1),
        "groups: expected integers in [0, 1), found 1 of 2 outside, from 0 to 1",
    ),
    (lambda: gaps(counted([0, 1]), delta=1.0), f"delta: {LEVEL} 1.0"),
    # intervals
    (
        lambda: simultaneous(X, TWO, 1, bound=1.0, delta=0.05, binary=True),
        "method: expected scores that are all 0 or the bound for clopper-pearson, found others; use betting",
    ),
    (
        lambda: simultaneous(X, TWO, 1, bound=1.0, delta=0.05, method="wald"),  # type: ignore[arg-type]
        "method: expected one of hoeffding, empirical-bernstein, betting, clopper-pearson, found 'wald'",
    ),
    (
        lambda: one_sided(X, TWO, 1, bound=1.0, alpha=0.05, method="hoeffding", anytime=True),
        "method: expected betting for anytime-valid limits, found 'hoeffding'",
    ),
    (lambda: simultaneous(X, TWO, 1, bound=1.0, delta=1.0), f"delta: {LEVEL} 1.0"),
    (lambda: one_sided(X, TWO, 1, bound=1.0, alpha=0.0), f"alpha: {LEVEL} 0.0"),
    (
        lambda: limits(Sample.of(X, TWO, 1, bound=1.0, seed=0), 1.0, "betting"),
        f"alpha: {LEVEL} 1.0",
    ),
    (lambda: Sample.of(X, TWO, 1, bound=0.0, seed=0), "bound: expected a positive finite number, found 0.0"),
    (lambda: Sample.of(X, ONE, 1, bound=1.0, seed=0), "groups: expected shape (2,), found shape (1,)"),
    # masking
    (lambda: watched(noise=[1.0]), "gradient masking: expected columns of 2 samples, found one of shape (1,)"),
    (lambda: watched(black_box=[1.0]), "gradient masking: expected columns of 2 samples, found one of shape (1,)"),
    (lambda: watched(zero_gradient=[1.0]), "gradient masking: expected columns of 2 samples, found one of shape (1,)"),
    (
        lambda: watched(unbounded=[[1.0, 2]]),
        "gradient masking: expected columns of 2 samples, found one of shape (1, 2)",
    ),
    (
        lambda: find_masking(Observations(np.ones(2), np.ones(3))),
        "gradient masking: expected columns of 2 samples, found one of shape (3,)",
    ),
    # intervals of metrics
    (lambda: separated(1), "worst: expected the index of a group with samples, found 1"),
    (lambda: separated(2), "worst: expected the index of a group with samples, found 2"),
    (lambda: separated(-2), "worst: expected the index of a group with samples, found -2"),
    (lambda: wcr_interval(0.0, X, TWO, 1, bound=1.0, delta=0.0), f"delta: {LEVEL} 0.0"),
    (lambda: aggregate_interval(X, bound=1.0, delta=1.0), f"delta: {LEVEL} 1.0"),
    (lambda: aggregate_interval(X, bound=0.0, delta=0.1), "bound: expected a positive finite number, found 0.0"),
    (
        lambda: aggregate_interval(X, bound=0.3, delta=0.1),
        "scores: expected numbers in [0, 0.3], found 1 of 2 outside or NaN",
    ),
    # ranks and seeds
    (lambda: spearman(X, X[:1]), "spearman: expected two arrays of one length, found shapes (2,) and (1,)"),
    (lambda: spearman(X[None], X[None]), "spearman: expected two arrays of one length, found shapes (1, 2) and (1, 2)"),
    (lambda: spearman(X, X * NAN), "spearman: expected finite numbers, found NaN or infinity"),
    (lambda: spearman(X * INF, X), "spearman: expected finite numbers, found NaN or infinity"),
    (
        lambda: reranking({"score": [1.0, 2.0], "rdi": [1.0]}),
        "metrics: expected one value a model for every metric, found lengths [1, 2]",
    ),
    (lambda: over_seeds([]), "networks: expected at least one, found none"),
    (lambda: over_seeds([Estimate(0.5)], delta=1.0), f"delta: {LEVEL} 1.0"),
]


@pytest.mark.parametrize(("call", "message"), CASES, ids=[message[:60] for _, message in CASES])
def test_the_whole_message(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(MeasureError) as caught:
        call()
    assert str(caught.value) == message


def test_a_fault_has_its_four_parts() -> None:
    (problem,) = fault("where", "expected", "found", "remedy").problems
    assert (problem.where, problem.expected, problem.found, problem.remedy) == ("where", "expected", "found", "remedy")
    assert str(fault("a", "b", "c")) == "a: expected b, found c"
