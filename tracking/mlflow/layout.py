"""What an audit looks like in MLflow, as plain values: no server, no file.

The experiment is the fleet, the parent run one audit, a child run one model in it. Metrics are aggregates, the same in
every run, so that runs can be compared; the five worst classes, which differ, are tags, and the whole table is an
artifact. Runs are named by verdict, model, version and day. An undefined number is
never logged as a number: its name and reason stand in the tag ``classwise.undefined`` and are counted in the metric
``undefined``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from services.records import AuditResult, ModelResult, Outcome, SeriesResult, ThreatModel, digest_of
from tracking.bundle.comparison import Comparison
from tracking.bundle.fairness import attribute_metrics
from tracking.bundle.group_table import finite, rows
from tracking.bundle.headline import tested_claims
from tracking.bundle.reasons.why import why_words
from tracking.bundle.summary import bounds, lens, series_metrics, shown_metrics, worst_first
from tracking.bundle.words import advice_words, interval, verdict_words
from tracking.mlflow.series_tag import MAX_TAG, series_tags
from tracking.names import group_key, metric_key, series_key, shorten, unique_name

MODEL_TAG = "classwise.tag."
"""Prefix of the tags that the fleet file gives a model; the leaderboard filters by them."""

MODELS_TAG = "classwise.models"
"""On an audit: a digest of its models and samples. Of two audits with the same one the newer has everything."""

SECONDS_PER_EPOCH = "seconds_per_epoch"
"""Fact of a model that a sweep trained, and last part of its metric."""

MAX_PARAM = 6_000
WORST_CLASSES = 5
MAX_TABLE_ROWS = 2_000
"""Rows of the MLflow table artifact, which the browser loads whole; the Parquet file beside it holds all."""


@dataclass(frozen=True)
class RunContent:
    """What one run gets: parameters, metrics and tags as given, and texts too long for MLflow as artifacts."""

    name: str
    params: dict[str, str]
    metrics: dict[str, float]
    tags: dict[str, str]
    texts: dict[str, str] = field(default_factory=dict)


def child_content(audit: AuditResult, index: int, comparison: Comparison | None = None) -> RunContent:
    """The child run of one model."""
    model = audit.models[index]
    undefined = list(undefined_of(model))
    partly = {lens(result) for other in audit.models for result in other.series if result.measured is not None}
    metrics = {key: value for result in model.series for key, value in _metrics(result).items()}
    for result in model.series:
        if lens(result) in partly:
            measured = sum(group.n for group in result.groups) if result.measured is None else result.measured
            metrics[metric_key(lens(result), "measured")] = float(measured)
    for tested in tested_claims(model.refuted, model.attacks):
        metrics |= bounds(metric_key(series_key(tested.series, tested.grouping), "refuted"), tested.overall)
    for gap in model.generalisation:
        metrics |= bounds(metric_key("ge", gap.lens), gap.gap)
    for gap in model.generated:
        metrics |= bounds(metric_key("generated", gap.lens), gap.train)
        metrics |= bounds(metric_key("generated_minus_test", gap.lens), gap.gap)
    metrics |= attribute_metrics(model)
    if SECONDS_PER_EPOCH in model.facts:
        metrics[f"train/{SECONDS_PER_EPOCH}"] = model.facts[SECONDS_PER_EPOCH]
    metrics |= _changes(comparison, model.spec.name)
    metrics |= {"undefined": float(len(undefined)), "forwards": float(model.forwards), "seconds": model.seconds}
    return bounded(model_run_name(audit, model), _params(audit, model), metrics, _tags(audit, index, undefined))


def parent_content(audit: AuditResult, comparison: Comparison | None = None) -> RunContent:
    """The parent run of an audit."""
    counts = {f"models/{outcome.value}": _count(audit, outcome) for outcome in Outcome}
    metrics = {**counts, "models/all": float(len(audit.models)), **_calibration(audit)}
    metrics |= _changes(comparison)
    tags = {
        "classwise.audit_id": audit.audit_id,
        "classwise.role": "audit",
        "classwise.outcome": audit.outcome.value,
        "classwise.compared_with": audit.compared_with,
        MODELS_TAG: _models_digest(audit),
        "classwise.versions": json.dumps(audit.versions, sort_keys=True),
        "mlflow.note.content": _note(audit),
    }
    mark = icon(audit.outcome, judged=any(model.gates for model in audit.models))
    name = f"{mark} {verdict_words(audit).removesuffix('.')}  {_moment(audit)[:16]}"
    return bounded(name, dict(flat(audit.config)), metrics, tags)


def icon(outcome: Outcome, *, judged: bool = True) -> str:
    """What a run's name begins with: ✓ pass, ✗ fail, ? undecided, ! error, – measured without gates."""
    return _ICONS[outcome] if judged or outcome is not Outcome.PASS else "–"


_ICONS = {Outcome.PASS: "✓", Outcome.FAIL: "✗", Outcome.UNDECIDED: "?", Outcome.ERROR: "!"}


def model_run_name(audit: AuditResult, model: ModelResult) -> str:
    """``✗ resnet18 v3  2026-11-28``, with the version of a registered model."""
    known = registered(model)
    version = f" v{known[1]}" if known else ""
    mark = icon(model.outcome, judged=bool(model.gates))
    return f"{mark} {shorten(model.spec.name, 120)}{version}  {_moment(audit)[:10]}"


def registered(model: ModelResult) -> tuple[str, str] | None:
    """Name and version in the registry of an audited ``mlflow:models:/NAME/VERSION``; None where there is none.

    An audit resolves an alias before it runs, for it may have moved since.
    """
    parts = _REGISTERED.match(model.spec.uri)
    version = model.facts.get("registry_version") or (parts and parts[2])
    return (parts[1], str(version)) if parts and version else None


_REGISTERED = re.compile(r"mlflow:models:/([^/@?]+)(?:@[^/?]*)?(?:/(\d+))?(?:\?|$)")


def _moment(audit: AuditResult) -> str:
    return audit.finished.replace("T", " ")


def _changes(comparison: Comparison | None, model: str = "") -> dict[str, float]:
    """How much is worse and better than in the accepted audit: of the fleet, or of one model."""
    if comparison is None:
        return {}
    flags = {flag: list(comparison.flagged(flag)) for flag in ("worse", "better")}
    mine = {flag: [each for each in flagged if model in ("", each[0].name)] for flag, flagged in flags.items()}
    classes = {f"change/classes_{flag}": sum(each[2].index >= 0 for each in flagged) for flag, flagged in mine.items()}
    counts = {f"change/{flag}": len(flagged) for flag, flagged in mine.items()}
    return {key: float(value) for key, value in {**counts, **classes}.items()}


def undefined_of(model: ModelResult) -> Iterator[tuple[str, str]]:
    """Name and reason of every number of the model that has no value."""
    for result in model.series:
        for metric in shown_metrics(result):
            estimate = result.metric(metric)
            if finite(estimate.value) is None:
                yield metric_key(lens(result), metric), estimate.reason or "undefined"
        for group in result.groups:
            if finite(group.score.value) is None:
                yield _group_metric(result, group_key(group.index, group.name)), group.score.reason or "undefined"
    for gaps in model.fairness:
        for metric, estimate in gaps.worst.items():
            if finite(estimate.value) is None:
                key = metric_key(series_key("fairness", gaps.grouping), metric)
                yield key, estimate.reason or "undefined"


def worst_groups(result: SeriesResult) -> str:
    """The groups with the smallest means as a line: ``cat 0.031 (0.012 to 0.064), dog 0.120 (0.089 to 0.156)``."""
    scored = [(value, group) for group in result.groups if (value := finite(group.score.value)) is not None]
    scored.sort(key=lambda pair: (pair[0], pair[1].index))
    return ", ".join(f"{shorten(group.name)} {interval(group.score)}" for _, group in scored[:WORST_CLASSES])


def table_rows(model: ModelResult) -> list[dict[str, Any]]:
    """Rows of the MLflow table: all of them, or for each series the worst ones when there are too many."""
    records = list(rows(model))
    if len(records) <= MAX_TABLE_ROWS:
        return records
    share = max(WORST_CLASSES, MAX_TABLE_ROWS // len(model.series))
    kept: list[dict[str, Any]] = []
    for result in model.series:
        mine = [row for row in records if (row["series"], row["grouping"]) == (result.series.key, result.grouping)]
        mine.sort(key=lambda row: (row["score"] is None, row["score"] or 0.0))
        kept += mine[:share]
    return kept


def threat_text(threat: ThreatModel | None) -> str:
    """A threat model as MLflow shows it."""
    if threat is None:
        return "not declared"
    return CORRUPTIONS if threat.norm == CORRUPTIONS else f"{threat.norm} {threat.epsilon:.6g}"


def threat_of(text: str) -> ThreatModel | None:
    """What `threat_text` wrote, None for what declares none."""
    norm, _, epsilon = text.partition(" ")
    if norm == CORRUPTIONS:
        return ThreatModel(CORRUPTIONS)
    try:
        return _THREAT.validate_python({"norm": norm, "epsilon": epsilon})
    except ValidationError:
        return None


JOINT_LOW, JOINT_HIGH = "_joint_low", "_joint_high"
"""Ends of the metrics that are limits for all models of an audit together."""

_THREAT = TypeAdapter(ThreatModel)
CORRUPTIONS: Final = "corruptions"
"""A threat model without a radius."""


def _group_metric(result: SeriesResult, key: str) -> str:
    return metric_key(lens(result), "class" if result.grouping == "class" else "group", key)


def _metrics(result: SeriesResult) -> dict[str, float]:
    metrics = series_metrics(result)
    for name, estimate in result.joint.items():
        sides = {JOINT_LOW: estimate.low, JOINT_HIGH: estimate.high}
        known = {side: number for side, value in sides.items() if (number := finite(value)) is not None}
        metrics |= {f"{metric_key(lens(result), name)}{side}": number for side, number in known.items()}
    for name, extra in result.extras.items():
        if (number := finite(extra)) is not None:
            metrics[metric_key(lens(result), unique_name(name))] = number
    return metrics


def _params(audit: AuditResult, model: ModelResult) -> dict[str, str]:
    spec = model.spec
    params: dict[str, Any] = {
        "model": spec.name,
        "uri": spec.uri,
        "outputs": spec.outputs,
        "offsets": " ".join(f"{value:.6g}" for value in spec.offsets) or None,
        "threat_model": threat_text(spec.threat_model),
        "samples": audit.samples.uri,
        "temperature_policy": audit.calibration.policy,
        "temperature": audit.calibration.temperature,
        "robust_accuracy_declared": spec.robust_accuracy,
        "clean_accuracy_declared": spec.clean_accuracy,
    }
    return {key: str(value) for key, value in params.items() if value is not None}


def _tags(audit: AuditResult, index: int, undefined: list[tuple[str, str]]) -> dict[str, str]:
    model = audit.models[index]
    reasons = "\n".join(model.reasons)
    mark = icon(model.outcome, judged=bool(model.gates))
    why = why_words(replace(audit, models=(model,)))
    lines = [
        f"{mark} **{model.outcome.value.upper()}**",
        *(f"* {text}" for text in (*model.reasons, *why, *model.notes)),
    ]
    if known := registered(model):
        path = f"#/models/{quote(known[0], safe='')}/versions/{known[1]}"
        lines.insert(1, f"audited: [{known[0]} version {known[1]}]({path})")
    tags = {
        "classwise.audit_id": audit.audit_id,
        "classwise.role": "model",
        "classwise.model": model.spec.name,
        "classwise.model_index": str(index),
        "classwise.outcome": model.outcome.value,
        "classwise.reasons": reasons,
        "classwise.model_digest": model.digest,
        "classwise.threat_model": threat_text(model.spec.threat_model),
        "mlflow.note.content": "\n".join(lines),
        **{f"{MODEL_TAG}{key}": value for key, value in model.spec.tags},
        **series_tags(model),
    }
    tags |= {metric_key(f"classwise.worst.{lens(result)}"): worst_groups(result) for result in model.series}
    if known := registered(model):
        tags["classwise.registered_model"] = "/".join(known)
    if model.attacks:
        tags["classwise.adequacy"] = "\n".join(f"{attack.name}: {attack.adequacy}" for attack in model.attacks)
    if overruled := [f"{gate.text}: {', '.join(gate.overruled)}" for gate in model.gates if gate.overruled]:
        tags["classwise.overruled"] = "\n".join(overruled)
    if undefined:
        tags["classwise.undefined"] = "\n".join(f"{key}: {reason}" for key, reason in undefined)
    if keys := model.facts.get("checkpoint_keys"):
        tags["classwise.checkpoint_key"] = ".".join(keys)
    if logged := model.facts.get("source"):
        tags["classwise.logged_model"] = str(logged)
    if model.spec.allow_unpickling:
        tags["classwise.allow_unpickling"] = "true"
    if model.spec.overrule:
        tags["classwise.overrule"] = ", ".join(model.spec.overrule)
    return tags


def bounded(name: str, params: dict[str, str], metrics: dict[str, float], tags: dict[str, str]) -> RunContent:
    """Move what MLflow would cut in silence into text artifacts; drop what is no number and what PostgreSQL refuses."""
    texts: dict[str, str] = {}

    def fit(kind: str, key: str, text: str, limit: int) -> str:
        value = text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
        if len(value) <= limit:
            return value
        path = f"{kind}/{unique_name(key, ascii_only=True)}.txt"
        texts[path] = value
        return f"{len(value)} characters, whole in the artifact {path}: {value[:200]}…"

    short_params = {metric_key(key): fit("params", key, value, MAX_PARAM) for key, value in params.items()}
    short_tags = {key: fit("tags", key, value, MAX_TAG) for key, value in tags.items() if value}
    numbers = {key: value for key, raw in metrics.items() if (value := finite(raw)) is not None}
    return RunContent(name, short_params, numbers, short_tags, texts)


def _models_digest(audit: AuditResult) -> str:
    """What makes runs of two audits runs of the same models in the same setting."""
    named = [(m.spec.name, threat_text(m.spec.threat_model), dict(m.spec.tags)) for m in audit.models]
    identities = sorted((name, threat, tags.get("dataset", "")) for name, threat, tags in named)
    return digest_of(identities, audit.samples.digest or audit.samples.uri)


def _count(audit: AuditResult, outcome: Outcome) -> float:
    return float(sum(model.outcome is outcome for model in audit.models))


def _calibration(audit: AuditResult) -> dict[str, float]:
    calibration = audit.calibration
    values = {
        "temperature": calibration.temperature,
        **dict(zip(("temperature_low", "temperature_high"), calibration.resampled or (), strict=False)),
        "objective": calibration.objective,
        "reference_correlation": calibration.reference,
        "reference_correlation_before": calibration.reference_before,
        "reference_correlation_of_accuracy": calibration.reference_accuracy,
    }
    return {f"calibration/{key}": number for key, value in values.items() if (number := finite(value)) is not None}


def _note(audit: AuditResult) -> str:
    lines = [f"Audit of **{audit.fleet}**: **{verdict_words(audit)}**", ""]
    lines += [*(f"{line}\n" for line in (*advice_words(audit), *why_words(audit)))]
    for model in worst_first(audit.models)[:50]:
        mark = icon(model.outcome, judged=bool(model.gates))
        lines.append(f"* {mark} {model.spec.name}: {model.outcome.value}. {' '.join(model.reasons[:2])}")
    if len(audit.models) > 50:
        lines.append(f"* and {len(audit.models) - 50} more, see report.html")
    return "\n".join(lines)


def flat(value: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted keys of a nested configuration; lists of plain values stay one parameter."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            part = unique_name(str(key))
            yield from flat(inner, f"{prefix}.{part}" if prefix else part)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        yield prefix, json.dumps(value, sort_keys=True, default=str)
    elif value is not None:
        yield prefix, value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
