"""The tables of the report as compact values."""

from __future__ import annotations

from collections import Counter
from typing import Any

from services.records import (
    WORST_FIRST,
    AttackResult,
    AuditResult,
    Estimate,
    GroupScore,
    ModelResult,
    Outcome,
    RefutedResult,
    Series,
    SeriesResult,
)
from tracking.bundle.group_table import finite
from tracking.bundle.headline import tested_claims
from tracking.bundle.summary import METRICS, find, lenses, refuted, tied, worst_first
from tracking.bundle.words import gate_words, interval, model_words, number, share_words
from tracking.names import shorten

MAX_ROWS = 200_000
"""Rows of the per-class table; above that each profile keeps its weakest classes and the page says so."""


def model_cards(audit: AuditResult) -> list[dict[str, Any]]:
    """One entry a model for the verdict table, worst outcome first, then as in the fleet."""
    first = lenses(audit)[:1]
    return [
        _card(model, find(model, first[0]) if first else None, refuted(model, first[0]) if first else None)
        for model in worst_first(audit.models)
    ]


def gate_tallies(audit: AuditResult) -> list[dict[str, Any]]:
    """For each gate its text, its meaning and how many models end in each outcome, the worst first."""
    gates = {gate.text: gate for model in audit.models for gate in model.gates}
    counts = Counter((gate.text, gate.outcome) for model in audit.models for gate in model.gates)
    return [
        {
            "text": text,
            "meaning": gate_words(audit, gate),
            "counts": [(counts[text, outcome], outcome.value) for outcome in WORST_FIRST if counts[text, outcome]],
        }
        for text, gate in gates.items()
    ]


def headline(audit: AuditResult) -> dict[str, Any] | None:
    """Title and scale of the series whose numbers stand in the verdict table; None when nothing was measured."""
    first = lenses(audit)[:1]
    result = next((candidate for name in first for model in audit.models if (candidate := find(model, name))), None)
    if result is None:
        return None
    tested = any(refuted(model, first[0]) for model in audit.models)
    unit = f" ({result.series.unit})" if result.series.unit else ""
    group = "class" if result.grouping == "class" else f"group of {result.grouping}"
    scale = f"from 0, the worst, to {result.series.bound:.4g}, the best{unit}{_attacked(result.series)}"
    return {"title": result.series.title, "scale": scale, "group": group, "refuted": tested}


def _attacked(series: Series) -> str:
    """What survival of an attack is, for who has not met one; "" of other series."""
    if not (series.attack and series.binary and series.threat):
        return ""
    reach = series.threat.epsilon
    change = f"each pixel by up to {100 * reach:.2g} % of its range"
    if series.threat.norm != "Linf":
        change = f"the image by up to {reach:.3g} in {series.threat.norm}"
    return f": the share of samples still right when an attacker changes {change}"


def _card(model: ModelResult, result: SeriesResult | None, tested: RefutedResult | None) -> dict[str, Any]:
    threat = model.spec.threat_model
    passed = bool(model.gates) and model.outcome is Outcome.PASS
    by_gates = {f"{gate.text}: {gate.reason}" for gate in model.gates}
    return {
        "name": model.spec.name,
        "short": shorten(model.spec.name, 48),
        "outcome": model.outcome.value,
        "reasons": [] if passed else [reason for reason in model.reasons if reason not in by_gates],
        "why": _why(model),
        "words": model_words(model),
        "gates": [(gate.text, gate.outcome.value, gate.reason) for gate in model.gates],
        "attacks": attack_rows(model),
        "threat": threat.words if threat else "not declared",
        "digest": model.digest[:12],
        "worst": tied(result.worst, len(result.worst)) if result else "",
        "cells": {metric: _cell(result.metric(metric)) if result else _BLANK for metric in METRICS},
        "refuted": _share(tested),
    }


def attack_rows(model: ModelResult) -> list[tuple[str, str, str]]:
    """Each attack on a model: its name, whether it was adequate, and what was seen."""
    return [(attack.name, attack.adequacy, _seen(attack)) for attack in model.attacks]


def _seen(attack: AttackResult) -> str:
    if attack.reasons:
        return " ".join(sign.sentence for sign in attack.signs if sign.shown) or "; ".join(attack.reasons)
    probe = f", {attack.probed} samples probed" if attack.probed else ""
    return f"none of {len(attack.signs)} signs of a failing attack{probe}"


def _share(tested: RefutedResult | None) -> dict[str, Any]:
    """The refuted share of a model's claims as a cell."""
    if tested is None:
        return {**_BLANK, "full": "not tested by an adequate attack"}
    value = finite(tested.overall.value)
    share = "–" if value is None else f"{100 * value:.1f} %"
    counts = f"{tested.refuted:,} of {tested.counted:,} correctly classified samples"
    return {**_cell(tested.overall), "text": share, "full": f"{share_words(tested.overall)}: {counts}"}


def _why(model: ModelResult) -> str:
    """The first reason, short enough for a cell, and how many more there are."""
    if not model.reasons:
        return ""
    if len(model.gates) == 1 and model.reasons == (f"{model.gates[0].text}: {model.gates[0].reason}",):
        return shorten(model.gates[0].reason, 90)
    more = f" (and {len(model.reasons) - 1} more)" if len(model.reasons) > 1 else ""
    return shorten(model.reasons[0], 150) + more


_BLANK = {"text": "–", "full": "not measured", "value": ""}


def _cell(estimate: Estimate) -> dict[str, Any]:
    value = finite(estimate.value)
    return {
        "text": "–" if value is None else number(value),
        "full": interval(estimate),
        "value": "" if value is None else f"{value:.6g}",
    }


def class_table(audit: AuditResult) -> dict[str, Any]:
    """All classes of all models and series: names once, rows as small arrays.

    A row is ``[model, series, class index, n, score, low, high, flags, refuted]`` with flags 1 worst, 2 not separated
    from the worst, 4 vacuous; `refuted`, the share of claims that attacks refuted, only where any was tested.
    """
    names = lenses(audit)
    attacked = any(tested_claims(model.refuted, model.attacks) for model in audit.models)
    profiles = sum(find(model, name) is not None for model in audit.models for name in names)
    share = MAX_ROWS // max(1, profiles)
    groups: list[dict[int, str]] = [{} for _ in names]
    rows: list[list[Any]] = []
    for place, model in enumerate(audit.models):
        for number_, name in enumerate(names):
            result = find(model, name)
            if result is None:
                continue
            tested = refuted(model, name)
            shares = {group.index: finite(group.score.value) for group in tested.groups} if tested else {}
            for group in _weakest(result, share):
                groups[number_][group.index] = group.name
                extra = [_rounded(shares.get(group.index))] if attacked else []
                rows.append([place, number_, *_row(result, group), *extra])
    titles = {name: next(f.series.title for m in audit.models if (f := find(m, name))) for name in names}
    total = sum(len(result.groups) for model in audit.models for result in model.series)
    return {
        "models": [model.spec.name for model in audit.models],
        "series": [titles[name] if "/by-" not in name else f"{titles[name]} ({name})" for name in names],
        "groups": groups,
        "rows": rows,
        "total": total,
        "refuted": attacked,
    }


def _weakest(result: SeriesResult, share: int) -> list[GroupScore]:
    if len(result.groups) <= share:
        return list(result.groups)
    known = sorted(result.groups, key=lambda group: (group.score.value is None, group.score.value or 0.0))
    return known[: max(1, share)]


def _row(result: SeriesResult, group: GroupScore) -> list[Any]:
    score = group.score
    flags = (group.name in result.worst) + 2 * (group.name in result.not_separated) + 4 * score.vacuous
    return [group.index, group.n, *map(_rounded, (score.value, score.low, score.high)), flags]


def _rounded(value: float | None) -> float | None:
    return None if finite(value) is None else float(f"{value:.4g}")
