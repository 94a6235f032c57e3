"""Differences and overlaps against what they are by definition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.dashboard.side_by_side import cautions, class_differences, difference
from services.records import AuditResult
from services.records.estimates import Estimate, GroupScore
from tracking.bundle.classes import GroupRow
from tracking.bundle.overview import overview_of

numbers = st.floats(-5, 5)
intervals = st.tuples(numbers, numbers, numbers).map(sorted)


@given(intervals, intervals)
def test_overlap_is_a_common_point_and_is_symmetric(first: list[float], second: list[float]) -> None:
    before, after = (Estimate(value, low, high) for low, value, high in (first, second))
    result = difference(before, after)
    common = max(first[0], second[0]) <= min(first[2], second[2])
    assert result.overlap is common and difference(after, before).overlap is common
    assert result.change == second[1] - first[1]


@pytest.mark.parametrize(
    "one", [None, Estimate(None, reason="0/0"), Estimate(0.5), Estimate(0.5, 0.4), Estimate(0.5, None, 0.6)]
)
def test_what_is_undefined_or_one_sided_has_no_overlap(one: Estimate | None) -> None:
    other = Estimate(0.7, 0.65, 0.75)
    assert difference(one, other).overlap is None
    known = one is not None and one.value is not None
    assert (difference(one, other).change is not None) is known


def test_classes_are_matched_by_index_and_name_the_largest_loss_first() -> None:
    def row(index: int, name: str, value: float | None) -> GroupRow:
        return GroupRow(GroupScore(index, name, 10, 10, Estimate(value)), False, False)

    before = [row(0, "ant", 0.5), row(1, "bee", 0.5), row(2, "cat", 0.5), row(3, "dog", 0.5)]
    after = [row(0, "ant", 0.6), row(1, "bee", 0.1), row(2, "cow", 0.5), row(3, "dog", None)]
    result = class_differences(before, after)
    assert [each.name for each in result] == ["bee", "ant", "cow", "cat", "dog"]
    assert [each.difference.change for each in result[:2]] == pytest.approx([-0.4, 0.1])
    assert all(each.difference.change is None for each in result[2:])


def test_other_samples_and_other_definitions_are_told(board_audit: Callable[..., AuditResult]) -> None:
    audit = board_audit("20261128T010000Z-0", {"one": ({}, {"clean": 0.9})})
    before = replace(overview_of(audit, 1), content="c")
    after = replace(before, content="other", count=10)
    series = before.models[0].series[0]
    output = cautions(before, after, series, replace(series, title="top-5 accuracy", delta=0.01))
    assert len(output) == 4 and "other samples" in output[0] and "top-5" in output[1] and "0.05, then 0.01" in output[2]
    assert len(cautions(before, before, series, series)) == 1
    assert "did not measure" in cautions(before, before, None, series)[0]


def test_what_no_gate_compares_is_said(board_audit: Callable[..., AuditResult]) -> None:
    audit = overview_of(board_audit("20261128T010000Z-0", {"one": ({}, {"clean": 0.9})}), 1)
    known, series = replace(audit, content="c"), replace(audit.models[0].series[0], version=1, definition="a")
    assert "version of the measure" in cautions(known, known, series, replace(series, version=2))[0]
    assert "other parameters" in cautions(known, known, series, replace(series, definition="b"))[0]
    assert len(cautions(known, known, series, replace(series, definition=""))) == 1, "0.1.0 did not say"
    unknown = replace(audit, content="")
    assert "not known" in cautions(unknown, unknown, series, series)[0]
