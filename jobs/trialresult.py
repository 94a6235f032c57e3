"""What became of a trial, put together from its plan and its worker's report."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from jobs.trainplan import PlannedTrial
from services import storage
from services.records import InputContract, ThreatModel
from services.training.methods.base import Method
from services.training.networks import ARCHITECTURES
from services.training.recipe import Recipe
from services.trials import DataFacts, TrialReport, TrialResult

WEIGHTS = "model.safetensors"
DONE = ("finished", "early-stop", "diverged")
"""States that training again would not change."""


def trial_result(item: PlannedTrial, report: TrialReport, sweep: str, data: DataFacts) -> TrialResult:
    """The content of `trial.json`."""
    task, trial, method = item.task, item.trial, item.trial.method.method
    weights = storage.join(task.folder, WEIGHTS) if report.selected is not None else ""
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
        uri=factory_uri(task.architecture, dict(task.options), weights) if weights else "",
        threat_model=threat_of(method, trial.recipe),
        tags={**trial.tags, "sweep": sweep},
    )


def factory_uri(architecture: str, options: dict[str, Any], weights: str) -> str:
    """The `factory:` source of a trained network."""
    module, function = ARCHITECTURES.location(architecture)
    query = {**{key: _text(value) for key, value in options.items()}, "weights": weights}
    pairs = "&".join(f"{key}={quote(value, safe='/._-:~')}" for key, value in query.items())
    return f"factory:{module}:{function}?{pairs}"


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
