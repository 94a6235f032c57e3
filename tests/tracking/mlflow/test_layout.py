from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mlflow.utils.validation import _validate_metric_name, _validate_param_name, _validate_tag_name  # noqa: PLC2701

from services.records import AuditResult, Estimate, Outcome
from tracking.bundle.summary import leaderboard
from tracking.bundle.words import interval
from tracking.mlflow.layout import (
    MAX_PARAM,
    MAX_TABLE_ROWS,
    MODELS_TAG,
    child_content,
    parent_content,
    table_rows,
)
from tracking.mlflow.series_tag import MAX_TAG


def test_a_child_carries_aggregates_and_in_a_tag_the_five_worst_classes(gf_audit: AuditResult) -> None:
    content = child_content(gf_audit, 0)
    metrics = content.metrics
    great = gf_audit.models[0].series[0]
    assert metrics["great/rdi"] == great.metric("rdi").value and metrics["great/wcr_low"] == great.wcr.low
    assert {"great/aggregate", "great/nrgc", "great/fp", "clean/aggregate", "undefined"} <= set(metrics)
    weakest = sorted(great.groups, key=lambda group: group.score.value or 0)[:5]
    assert content.tags["classwise.worst.great"] == ", ".join(f"{g.name} {interval(g.score)}" for g in weakest)
    assert weakest[0].name == "cat"


def test_all_models_of_an_audit_have_the_same_metrics(gf_audit: AuditResult) -> None:
    keys = {frozenset(child_content(gf_audit, index).metrics) for index in range(len(gf_audit.models))}
    assert len(keys) == 1
    part, whole = gf_audit.models[:2]
    early = replace(part, series=(replace(part.series[0], measured=120), *part.series[1:]))
    audit = replace(gf_audit, models=(early, whole))
    measured = [child_content(audit, index).metrics["great/measured"] for index in range(2)]
    assert measured == [120, sum(group.n for group in whole.series[0].groups)]


def test_run_names_say_verdict_model_version_and_day(small_audit: AuditResult) -> None:
    models = [
        replace(model, outcome=outcome, spec=replace(model.spec, name=name, uri=uri))
        for model, outcome, name, uri in zip(
            small_audit.models,
            (Outcome.FAIL, Outcome.UNDECIDED, Outcome.PASS),
            ("old", "new", "next"),
            ("mlflow:models:/net/3?source=m-1&content=2", "factory:a:b", "mlflow:models:/net/4"),
            strict=True,
        )
    ]
    audit = replace(small_audit, models=tuple(models), outcome=Outcome.FAIL)
    names = [child_content(audit, index).name for index in range(3)]
    assert names == ["✗ old v3  2026-11-28", "? new  2026-11-28", "✓ next v4  2026-11-28"]
    assert child_content(audit, 0).tags["classwise.registered_model"] == "net/3"
    assert "(#/models/net/versions/3)" in child_content(audit, 0).tags["mlflow.note.content"]
    assert parent_content(audit).name == "✗ 1 of 3 models fails, 1 is undecided, 1 passes  2026-11-28 00:21"
    free = replace(models[2], gates=())
    assert child_content(replace(audit, models=(free,)), 0).name.startswith("– next")


def test_undefined_is_a_tag_and_a_count_and_never_a_number(small_audit: AuditResult) -> None:
    model = small_audit.models[0]
    series = model.series[0]
    groups = (replace(series.groups[0], n=0, score=Estimate(None, reason="no samples")), *series.groups[1:])
    broken = replace(
        series,
        metrics={**series.metrics, "nrgc": Estimate(None, reason="all scores are 0"), "fp": Estimate(float("nan"))},
        groups=groups,
    )
    audit = replace(small_audit, models=(replace(model, series=(broken, *model.series[1:])),))
    content = child_content(audit, 0)
    assert content.metrics["undefined"] == 3
    assert "great/nrgc" not in content.metrics and "great/fp" not in content.metrics
    tag = content.tags["classwise.undefined"]
    assert "great/nrgc: all scores are 0" in tag and "great/class/c000_n00000000_class_number_0: no samples" in tag


def test_mlflow_takes_everything_of_a_hostile_audit(hostile_audit: AuditResult) -> None:
    contents = [parent_content(hostile_audit), *(child_content(hostile_audit, index) for index in range(2))]
    for content in contents:
        for key in content.metrics:
            _validate_metric_name(key)
        for key, value in content.params.items():
            _validate_param_name(key)
            assert len(value) <= MAX_PARAM and "\0" not in value
        for key, value in content.tags.items():
            _validate_tag_name(key)
            assert len(value) <= MAX_TAG and "\0" not in value


def test_long_texts_go_whole_into_artifacts(small_audit: AuditResult) -> None:
    long = replace(small_audit.models[0], reasons=("r" * 9_000,))
    audit = replace(small_audit, models=(long,), config={"gates": ["g" * 7_000], "nested": {"key": {"deep": 3}}})
    parent, child = parent_content(audit), child_content(audit, 0)
    assert parent.params["nested.key.deep"] == "3"
    assert "params/gates.txt" in parent.params["gates"] and "g" * 7_000 in parent.texts["params/gates.txt"]
    assert child.texts["tags/classwise.reasons.txt"] == "r" * 9_000


def test_a_thousand_classes_stay_few_metrics_and_a_bounded_table(make_audit: Callable[..., AuditResult]) -> None:
    audit = make_audit(1, 3_000)
    assert len(child_content(audit, 0).metrics) < 40
    rows = table_rows(audit.models[0])
    assert len(rows) == MAX_TABLE_ROWS
    weakest = min(group.score.value or 0 for group in audit.models[0].series[0].groups)
    assert rows[0]["score"] == weakest


def test_the_leaderboard_has_equal_columns_and_null_for_undefined(gf_audit: AuditResult) -> None:
    first = replace(gf_audit.models[0], series=gf_audit.models[0].series[:1])
    table = leaderboard(replace(gf_audit, models=(first, *gf_audit.models[1:])))
    assert len(table) == 17 and len({tuple(row) for row in table}) == 1
    assert list(table[0])[:4] == ["model", "outcome", "great/aggregate", "great/wcr"]
    assert table[0]["clean/rdi"] is None and table[0]["great/worst"] == "cat"


def test_the_refuted_share_is_a_metric_with_its_limits(attacked_audit: AuditResult) -> None:
    metrics = child_content(attacked_audit, 0).metrics
    assert [metrics[f"great/refuted{side}"] for side in ("", "_low", "_high")] == [0.25, 0.2, 0.31]


def test_the_tags_of_a_model_are_tags_of_its_run(small_audit: AuditResult) -> None:
    model = small_audit.models[0]
    tagged = replace(model, spec=replace(model.spec, tags=(("dataset", "mnist"), ("method", "pgd"))))
    tags = child_content(replace(small_audit, models=(tagged,)), 0).tags
    assert tags["classwise.tag.method"] == "pgd" and tags["classwise.tag.dataset"] == "mnist"


def test_audits_of_the_same_models_on_the_same_samples_say_so(small_audit: AuditResult) -> None:
    def digest_of(audit: AuditResult) -> str:
        return parent_content(audit).tags[MODELS_TAG]

    first = small_audit.models[0]
    again = replace(small_audit, audit_id="later", models=small_audit.models[::-1])
    tagged = replace(first, spec=replace(first.spec, tags=(("method", "ERM"),)))
    assert (
        digest_of(again)
        == digest_of(small_audit)
        == digest_of(replace(small_audit, models=(tagged, *small_audit.models[1:])))
    )
    others = [
        replace(small_audit, models=small_audit.models[1:]),
        replace(small_audit, samples=replace(small_audit.samples, digest="aa")),
        replace(small_audit, models=(replace(first, spec=replace(first.spec, threat_model=None)), *again.models[:2])),
        replace(
            small_audit,
            models=(replace(first, spec=replace(first.spec, tags=(("dataset", "x"),))), *small_audit.models[1:]),
        ),
    ]
    assert len({digest_of(audit) for audit in [small_audit, *others]}) == 5
