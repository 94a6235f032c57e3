"""What became of a trial, put together from its plan and its worker's report."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from jobs.training.planned import PlannedTrial
from jobs.training.sweepfile import Trial
from services.records import InputContract, ThreatModel
from services.records.trials import CLASS, DataFacts, MapperFacts, TrialReport, TrialResult
from services.storage import files
from services.training.methods.method import Method
from services.training.networks import ARCHITECTURES
from services.training.recipe import Recipe

WEIGHTS = "model.safetensors"
MAPPERS = "services.training.mappers"
GENERATED = 1000
"""Samples that the source of generated ones asks for."""
DONE = ("finished", "early-stop", "diverged")
"""States that training again would not change."""


def trial_result(item: PlannedTrial, report: TrialReport, sweep: str, data: DataFacts) -> TrialResult:
    """The content of `trial.json`."""
    task, trial = item.task, item.trial
    weights = files.join(task.folder, WEIGHTS) if report.selected is not None else ""
    points = report.points
    return TrialResult(
        name=task.name,
        key=task.key,
        sweep=sweep,
        state=report.state,
        reason=report.reason,
        method={key: value for key, value in json.loads(task.method).items() if key != "version"},
        recipe=trial.recipe.model_dump(mode="json"),
        architecture=task.architecture,
        options=dict(task.options),
        data=data,
        seed=trial.seed,
        epochs=len(points),
        selected=report.selected,
        chosen=next((point for point in points if point.epoch == report.selected), None),
        seconds=sum(point.seconds for point in points),
        weights=weights,
        uri=_source(item, weights) if weights else "",
        threat_model=threat_of(trial.method.method, trial.recipe) if isinstance(trial, Trial) else None,
        tags={**trial.tags, "sweep": sweep},
        kind=task.kind,
        mapper=_mapper(item, report.mapper, weights, data),
        judging=sum(point.judging for point in points),
    )


def factory_uri(architecture: str, options: dict[str, Any], weights: str) -> str:
    """The `factory:` source of a trained network."""
    module, function = ARCHITECTURES.location(architecture)
    return _uri("factory", module, function, {**options, "weights": weights})


def generator_uri(options: dict[str, Any], weights: str, classes: tuple[str, ...]) -> str:
    """The `generator:` source of samples of a mapper conditioned on the classes."""
    names = {"names": ",".join(classes)} if not any("," in name for name in classes) else {}
    query = {"n": max(GENERATED, len(classes)), "classes": len(classes), **options, **names, "weights": weights}
    return _uri("generator", MAPPERS, "generated", query)


def _source(item: PlannedTrial, weights: str) -> str:
    task, options = item.task, dict(item.task.options)
    if task.kind == "mapper":
        return _uri("factory", MAPPERS, task.architecture, {**options, "weights": weights})
    return factory_uri(task.architecture, options, weights)


def _mapper(item: PlannedTrial, facts: MapperFacts | None, weights: str, data: DataFacts) -> MapperFacts | None:
    """What is known of a mapper, with its samples' source where classes condition it; `generated` wants two."""
    if facts is None or isinstance(item.trial, Trial):
        return facts
    if CLASS not in item.trial.mapper.conditions or len(data.classes) < 2:
        return facts
    return replace(facts, generator=generator_uri(dict(item.task.options), weights, data.classes))


def _uri(scheme: str, module: str, function: str, query: dict[str, Any]) -> str:
    pairs = "&".join(f"{key}={quote(_text(value), safe='/._-:~')}" for key, value in query.items())
    return f"{scheme}:{module}:{function}?{pairs}"


def contract_of(result: TrialResult) -> InputContract:
    """What the trained network expects: the normalisation that it was trained under."""
    mean, std = (result.recipe.get(key) for key in ("mean", "std"))
    return InputContract(mean=tuple(mean) if mean else None, std=tuple(std) if std else None)


def threat_of(method: Method, recipe: Recipe) -> ThreatModel | None:
    """What a network was trained against; for a method without perturbation, what its held-out split is judged by."""
    perturbs = "budget" in type(method).model_fields or type(method).attack is not Method.attack
    budget = method.attack() if perturbs else recipe.attack
    return ThreatModel("Linf", budget.epsilon) if budget is not None and budget.epsilon > 0 else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
