"""The series of a run as tags: all of them come back, within MLflow's limit, whatever their names look like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from services.records import AuditResult, ModelResult, SeriesResult
from tests.typed import series_of as series
from tracking.leaderboard.model import explained, numbers_of
from tracking.mlflow.layout import child_content
from tracking.mlflow.series_tag import MAX_TAG, TAG, series_of, series_tags

Make = Callable[..., AuditResult]


def renamed(result: SeriesResult, key: str) -> SeriesResult:
    return replace(result, series=series(key, "a title", version=3, definition="d" * 16))


@pytest.fixture
def model(make_audit: Make) -> ModelResult:
    return make_audit(1, 4).models[0]


def test_series_come_back_from_tags_that_fit(model: ModelResult) -> None:
    results = tuple(renamed(model.series[0], f"pgd{steps}/linf-0.03137") for steps in range(1, 201))
    tags = series_tags(replace(model, series=results))
    assert len(tags) > 2 and max(map(len, tags.values())) <= MAX_TAG
    measured = series_of(tags)
    assert measured is not None and [each.series for each in measured] == [result.series for result in results]
    assert [each.lens for each in measured] == [result.series.key for result in results]


def test_a_run_without_them_or_with_damaged_ones_says_nothing(model: ModelResult) -> None:
    tags = series_tags(model)
    assert series_of({}) is None and series_of({**tags, TAG: tags[TAG][:50]}) is None
    assert series_of({TAG: '[{"lens": "a"}]'}) is None and series_of({TAG: "[[1]]"}) is None


def test_a_key_that_looks_like_another_is_what_its_series_says(make_audit: Make) -> None:
    """A third party's series called like a gap, a limit or a metric keeps its own numbers."""
    audit = make_audit(1, 4)
    names = ("ge/mine", "mine_low", "mine/rdi", "pgd/x")
    results = tuple(
        replace(renamed(audit.models[0].series[0], name), series=replace(series("clean"), key=name)) for name in names
    )
    content = child_content(replace(audit, models=(replace(audit.models[0], series=results),)), 0)
    catalogue, metrics, _ = explained(content.tags, content.metrics)
    numbers = numbers_of(catalogue, metrics, {})
    assert all(
        catalogue[f"{name}/aggregate"].series == result.series for name, result in zip(names, results, strict=True)
    )
    assert {f"{name}/{metric}" for name in names for metric in ("aggregate", "wcr")} <= set(numbers)
    assert not catalogue["ge/mine/aggregate"].lower_is_better and catalogue["mine/rdi/rdi"].lower_is_better
