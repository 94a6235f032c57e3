"""Series and groupings at their edges: conditional scores without correct samples, or without knowing which are."""

from __future__ import annotations

import numpy as np
import pytest

from jobs.audit.judging.assemble import Grouping, series_result
from jobs.fleetfile.reading import validate_fleet
from jobs.fleetfile.tree import FleetConfig
from services.errors import MeasureError
from services.numerics.intervals.disparity import weakest_interval
from tests.typed import series_of

PR = series_of("pr/x", "PR", 1.0, conditional=True)
GROUPING = Grouping("class", np.array([0, 0, 1, 1]), ("a", "b", "c"))
VALUES = np.array([0.0, 0.0, 0.5, 1.0])


def config(**samples: int) -> FleetConfig:
    model = {"name": "m", "uri": "factory:a:b"}
    return validate_fleet({"fleet": "f", "models": [model], "samples": {"uri": "npz:x", **samples}}).config


def test_a_conditional_series_counts_the_correct_samples_and_keeps_both_counts() -> None:
    series = series_result(PR, VALUES, {"correct": np.array([0, 0, 1, 1])}, GROUPING, config())
    assert [(row.n, row.n_all, row.score.value) for row in series.groups] == [(0, 2, None), (2, 2, 0.75), (0, 0, None)]
    assert [row.score.reason for row in series.groups if not row.n] == ["no correctly classified samples", "no samples"]
    assert series.missing == ("a", "c")
    assert series.extras["accuracy_weighted"] == pytest.approx(0.375)


def test_a_model_that_is_never_right_has_no_conditional_score() -> None:
    series = series_result(PR, VALUES, {"correct": np.zeros(4)}, GROUPING, config())
    assert (series.aggregate.value, series.wcr.value, series.metric("rdi").value) == (None, None, None)
    assert series.aggregate.reason == "no correctly classified samples"


def test_a_measure_that_does_not_say_which_samples_are_correct_is_told_so() -> None:
    with pytest.raises(MeasureError, match=r"pr/x \(conditional\): expected a column `correct` beside it, found draws"):
        series_result(PR, VALUES, {"draws": VALUES}, GROUPING, config())


@pytest.mark.parametrize(
    ("grouping", "samples", "method"),
    [
        ("class", {"per_class": 2}, "betting"),
        ("class*ink", {"limit": 4}, "betting"),
        ("ink", {"per_class": 2}, "empirical-bernstein"),
        ("ink", {"limit": 4}, "empirical-bernstein"),
        ("ink", {}, "betting"),
    ],
)
def test_betting_asks_for_one_mean_which_groups_of_fixed_classes_lack(
    grouping: str, samples: dict[str, int], method: str
) -> None:
    first = Grouping(grouping, GROUPING.codes, GROUPING.names)
    score = series_of("great", "GREAT", 1.0)
    assert series_result(score, VALUES, {}, first, config(**samples)).method == method
    binary = series_of("clean", "clean accuracy", 1.0, binary=True)
    assert series_result(binary, np.round(VALUES), {}, first, config(**samples)).method == "clopper-pearson"


@pytest.mark.parametrize(
    ("grouping", "samples", "mixed"),
    [("class", {"per_class": 2}, False), ("ink", {"per_class": 2}, True), ("ink", {}, False)],
)
def test_the_exact_bound_of_the_worst_group_allows_for_classes_of_fixed_sizes(
    grouping: str, samples: dict[str, int], mixed: bool
) -> None:
    first = Grouping(grouping, GROUPING.codes, GROUPING.names)
    scores = np.ones(4)
    series = series_result(series_of("clean", "clean accuracy", 1.0, binary=True), scores, {}, first, config(**samples))
    expected = weakest_interval(1.0, scores, GROUPING.codes, 3, bound=1.0, delta=0.05, binary=True, mixed=mixed)
    assert series.wcr == expected
    assert (series.wcr.low < 0.05**0.5 - 1e-4) == mixed
