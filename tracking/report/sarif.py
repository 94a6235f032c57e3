"""The verdict as SARIF 2.1.0, which code hosts show at the line of the fleet file that decided it.

A rule is a kind of gate, or "worse than the accepted audit"; a result is a gate that did not pass on one model, a model
that could not be judged, an attack that was inadequate, a class that is worse, or a series that could not be compared.
Levels: error for fail, error and worse; warning for undecided and inadequate; note for what could not be compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from services.records import AuditResult, GateResult, ModelResult, Outcome, digest_of
from services.storage import files
from tracking.bundle.comparison import Comparison
from tracking.bundle.words import number

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
MOST_RESULTS = 5_000
"""Results in the file, the gravest first: more are refused by those who read it."""
LEVELS = {Outcome.FAIL: "error", Outcome.ERROR: "error", Outcome.UNDECIDED: "warning"}
RULES = {
    "gate/at_least": "A lower bound must be at least a threshold.",
    "gate/at_most": "An upper bound must be at most a threshold.",
    "gate/not_worse_than": "A model must not be worse than in an earlier audit, on the same samples.",
    "gate/overruled": "An objection to a pass is overruled in the fleet file.",
    "model/error": "Every model must be judged.",
    "attack/inadequate": "An attack that could not move shows nothing of robustness.",
    "audit/error": "The audit must come to a verdict.",
    "change/worse": "A class or a model is worse than in the accepted audit, after correction for all comparisons.",
    "change/not_comparable": "A series could not be compared with the accepted audit.",
}
_RANK = {"error": 0, "warning": 1, "note": 2}


@dataclass(frozen=True)
class SarifTarget:
    """Where the file goes, and what it points at.

    Attributes:
        path: of the SARIF file.
        fleet_file: as the user named it.
        lines: line of the fleet file by field path: ("gates", 0), ("models", 1).
    """

    path: str
    fleet_file: str
    lines: Mapping[tuple[str | int, ...], int] = field(default_factory=dict)


def write_sarif(result: AuditResult, comparison: Comparison | None, target: SarifTarget) -> None:
    """Write the file, whole or not at all.

    Raises:
        StorageError: it cannot be written.
    """
    body = sarif(result, comparison, target)
    files.write_bytes(target.path, json.dumps(body, indent=1, allow_nan=False).encode("utf-8", "replace"))


def write_unfinished(target: SarifTarget, problems: Iterable[object] = ()) -> None:
    """Write the file of an audit without a verdict: an error a problem, or one that it did not finish.

    Raises:
        StorageError: it cannot be written.
    """
    messages = [str(problem) for problem in problems] or ["the audit did not finish"]
    results = [_result("audit/error", "error", text, (text,), target, ()) for text in messages]
    run = {"tool": _tool(""), "invocations": [{"executionSuccessful": False}], "results": results}
    body = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    files.write_bytes(target.path, json.dumps(body, indent=1).encode("utf-8", "replace"))


def sarif(result: AuditResult, comparison: Comparison | None, target: SarifTarget) -> dict[str, Any]:
    """The log as plain data."""
    results = [*_gates(result, target), *(_changes(result, comparison, target) if comparison else ())]
    results.sort(key=lambda entry: _RANK[entry["level"]])
    run: dict[str, Any] = {
        "tool": _tool(result.versions.get("classwise", "")),
        "automationDetails": {"id": f"classwise/{result.fleet}/{result.audit_id}"},
        "invocations": [_invocation(result, len(results))],
        "results": results[:MOST_RESULTS],
        "columnKind": "unicodeCodePoints",
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _tool(version: str) -> dict[str, Any]:
    rules = [{"id": name, "shortDescription": {"text": text}} for name, text in RULES.items()]
    return {"driver": {"name": "classwise", **({"version": version} if version else {}), "rules": rules}}


def _invocation(result: AuditResult, total: int) -> dict[str, Any]:
    """The audit as a process: whether it ran to its end, whatever its verdict."""
    invocation: dict[str, Any] = {
        "executionSuccessful": result.outcome is not Outcome.ERROR,
        "exitCode": result.outcome.exit_code,
        "startTimeUtc": _utc(result.started),
        "endTimeUtc": _utc(result.finished),
    }
    if total > MOST_RESULTS:
        text = f"{MOST_RESULTS} of {total} results are listed, the gravest first"
        invocation["toolExecutionNotifications"] = [{"level": "warning", "message": {"text": text}}]
    return invocation


def _gates(result: AuditResult, target: SarifTarget) -> Iterator[dict[str, Any]]:
    gates = result.config.get("gates", [])
    for place, model in enumerate(result.models):
        if model.outcome is Outcome.ERROR and all(gate.outcome is not Outcome.ERROR for gate in model.gates):
            text = f"{model.spec.name} was not judged: {'; '.join(model.reasons) or 'no reason given'}"
            yield _result("model/error", "error", text, (model.spec.name,), target, ("models", place))
        for index, gate in enumerate(model.gates):
            if gate.outcome is not Outcome.PASS:
                kind = _kind(gates[index] if index < len(gates) else {})
                yield _gate(kind, LEVELS[gate.outcome], index, place, model, gate, target)
            elif gate.overruled:
                yield _gate("gate/overruled", "note", index, place, model, gate, target)
        for attack in model.attacks:
            if attack.adequacy == "inadequate":
                text = f"{model.spec.name}: {'; '.join(attack.reasons)}"
                keys = (model.spec.name, *attack.series)
                yield _result("attack/inadequate", "warning", text, keys, target, ("models", place))


def _gate(
    kind: str, level: str, index: int, place: int, model: ModelResult, gate: GateResult, target: SarifTarget
) -> dict[str, Any]:
    text = f"{model.spec.name}: {gate.text}: {gate.outcome.value}, {gate.reason}"
    entry = _result(kind, level, text, (model.spec.name, gate.text), target, ("gates", index))
    entry["relatedLocations"] = [{**_location(target, ("models", place)), "message": {"text": "the model"}}]
    return entry


def _changes(result: AuditResult, comparison: Comparison, target: SarifTarget) -> Iterator[dict[str, Any]]:
    places = {model.spec.name: index for index, model in enumerate(result.models)}
    for model, series, group in comparison.flagged("worse"):
        what = "all samples" if group.index < 0 else f"class {group.name}"
        moved = f"{number(group.then)} to {number(group.now)}"
        text = f"{model.name}: {series.series}, {what}: {moved} since audit {comparison.compared_with}"
        keys = (model.name, series.series, str(group.index))
        yield _result("change/worse", "error", text, keys, target, ("models", places[model.name]))
    for model in comparison.models:
        for series in model.series:
            if series.reason:
                what = f"{model.name}: {series.series}"
                text = f"{what} was not compared with {comparison.compared_with}: {series.reason}"
                yield _result(
                    "change/not_comparable",
                    "note",
                    text,
                    (model.name, series.series),
                    target,
                    ("models", places[model.name]),
                )


def _result(
    rule: str, level: str, text: str, keys: tuple[str, ...], target: SarifTarget, path: tuple[str | int, ...]
) -> dict[str, Any]:
    return {
        "ruleId": rule,
        "ruleIndex": list(RULES).index(rule),
        "level": level,
        "message": {"text": text},
        "locations": [_location(target, path)],
        "partialFingerprints": {"classwise/v1": digest_of(rule, *keys)},
    }


def _location(target: SarifTarget, path: tuple[str | int, ...]) -> dict[str, Any]:
    line = target.lines.get(path) or target.lines.get(path[:1]) or 1
    place = {"artifactLocation": {"uri": _uri(target.fleet_file)}, "region": {"startLine": line}}
    return {"physicalLocation": place}


def _uri(path: str) -> str:
    """Relative to the working folder, as code hosts want it; a file elsewhere by its whole address."""
    place = Path(path)
    try:
        place = place.resolve().relative_to(Path.cwd().resolve())
    except ValueError:
        return place.resolve().as_uri()
    return quote(place.as_posix())


def _kind(gate: Mapping[str, Any]) -> str:
    names = (name for name in ("at_least", "at_most", "not_worse_than") if gate.get(name) is not None)
    return f"gate/{next(names, 'at_least')}"


def _utc(text: str) -> str:
    return text.replace("+00:00", "Z")
