"""What is not what it was between two audits, besides the scores: a pure function of their results."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from services.records import AuditResult, ModelResult
from tracking.bundle.comparison import Drift

DECLARED = ("input", "outputs", "output", "classes", "threat_model", "stochastic", "allow_unpickling")
"""What a fleet file says of a model that moves its scores, or what they are held against."""
CHANGES_NUMBERS = ("classwise", "torch", "torchvision", "numpy", "scipy")
_VERSION = re.compile(r"mlflow:models:/([^/@?]+)(?:/(\d+)|@([^/@?]+))")


def drift(accepted: AuditResult, now: AuditResult) -> tuple[Drift, ...]:
    """All that changed, the samples first."""
    return (*_samples(accepted, now), *_fleet(accepted, now), *_models(accepted, now), *_setting(accepted, now))


def _measure_versions(result: AuditResult) -> dict[str, int]:
    """The version of the measure behind each series; 0 in bundles of before it was recorded."""
    return {part.series.key: part.series.version for model in result.models for part in model.series}


def _samples(accepted: AuditResult, now: AuditResult) -> Iterator[Drift]:
    before, after = accepted.samples, now.samples
    if before.content != after.content:
        yield Drift("samples", after.uri, f"content {before.content[:12]}", f"content {after.content[:12]}")
    elif before.digest != after.digest:
        yield Drift("samples", after.uri, f"{before.count} selected", f"{after.count} selected")
    counts = dict(zip(before.classes, before.counts, strict=True)), dict(zip(after.classes, after.counts, strict=True))
    for name in dict.fromkeys((*before.classes, *after.classes)):
        old, new = (count.get(name) for count in counts)
        if old != new:
            yield Drift("class counts", name, _count(old), _count(new))


def _count(value: int | None) -> str:
    return "no such class" if value is None else f"{value} samples"


def _fleet(accepted: AuditResult, now: AuditResult) -> Iterator[Drift]:
    """Models added, gone, or renamed: a name that is gone and a new one with the same weights."""
    before, after = _by_name(accepted), _by_name(now)
    gone = {name: model for name, model in before.items() if name not in after}
    for name, model in after.items():
        if name in before:
            continue
        old = next((other for other, was in gone.items() if was.digest and was.digest == model.digest), None)
        if old is None:
            yield Drift("added", name, "", model.spec.uri)
        else:
            del gone[old]
            yield Drift("renamed", name, old, name)
    for name, model in gone.items():
        yield Drift("gone", name, model.spec.uri, "")


def _models(accepted: AuditResult, now: AuditResult) -> Iterator[Drift]:
    earlier = _by_name(accepted)
    for name, model in _by_name(now).items():
        if (was := earlier.get(name)) is None:
            continue
        if was.digest != model.digest and was.digest and model.digest:
            yield Drift("model", name, f"digest {was.digest[:12]}", f"digest {model.digest[:12]}")
        for field in DECLARED:
            old, new = getattr(was.spec, field), getattr(model.spec, field)
            if old != new:
                yield Drift("declaration", f"{name}: {field}", _differing(old, new), _differing(new, old))
        yield from _alias(accepted, now, was, model)


def _differing(value: Any, other: Any) -> str:
    """A value as text; of a record only the fields that differ."""
    if type(value) is not type(other) or not hasattr(value, "__dataclass_fields__"):
        return "none" if value is None else str(value)
    names = [field.name for field in fields(value) if getattr(value, field.name) != getattr(other, field.name)]
    return ", ".join(f"{name} {getattr(value, name)}" for name in names)


def _alias(accepted: AuditResult, now: AuditResult, was: ModelResult, model: ModelResult) -> Iterator[Drift]:
    """The alias that both fleet files name points to another version."""
    before, after = _registered_alias(accepted, was.spec.name), _registered_alias(now, model.spec.name)
    if before is None or after is None or before[0] != after[0] or not before[3]:
        return
    old, new = _VERSION.match(was.spec.uri), _VERSION.match(model.spec.uri)
    if old and new and old[2] and new[2] and old[2] != new[2]:
        yield Drift("alias", f"{model.spec.name}: {before[1]}@{before[3]}", f"version {old[2]}", f"version {new[2]}")


def _registered_alias(result: AuditResult, name: str) -> re.Match[str] | None:
    """The registry address in the fleet file, before its alias was resolved."""
    models = result.config.get("models", [])
    uri = next((str(model.get("uri", "")) for model in models if model.get("name") == name), "")
    return _VERSION.match(uri)


def _setting(accepted: AuditResult, now: AuditResult) -> Iterator[Drift]:
    before, after = accepted.calibration.temperature, now.calibration.temperature
    if before != after:
        yield Drift("temperature", "", _temperature(before), _temperature(after))
    versions = _measure_versions(accepted)
    for key, new in _measure_versions(now).items():
        old = versions.get(key, 0)
        if old and old != new:
            yield Drift("measure", key, f"version {old}", f"version {new}")
    for package in CHANGES_NUMBERS:
        was, is_now = accepted.versions.get(package), now.versions.get(package)
        if was != is_now and was and is_now:
            yield Drift("versions", package, was, is_now)


def _temperature(value: float | None) -> str:
    return "none" if value is None else f"T = {value:g}"


def _by_name(result: AuditResult) -> dict[str, ModelResult]:
    return {model.spec.name: model for model in result.models}
