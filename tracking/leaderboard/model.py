"""One MLflow run of a model as a record: its tags, and of its metrics the numbers that a leaderboard can show."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from services.records.estimates import Estimate
from tracking.bundle.group_table import finite
from tracking.leaderboard import spelled
from tracking.leaderboard.known_numbers import Catalogue, bracketed, of_keys
from tracking.leaderboard.numbers import SECONDS, numbers_of_series
from tracking.leaderboard.rows import UNDECLARED, AuditedModel
from tracking.mlflow.layout import JOINT_HIGH, JOINT_LOW, MODEL_TAG
from tracking.mlflow.series_tag import series_of

if TYPE_CHECKING:
    from mlflow.entities import Run

Filters = Mapping[str, Sequence[str]]
"""Wanted values by key; a model fits when for every key one of the values is its own."""

KNOWN = ("dataset", "architecture", "method", "seed", "sweep", "trial")
"""Tags that the training service gives its models."""

FIELDS = {
    "model": "classwise.model",
    "threat_model": "classwise.threat_model",
    "outcome": "classwise.outcome",
    "audit_id": "classwise.audit_id",
    **{key: f"{MODEL_TAG}{key}" for key in KNOWN},
}
"""What a filter's key stands for; any other key is looked up as a tag of the model, then as a tag of the run."""

_LARGEST = 1e300
"""MLflow stores infinity as 1.797e308."""


def fits(run: Run, filters: Filters) -> bool:
    """Whether the run has one of the wanted values under every key."""
    return all(value_of(run, key) in wanted for key, wanted in filters.items())


def audited_model(run: Run, experiment: str) -> AuditedModel:
    """A run as a record, with the numbers that a leaderboard can show."""
    tags, params = run.data.tags, run.data.params
    samples, digest, count = _samples(run)
    catalogue, metrics, worst = explained(tags, run.data.metrics)
    return AuditedModel(
        run_id=run.info.run_id,
        experiment=experiment,
        name=tags.get("classwise.model") or run.info.run_name or run.info.run_id,
        audit_id=tags.get("classwise.audit_id", ""),
        started=int(run.info.start_time or 0),
        threat_model=tags.get("classwise.threat_model") or UNDECLARED,
        samples=samples or params.get("samples", ""),
        digest=digest,
        count=count,
        temperature=params.get("temperature", ""),
        outcome=tags.get("classwise.outcome", ""),
        tags={key.removeprefix(MODEL_TAG): value for key, value in tags.items() if key.startswith(MODEL_TAG)},
        numbers=numbers_of(catalogue, metrics, _undefined(tags.get("classwise.undefined", ""))),
        worst=worst,
        catalogue=catalogue,
    )


def explained(
    tags: Mapping[str, str], metrics: Mapping[str, float]
) -> tuple[Catalogue, Mapping[str, float], dict[str, str]]:
    """What a run's metrics are, its metrics, and the weakest class by series; a run of 0.1.0 is read from its keys."""
    measured = series_of(tags)
    if measured is None:
        metrics = spelled.today(metrics)
        return of_keys(metrics), metrics, spelled.weakest(metrics)
    numbers = [number for each in measured for number in numbers_of_series(each.lens, each.series, each.grouping)]
    return Catalogue([*numbers, SECONDS]), metrics, {each.lens: each.worst for each in measured if each.worst}


def numbers_of(catalogue: Catalogue, metrics: Mapping[str, float], undefined: Mapping[str, str]) -> dict[str, Estimate]:
    """Numbers with their limits, by key; undefined ones with their reason.

    Shares that are known between two series, ``probacc/X/certified`` and ``probacc/X/possible``, also become one number
    ``probacc/X/aggregate``, which is added to the catalogue: what is certified, between the limits of both.
    """
    known = {key: value for key, raw in metrics.items() if (value := finite(raw)) is not None and abs(value) < _LARGEST}
    numbers = {key: Estimate(None, reason=reason) for key, reason in undefined.items() if key in catalogue}
    for key in catalogue:
        if key in known:
            low, high = known.get(f"{key}_low"), known.get(f"{key}_high")
            numbers[key] = Estimate(
                known[key], known.get(f"{key}{JOINT_LOW}", low), known.get(f"{key}{JOINT_HIGH}", high)
            )
    for key, (number, estimate) in bracketed(catalogue, numbers).items():
        catalogue[key] = number
        numbers[key] = estimate
    return numbers


def _undefined(text: str) -> dict[str, str]:
    lines = (line.partition(": ") for line in text.splitlines())
    return {key: reason for key, mark, reason in lines if mark}


def _samples(run: Run) -> tuple[str, str, int]:
    """URI, digest and number of the audited samples, as the run's data set tells them."""
    for entry in getattr(run.inputs, "dataset_inputs", None) or ():
        if any(tag.key == "mlflow.data.context" and tag.value == "audit" for tag in entry.tags):
            profile = parsed(entry.dataset.profile or "")
            count = profile.get("num_rows") if isinstance(profile, dict) else 0
            return entry.dataset.name, entry.dataset.digest, count if isinstance(count, int) else 0
    return "", "", 0


def value_of(run: Run, key: str) -> str | None:
    tags: dict[str, str] = run.data.tags
    if key == "threat_model":
        return tags.get(FIELDS[key]) or UNDECLARED
    if key in FIELDS:
        return tags.get(FIELDS[key])
    return tags.get(f"{MODEL_TAG}{key}", tags.get(key))


def parsed(text: str) -> Any:
    """JSON as plain data, None for anything else."""
    try:
        return json.loads(text)
    except ValueError:
        return None
