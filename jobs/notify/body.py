"""What a notification says: plain JSON, bounded in size whatever the fleet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jobs.fleetfile.followups import When
from services.records import AuditResult, ModelResult, Outcome
from services.storage import files
from tracking.bundle.comparison import Comparison
from tracking.bundle.marker import uploads
from tracking.bundle.summary import worst_first
from tracking.report.comparison_words import drift_words

SCHEMA_VERSION = 1
EVENT = "audit.finished"
MOST_MODELS = 50
MOST_CHANGES = 20
TEXT = 500


def applies(when: Sequence[When], result: AuditResult, comparison: Comparison | None) -> list[When]:
    """Which of the conditions hold."""
    worse = comparison is not None and comparison.worse > 0
    return [word for word in when if word in ("always", result.outcome.value) or (word == "worse" and worse)]


def body_of(result: AuditResult, comparison: Comparison | None, folder: str, because: Sequence[str]) -> dict[str, Any]:
    """The body of a notification."""
    models = worst_first(result.models)
    return {
        "schema_version": SCHEMA_VERSION,
        "event": EVENT,
        "fleet": result.fleet,
        "audit_id": result.audit_id,
        "outcome": result.outcome.value,
        "exit_code": result.outcome.exit_code,
        "started": result.started,
        "finished": result.finished,
        "because": list(because),
        "counts": {outcome.value: sum(model.outcome is outcome for model in models) for outcome in Outcome},
        "models": [_model(model) for model in models[:MOST_MODELS]],
        "comparison": None if comparison is None else _comparison(comparison),
        "links": _links(folder),
    }


def _model(model: ModelResult) -> dict[str, Any]:
    worst = [
        {"series": each.series.key, "classes": list(each.worst[:5]), "score": each.wcr.value, "low": each.wcr.low}
        for each in model.series
        if each.grouping == "class"
    ]
    reasons = [reason[:TEXT] for reason in model.reasons[:10]]
    return {"name": model.spec.name, "outcome": model.outcome.value, "reasons": reasons, "worst": worst[:20]}


def _comparison(comparison: Comparison) -> dict[str, Any]:
    flags = [
        {
            "model": model.name,
            "series": series.series,
            "class": None if group.index < 0 else group.name,
            "then": group.then,
            "now": group.now,
            "p": group.p,
        }
        for model, series, group in list(comparison.flagged("worse"))[:MOST_CHANGES]
    ]
    return {
        "compared_with": comparison.compared_with,
        "alpha": comparison.alpha,
        "looks": comparison.looks,
        "bound": comparison.bound,
        "comparisons": comparison.comparisons,
        "worse": comparison.worse,
        "better": comparison.better,
        "not_comparable": comparison.not_comparable,
        "worst_changes": flags,
        "drift": [text[:TEXT] for text in drift_words(comparison)],
    }


def _links(folder: str) -> dict[str, str]:
    runs: dict[str, Any] = next(reversed(uploads(folder)), {})
    return {
        "bundle": folder,
        "report": files.join(folder, "report.html"),
        "run": str(runs.get("url", "")),
        "run_id": str(runs.get("parent_run_id", "")),
    }
