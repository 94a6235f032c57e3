"""The comparison's file and its words."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from services.errors import StorageError
from services.records import AuditResult, Estimate
from tracking.bundle.comparison import (
    Comparison,
    Drift,
    GroupChange,
    ModelChange,
    SeriesChange,
    read_comparison,
    write_comparison,
)
from tracking.mlflow.layout import child_content, parent_content
from tracking.report.comparison_words import comparison_words, rows, summary


def change(index: int, flag: str, by: float) -> GroupChange:
    name = "overall" if index < 0 else f"class {index}"
    return GroupChange(index, name, 10, 0.5, 0.5 + by, Estimate(by, by - 0.1, by + 0.1), 0.00001, flag)  # type: ignore[arg-type]


@pytest.fixture
def found() -> Comparison:
    """Twelve classes worse and one better by one series; another series that was not compared."""
    groups = (*(change(index, "worse", -0.01 * index) for index in range(12)), change(12, "better", 0.2))
    whole = change(-1, "not separated", 0.0)
    series = (
        SeriesChange("clean", "clean accuracy", "", ("exact McNemar",), whole, groups, 12, 1),
        SeriesChange("great", "GREAT", "measured otherwise"),
    )
    drift = (Drift("alias", "m: shop@prod", "version 1", "version 2"), Drift("renamed", "new", "old", "new"))
    models = (ModelChange("<b>m</b>", series),)
    return Comparison("f", "now", "then", "", "", 0.05, 14, 12, 1, 1, models, drift)


def test_a_round_trip(found: Comparison, tmp_path: Path) -> None:
    assert read_comparison(str(tmp_path)) is None
    write_comparison(found, str(tmp_path))
    assert read_comparison(str(tmp_path)) == found
    path = tmp_path / "comparison.json"
    body = json.loads(path.read_text())
    renamed = {"compared_with": "baseline", "compared_started": "baseline_started"}
    path.write_text(json.dumps({renamed.get(key, key): value for key, value in body.items()}))
    assert read_comparison(str(tmp_path)) == found, "by the names of 0.1.0"
    path.write_text(json.dumps({**body, "schema_version": 2}))
    with pytest.raises(StorageError, match="update classwise"):
        read_comparison(str(tmp_path))
    path.write_text("{")
    with pytest.raises(StorageError, match="a comparison of classwise"):
        read_comparison(str(tmp_path))


def test_the_words_are_short_and_count_what_they_leave_out(found: Comparison) -> None:
    words = comparison_words(found)
    assert words[0] == (
        "Since the accepted audit then: 12 worse and 1 better of 14 comparisons; "
        "the chance that any flag is false is at most 5 %."
    )
    assert words[1] == "worse: <b>m</b>, clean, class class 11: 0.500 to 0.390, p < 0.0001"
    assert "and 4 more worse" in words and "not compared: 1 series, measured otherwise" in words
    assert "alias moved: m: shop@prod: version 1, now version 2" in words and "model renamed: old is now new" in words
    assert summary(found) == "12 worse, 1 better of 14 comparisons with then; 1 series not compared"
    assert not [text for text in comparison_words(found, flags=False) if text.startswith(("worse", "better", "and"))]
    nothing = replace(found, comparisons=0, worse=0, better=0, models=(), drift=())
    assert comparison_words(nothing) == ["Since the accepted audit then: nothing could be compared."]


def test_mlflow_gets_counts_of_the_audit_and_of_each_model(found: Comparison, small_audit: AuditResult) -> None:
    name = small_audit.models[0].spec.name
    mine = replace(found, models=(replace(found.models[0], name=name),))
    whole, first, second = (
        parent_content(small_audit, mine).metrics,
        child_content(small_audit, 0, mine).metrics,
        child_content(small_audit, 1, mine).metrics,
    )
    for metrics, counts in ((whole, (12, 1)), (first, (12, 1)), (second, (0, 0))):
        assert (metrics["change/worse"], metrics["change/better"]) == counts
        assert (metrics["change/classes_worse"], metrics["change/classes_better"]) == counts
    assert not any(key.startswith("change/") for key in parent_content(small_audit).metrics)


def test_rows_show_the_worst_first_then_the_wholes(found: Comparison) -> None:
    listed = rows(found, 100)
    assert [row["flag"] for row in listed] == ["worse"] * 12 + ["better", "not separated"]
    assert listed[0]["group"] == "class 11" and listed[-1]["group"] == "overall" and len(rows(found, 3)) == 3
