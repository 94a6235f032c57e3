"""Faults of the numerics: each names the argument, what was asked of it, and what it was."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks.coverage.joined import one_sided
from services.errors import MeasureError
from services.numerics.arguments import as_indices, as_scores, check_bound, check_level, check_temperature, fault
from services.numerics.attributes.disentanglement import mutual_information_gap
from services.numerics.attributes.groupfair import class_counts, gaps, group_counts, matrix_counts
from services.numerics.change import changes, decide, worst_change
from services.numerics.class_order import class_order
from services.numerics.disparity import disparity
from services.numerics.evidence.adequacy import Sign, SignCount
from services.numerics.evidence.refutation import refute
from services.numerics.evidence.signs import paired_count, rate_count
from services.numerics.intervals.disparity import aggregate_interval, not_separated, weakest_interval
from services.numerics.intervals.means import Intervals, Sample, limits, simultaneous
from services.numerics.paired import mean_difference
from services.numerics.ranking.composite import check_weights, composite, pareto_front
from services.numerics.ranking.ranks import reranking, spearman
from services.numerics.ranking.seeds import over_seeds
from services.records import Estimate

NAN, INF = math.nan, math.inf
ONE, TWO = np.zeros(1, dtype=int), np.zeros(2, dtype=int)
X = np.array([0.25, 0.5])


def of(values: Any, **limits: Any) -> Any:
    """A composite of two metrics."""
    table = np.array(values, dtype=float)
    options = {"low": table, "high": table, "names": "ab", "weights": (1, 1), "lower_is_better": (False, False)}
    return composite(table, **{**options, **limits})


def refuted(**change: Any) -> Any:
    columns = {"scores": X, "distances": X, "correct": X, "censored": X, "labels": TWO}
    return refute(**{**columns, **change}, classes=1)


def separated(worst: int) -> Any:
    low, defined = np.array([0.1, NAN]), np.array([True, False])
    return not_separated(Intervals(low, low, defined, ~defined, "betting", 0.05, 1.0), worst)


def changed(**change: Any) -> Any:
    options = {"before": X, "after": X, "groups": TWO, "n_groups": 1, "bound": 1.0, "alpha": 0.05}
    return changes(**{**options, **change})


def counted(decisions: Any, groups: Any = TWO) -> Any:
    return group_counts(np.array([0, 1]), np.array(decisions), groups, 1)


# A call, the argument at fault, and what the message must hold, apart by " | ".
CASES: list[tuple[Callable[[], Any], str, str]] = [
    # checks
    (lambda: as_indices(X, 3, 2, "groups"), "groups", "(3,) | (2,)"),
    (lambda: as_indices(X, 2, 2, "groups"), "groups", "float64"),
    (
        lambda: as_indices(np.array([5, 0, -2, 1, 4]), 5, 4, "groups"),
        "groups",
        "[0, 4) | 3 | 5 | -2",
    ),
    (lambda: as_scores(np.zeros((1, 2)), 1.0), "scores", "(N,) | (1, 2)"),
    (
        lambda: as_scores(np.array([0.1, NAN, 3.0, -1.0]), 1.2533141373, "before"),
        "before",
        "[0, 1.25331] | 3 | 4 | NaN",
    ),
    (lambda: check_bound(INF), "bound", "inf"),
    (lambda: check_bound(0.0), "bound", "0.0"),
    (lambda: check_level(0.0, "delta"), "delta", "0.0"),
    (lambda: check_level(1.0, "alpha"), "alpha", "1.0"),
    (lambda: check_temperature(0.0), "temperature", "0.0"),
    (lambda: check_temperature(INF), "temperature", "inf"),
    # changes and pairs
    (lambda: changed(alpha=0.0), "alpha", "0.0"),
    (lambda: changed(after=X[:1]), "after", "2 | 1"),
    (lambda: changed(before=X * 4), "before", "[0, 1] | 1 | 2 | NaN"),
    (lambda: changed(after=X * 4), "after", "[0, 1] | 1 | 2 | NaN"),
    (lambda: changed(bound=-1.0), "bound", "-1.0"),
    (lambda: changed(groups=ONE), "groups", "(2,) | (1,)"),
    (
        lambda: changed(before=np.array([0.0, 2.5]), bound=2.5, binary=True),
        "after",
        "2.5",
    ),
    (
        lambda: changed(after=np.array([0.0, 1.0]), binary=True),
        "before",
        "others",
    ),
    (lambda: worst_change(X, X, TWO, 1, bound=1.0, alpha=1.0), "alpha", "1.0"),
    (lambda: decide([0.1], [0.2], 0.0), "alpha", "0.0"),
    (lambda: mean_difference(X, X, bound=1.0, alpha=1.0), "alpha", "1.0"),
    (lambda: mean_difference(X, X[:1], bound=1.0, alpha=0.05), "after", "2 scores | 1"),
    # composites
    (lambda: pareto_front(np.zeros((2, 0)), []), "criteria", "none"),
    (lambda: pareto_front(np.zeros((2, 3)), [True]), "values", "(N, 1) | (2, 3)"),
    (lambda: check_weights([1.0], 2), "weights", "2 | (1,)"),
    (lambda: check_weights([1.0, -1.0], 2), "weights", "[1.0, -1.0]"),
    (lambda: check_weights([1.0, INF], 2), "weights", "[1.0, inf]"),
    (lambda: check_weights([0.0, 0.0], 2), "weights", "none"),
    (lambda: of([0.0, 1.0]), "values", "(N, 2) | (2,)"),
    (lambda: of([[1, 2]], low=np.zeros((1, 3))), "low", "(N, 2) | (1, 3)"),
    (lambda: of([[1, 2]], high=np.zeros((1, 3))), "high", "(N, 2) | (1, 3)"),
    (lambda: of([[INF, 2]]), "values", "NaN | infinity"),
    (
        lambda: of([[1, 2]], high=np.array([[1, INF]])),
        "high",
        "NaN | infinity",
    ),
    (lambda: of([[1, 2]], weights=(1, 2, 3)), "weights", "2 | (3,)"),
    # confusion
    (
        lambda: class_order(np.array([0, 3]), TWO, 3),
        "labels",
        "[0, 3) | 1 | 2 | 0 | 3",
    ),
    (
        lambda: class_order(TWO, np.array([4, -1]), 3),
        "predicted",
        "[0, 3) | 1 | 4",
    ),
    # disentanglement and disparity
    *(
        (
            lambda latents=latents: mutual_information_gap(latents, {}),  # type: ignore[misc]
            "latents",
            f"(N, L) | 2 | {latents.shape}",
        )
        for latents in (np.zeros(4), np.zeros((3, 1)), np.zeros((0, 2)), np.full((3, 2), NAN))
    ),
    (
        lambda: mutual_information_gap(np.zeros((3, 2)), {"age": np.zeros(2)}),
        "factors (age)",
        "(3,) | (2,)",
    ),
    (
        lambda: disparity(np.zeros(2), np.ones(3, bool)),
        "means",
        "(K,) | (2,) | (3,)",
    ),
    (
        lambda: disparity(np.zeros((1, 2)), np.ones((1, 2), bool)),
        "means",
        "(K,) | (1, 2)",
    ),
    *(
        (
            lambda bad=bad: disparity(np.array([0.5, bad]), np.ones(2, bool)),  # type: ignore[misc]
            "means",
            "ones",
        )
        for bad in (-0.1, INF, NAN)
    ),
    (lambda: disparity(X, np.ones(2, bool), penalty=-1.0), "penalty", "-1.0"),
    (lambda: disparity(X, np.ones(2, bool), penalty=NAN), "penalty", "nan"),
    # refutation
    (lambda: refuted(scores=[[1.0]]), "scores", "(N,) | (1, 1)"),
    (lambda: refuted(scores=[NAN, 1.0]), "scores", "1"),
    (lambda: refuted(distances=[1.0]), "distances", "(2,) | (1,)"),
    (lambda: refuted(distances=[INF, NAN]), "distances", "2"),
    (lambda: refuted(correct=[1.0]), "correct", "(2,) | (1,)"),
    (lambda: refuted(correct=[[1.0, 1.0]]), "correct", "(2,) | (1, 2)"),
    (lambda: refuted(censored=[1.0]), "censored", "(2,) | (1,)"),
    (lambda: refuted(labels=[0, 1]), "labels", "[0, 1) | 1 | 2 | 0"),
    (lambda: refuted(delta=0.0), "delta", "0.0"),
    # group fairness
    (lambda: counted([0, 2]), "decisions", "1 | 2"),
    (
        lambda: group_counts(np.array([3, 2]), TWO, TWO, 1),
        "truth",
        "2",
    ),
    (lambda: counted([0]), "decisions", "(2, 1) | 2 | (1, 1)"),
    (lambda: counted([0, 1], ONE), "groups", "(2,) | (1,)"),
    (
        lambda: matrix_counts(np.ones((2, 1)), np.ones((2, 1)), np.ones((3, 1))),
        "decisions",
        "(2, 1) | 3",
    ),
    (
        lambda: matrix_counts(np.ones((1, 1)), np.ones((1, 1)), np.array([[3]])),
        "attributes",
        "(N, A) | -1 | (1, 1)",
    ),
    (
        lambda: matrix_counts(np.ones((1, 1)), np.ones((1, 1)), np.array([1])),
        "attributes",
        "(N, A) | -1 | (1,)",
    ),
    (
        lambda: matrix_counts(np.full((1, 1), 5), np.ones((1, 1)), np.ones((1, 1))),
        "truth",
        "1",
    ),
    (
        lambda: matrix_counts(np.ones((1, 1)), np.full((1, 1), 5), np.ones((1, 1))),
        "decisions",
        "1",
    ),
    (
        lambda: class_counts(np.array([0, 2]), TWO, TWO, n_classes=2, n_groups=1),
        "labels",
        "[0, 2) | 1 | 2 | 0",
    ),
    (
        lambda: class_counts(TWO, np.array([0, -2]), TWO, n_classes=2, n_groups=1),
        "predicted",
        "[0, 2) | 1 | 2 | -2 | 0",
    ),
    (
        lambda: class_counts(TWO, TWO, np.array([0, 1]), n_classes=2, n_groups=1),
        "groups",
        "[0, 1) | 1 | 2 | 0",
    ),
    (lambda: gaps(counted([0, 1]), delta=1.0), "delta", "1.0"),
    # intervals
    (
        lambda: simultaneous(X, TWO, 1, bound=1.0, delta=0.05, binary=True),
        "method",
        "others",
    ),
    (
        lambda: simultaneous(X, TWO, 1, bound=1.0, delta=0.05, method="wald"),  # type: ignore[arg-type]
        "method",
        "'wald'",
    ),
    (
        lambda: one_sided(X, TWO, 1, bound=1.0, alpha=0.05, method="hoeffding", anytime=True),
        "method",
        "'hoeffding'",
    ),
    (lambda: simultaneous(X, TWO, 1, bound=1.0, delta=1.0), "delta", "1.0"),
    (lambda: one_sided(X, TWO, 1, bound=1.0, alpha=0.0), "alpha", "0.0"),
    (
        lambda: limits(Sample.of(X, TWO, 1, bound=1.0, seed=0), 1.0, "betting"),
        "alpha",
        "1.0",
    ),
    (lambda: Sample.of(X, TWO, 1, bound=0.0, seed=0), "bound", "0.0"),
    (lambda: Sample.of(X, ONE, 1, bound=1.0, seed=0), "groups", "(2,) | (1,)"),
    # signs
    (lambda: paired_count(Sign.NOISE, X, X, [1.0]), "attack adequacy, weaker-than-noise", "(2,), (1,)"),
    (lambda: rate_count(Sign.CENSORED, X, [[1.0, 2]]), "attack adequacy, all-censored", "(2,), (1, 2)"),
    (lambda: SignCount(Sign.NOISE, 3, 2), "weaker-than-noise", "add up | 3 against and 0"),
    # intervals of metrics
    (lambda: separated(1), "worst", "1"),
    (lambda: separated(2), "worst", "2"),
    (lambda: separated(-2), "worst", "-2"),
    (lambda: weakest_interval(0.0, X, TWO, 1, bound=1.0, delta=0.0), "delta", "0.0"),
    (lambda: aggregate_interval(X, bound=1.0, delta=1.0), "delta", "1.0"),
    (lambda: aggregate_interval(X, bound=0.0, delta=0.1), "bound", "0.0"),
    (
        lambda: aggregate_interval(X, bound=0.3, delta=0.1),
        "scores",
        "[0, 0.3] | 1 | 2 | NaN",
    ),
    # ranks and seeds
    (lambda: spearman(X, X[:1]), "spearman", "(2,) | (1,)"),
    (lambda: spearman(X[None], X[None]), "spearman", "(1, 2)"),
    (lambda: spearman(X, X * NAN), "spearman", "NaN | infinity"),
    (lambda: spearman(X * INF, X), "spearman", "NaN | infinity"),
    (
        lambda: reranking({"score": [1.0, 2.0], "rdi": [1.0]}, lower_is_better=()),
        "metrics",
        "[1, 2]",
    ),
    (lambda: over_seeds([]), "networks", "none"),
    (lambda: over_seeds([Estimate(0.5)], delta=1.0), "delta", "1.0"),
]


@pytest.mark.parametrize(("call", "where", "facts"), CASES, ids=[f"{where}: {facts}" for _, where, facts in CASES])
def test_a_fault_names_the_argument_and_what_it_was(call: Callable[[], Any], where: str, facts: str) -> None:
    with pytest.raises(MeasureError) as caught:
        call()
    (problem,) = caught.value.problems
    assert problem.where == where
    assert [fact for fact in facts.split(" | ") if fact not in str(caught.value)] == []


def test_a_fault_has_its_four_parts() -> None:
    (problem,) = fault("where", "expected", "found", "remedy").problems
    assert (problem.where, problem.expected, problem.found, problem.remedy) == ("where", "expected", "found", "remedy")
    assert str(fault("a", "b", "c")) == "a: expected b, found c"
