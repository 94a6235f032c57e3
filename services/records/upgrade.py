"""Lifts records of older versions to today's: the one place that reads the keys of 0.1.0, which had no typed series."""

from __future__ import annotations

import re
from typing import Any

from services.records.series import Evidence

_ATTACKS = ("pgd", "apgd", "cw", "square", "autoattack")
_METRICS = ("aggregate", "rdi", "nrgc", "wcr", "fp")
_FAMILY = re.compile(r"great|clean|pgd|apgd|cw|square|autoattack|minimal|probacc|pr|binomial|rare|radius|projection")
_GATE = re.compile(
    r"(?P<measure>\S+) (?P<metric>\w+)(?: by (?P<grouping>.+))? (?P<sign>>=|<=) (?P<value>-?[\d.]+(?:e[-+]?\d+)?)"
)
_BALL = re.compile(r"/(?P<norm>linf|l2)-(?P<radius>\d+\.\d+)$")
_NOISE = re.compile(r"/(?P<noise>uniform|gaussian|laplace)-(?P<radius>[\d.e-]+)(?:/|$)")
_PROVEN = re.compile(r"/at-(?P<radius>[\d.e-]+)$")
_NORMS = {"linf": "Linf", "l2": "L2"}


def from_version_1(audit: dict[str, Any]) -> dict[str, Any]:
    """An audit's record of version 1 with typed series."""
    versions = audit.get("checks", {}).get("measure_versions", {})
    models = [_model(model, versions) for model in audit.get("models", ())]
    return {**audit, "models": models, "compared_with": audit.get("baseline", "")}


def _model(model: dict[str, Any], versions: dict[str, int]) -> dict[str, Any]:
    series = [_result(result, versions) for result in model.get("series", ())]
    projection = [{"label": _head(entry["series"]), **entry} for entry in model.get("projection", ())]
    gates = [{**gate, "threshold": _threshold(gate["text"])} for gate in model.get("gates", ())]
    refuted = [_refuted(entry) for entry in model.get("falsified", ())]
    rest = {name: value for name, value in model.items() if name != "falsified"}
    return {**rest, "series": series, "projection": projection, "gates": gates, "refuted": refuted}


def _refuted(entry: dict[str, Any]) -> dict[str, Any]:
    groups = [_renamed_extras(group) for group in entry["groups"]]
    return {**_renamed(entry), "groups": groups}


def _renamed_extras(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "extras": _renamed(record.get("extras", {}))}


def _renamed(fields: dict[str, Any]) -> dict[str, Any]:
    """What 0.1.0 called falsified is called refuted."""
    return {"refuted" if name == "falsified" else name: value for name, value in fields.items()}


def _threshold(text: str) -> dict[str, Any] | None:
    match = _GATE.fullmatch(text)
    if match is None:
        return None
    metric = "refuted" if match["metric"] == "falsified" else match["metric"]
    grouping, value = match["grouping"] or "class", float(match["value"])
    return {"measure": match["measure"], "metric": metric, "grouping": grouping, "sign": match["sign"], "value": value}


def _result(result: dict[str, Any], versions: dict[str, int]) -> dict[str, Any]:
    """A result whose metrics stand in one mapping."""
    metrics = {name: result.get(name) for name in _METRICS}
    rest = {name: value for name, value in _renamed_extras(result).items() if name not in metrics}
    groups = [_renamed_extras(group) for group in result["groups"]]
    return {**rest, "series": _versioned(result["series"], versions), "metrics": metrics, "groups": groups}


def _versioned(series: dict[str, Any], versions: dict[str, int]) -> dict[str, Any]:
    return typed({"version": versions.get(series["key"], 0), **series})


def typed(series: dict[str, Any]) -> dict[str, Any]:
    """A series of version 1 with what its key said of family, evidence, threat and noise."""
    key = series["key"]
    match = _FAMILY.match(key)
    family = match[0] if match else ""
    threat, noise = _threat(family, key, series)
    return {
        "family": family,
        "label": _label(family, key),
        "evidence": _evidence(family, key),
        "threat": threat,
        "noise": noise,
        "brackets": key.rpartition("/")[0] if key.endswith(("/certified", "/possible")) else "",
        **series,
    }


def _threat(family: str, key: str, series: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
    if family == "minimal":
        return {"norm": "L2", "epsilon": series.get("bound", 0.0)}, ""
    if (family in _ATTACKS or not family) and (ball := _BALL.search(key)):
        return {"norm": _NORMS[ball["norm"]], "epsilon": float(ball["radius"])}, ""
    if family == "radius" and (proven := _PROVEN.search(key)):
        return {"norm": "L2", "epsilon": float(proven["radius"])}, ""
    if noise := _NOISE.search(key):
        return {"norm": "Linf", "epsilon": float(noise["radius"])}, noise["noise"]
    return None, ""


def _evidence(family: str, key: str) -> Evidence:
    if family in (*_ATTACKS, "minimal") or key.endswith("/possible") or (not family and _BALL.search(key)):
        return Evidence.ATTACK
    if family == "radius" or key.endswith("/certified"):
        return Evidence.CERTIFICATE
    return Evidence.CLAIM if family == "great" else Evidence.OUTCOME


def _label(family: str, key: str) -> str:
    if family == "rare" and key.endswith("/below"):
        return "below"
    if family == "radius" and _PROVEN.search(key):
        return "at"
    return _head(key) if family in (*_ATTACKS, "great", "probacc", "projection", "") else family


def _head(key: str) -> str:
    return key.partition("/")[0]
