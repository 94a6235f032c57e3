"""What a sweep looks like in MLflow, as plain values: no server, no file.

The experiment is the sweep, its parent run the sweep as well, a child run one trial. A trial's curves are metrics with
a step an epoch; of many classes only the worst get a curve, the Parquet artifact holds all.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import get_args

from services.records import digest_of
from services.records.trials import EpochPoint, MapperFacts, Shares, State, SweepResult, TrialResult
from tracking.bundle.group_table import finite
from tracking.mlflow.layout import MODEL_TAG, WORST_CLASSES, RunContent, bounded, flat, threat_text
from tracking.names import group_key, metric_key

TRIAL_KEY = "classwise.trial_key"
SWEEP_NAME = "classwise.sweep"
CONTENT = "classwise.content"
"""Tag of the parent run: a digest of its content, so that it is logged once."""
NAMES = "classwise.names"
"""What the latent columns of a conditional mapper stand for, as JSON."""
CLASS_CURVES = 20
"""Classes up to which each has a curve; of more, the `WORST_CLASSES` of the chosen epoch have one."""

Value = tuple[str, float, int]
"""Metric, value, step."""


def trial_content(result: TrialResult) -> RunContent:
    """The run of one trial, without its curves."""
    data = {"name": result.data.name, "label": result.data.label, "digest": result.data.digest}
    counts = {"train": sum(result.data.train), "held_out": sum(result.data.held), "shape": list(result.data.shape)}
    built = {"name": result.architecture, **result.options}
    params = {
        **({"mapper": {**built, **result.method}} if result.kind == "mapper" else {"method": result.method}),
        "recipe": {key: value for key, value in result.recipe.items() if key != "seed"},
        **({"architecture": built} if result.kind == "network" else {}),
        "dataset": {**data, **counts, "classes": len(result.data.classes)},
        "seed": result.seed,
    }
    tags = {
        TRIAL_KEY: result.key,
        SWEEP_NAME: result.sweep,
        "classwise.role": "trial",
        "classwise.kind": result.kind,
        "classwise.state": result.state,
        "classwise.reason": result.reason,
        "classwise.uri": result.uri,
        "classwise.threat_model": threat_text(result.threat_model),
        "mlflow.note.content": _note(result),
        **_mapper_tags(result.mapper),
        **{f"{MODEL_TAG}{key}": value for key, value in result.tags.items()},
    }
    return bounded(result.name, dict(flat(params)), _totals(result), tags)


def parent_content(sweep: str) -> RunContent:
    """The parent run as it is made, before anything is known."""
    return RunContent(f"sweep {sweep}", {}, {}, {SWEEP_NAME: sweep, "classwise.role": "sweep"})


def sweep_content(result: SweepResult) -> RunContent:
    """The parent run. A sweep file may change between runs of it, and parameters may not: they are an artifact."""
    states = Counter(trial.state for trial in result.trials)
    metrics = {f"trials/{state}": float(states[state]) for state in get_args(State)}
    tags = {
        **parent_content(result.sweep).tags,
        CONTENT: digest_of(result.config, [(trial.key, trial.state) for trial in result.trials]),
        "classwise.outcome": result.outcome,
        "classwise.versions": json.dumps(result.versions, sort_keys=True),
    }
    metrics = {**metrics, "trials/all": float(len(result.trials))}
    return bounded(parent_content(result.sweep).name, {}, metrics, tags)


def sweep_rows(result: SweepResult) -> list[dict[str, object]]:
    """One row a trial, for the MLflow table."""
    return [
        {
            "trial": trial.name,
            "state": trial.state,
            "epochs": trial.epochs,
            **({} if trial.chosen is None or trial.mapper else _judged(trial.chosen.judged)),
            **({} if trial.mapper is None else {"explained": trial.mapper.explained, "reason": trial.reason}),
            "seconds": round(trial.seconds, 3),
            "uri": trial.uri,
        }
        for trial in result.trials
    ]


def curves(result: TrialResult, points: Sequence[EpochPoint]) -> Iterator[Value]:
    """Every metric of every epoch: `rate`, `seconds`, `train/loss`, `train/clean`, `validation/class/c003_cat`."""
    shown = _curved_classes(result)
    for point in points:
        values: dict[str, float | None] = {
            "train/loss": point.loss,
            "rate": point.rate,
            "seconds": point.seconds,
            "validation/explained": point.explained,
            **_sided("train", point.train),
            **{f"train/{name}": value for name, value in point.parts.items()},
        }
        if point.validation is not None:
            values |= _sided("validation", point.validation)
        side, judged = ("train" if point.validation is None else "validation"), point.judged
        if judged.per_class is not None:
            for index in shown:
                key = metric_key(side, "class", group_key(index, result.data.classes[index]))
                values[key] = judged.per_class[index]
        for key, value in values.items():
            if (number := finite(value)) is not None:
                yield key, number, point.epoch


def _curved_classes(result: TrialResult) -> list[int]:
    count = len(result.data.classes)
    if count <= CLASS_CURVES:
        return list(range(count))
    shares = result.chosen.judged.per_class if result.chosen else None
    scored = sorted((share, index) for index, share in enumerate(shares or ()) if share is not None)
    return [index for _, index in scored[:WORST_CLASSES]]


def _sided(side: str, shares: Shares) -> dict[str, float | None]:
    return {f"{side}/{name}": value for name, value in _judged(shares).items()}


def _judged(shares: Shares) -> dict[str, float | None]:
    return {"clean": shares.clean, "robust": shares.robust, "worst_class": shares.worst_class}


def _totals(result: TrialResult) -> dict[str, float]:
    totals: dict[str, float | None] = {"epochs": float(result.epochs), "train_seconds": result.seconds}
    if result.mapper is not None:
        totals |= _mapper_metrics(result.mapper)
    if result.chosen is not None:
        totals |= {"chosen/epoch": float(result.chosen.epoch), **_sided("chosen", result.chosen.judged)}
    return {key: number for key, value in totals.items() if (number := finite(value)) is not None}


def _mapper_metrics(mapper: MapperFacts) -> dict[str, float | None]:
    """Reconstruction, latents in use, and the mutual information gap in all and by factor."""
    gaps = {f"mig/{name}": factor.gap.value for name, factor in mapper.factors.items()}
    return {
        "reconstruction/mse": mapper.mse,
        "reconstruction/psnr": mapper.psnr,
        "reconstruction/explained": mapper.explained,
        "latents/all": float(mapper.latents),
        "latents/active": float(mapper.active),
        "mig/mean": mapper.mig.value if mapper.mig else None,
        **gaps,
    }


def _mapper_tags(mapper: MapperFacts | None) -> dict[str, str]:
    if mapper is None:
        return {}
    names = json.dumps(mapper.names) if mapper.names else ""
    return {"classwise.faithful": str(mapper.faithful).lower(), "classwise.generator": mapper.generator, NAMES: names}


def _note(result: TrialResult) -> str:
    lines = [f"**{result.state}** after {result.epochs} epochs. {result.reason}".strip()]
    if result.uri:
        lines += ["", f"`{result.uri}`"]
    if result.mapper and result.mapper.generator:
        lines += ["", f"`{result.mapper.generator}`"]
    if result.chosen and not result.mapper:
        lines += ["", f"Epoch {result.chosen.epoch}: {json.dumps(_judged(result.chosen.judged))}"]
    return "\n".join(lines)
