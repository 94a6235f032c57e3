"""A mapper as a trial: what happens to it on a worker, and what is said of it when it is trained."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import torch

from services.errors import PreflightError, Problem, raised_at
from services.records.trials import (
    LEAST_EXPLAINED,
    Begun,
    EpochDone,
    EpochPoint,
    FactorGap,
    MapperFacts,
    Shares,
    TrialDone,
    TrialReport,
    TrialTask,
)
from services.training.data.batches import Images
from services.training.data.sets import TrainingSet
from services.training.mapper_recipe import MapperRecipe
from services.training.mappers.gan import ConditionalGan
from services.training.mappers.kinds import Conditions, build, conditions_of
from services.training.mappers.run import MapperEpoch, MapperReport, MapperRun, objective_of
from services.training.preflight import Probed, SavedBytes, built, probe_rows


def mapper_events(task: TrialTask, data: TrainingSet) -> Iterator[Begun | EpochDone | TrialDone]:
    """What happens to the trial of a mapper: it begins, epochs end, it ends."""
    recipe, how = MapperRecipe.model_validate_json(task.recipe), json.loads(task.method)
    conditions = conditions_of(data, how["conditions"])
    run = MapperRun(
        build(task.architecture, seed=recipe.seed, **dict(task.options)),
        data.train.images,
        conditions=None if conditions is None else conditions.values,
        factors={name: data.attributes[name] for name in how["factors"]},
        recipe=recipe,
        storage=task.folder,
    )
    yield Begun(task, run.resumed_at)
    for record in run.epochs():
        yield EpochDone(task, point_of(record, recipe))
    points = tuple(point_of(record, recipe) for record in run.records)
    if run.diverged:
        yield TrialDone(task, TrialReport("diverged", run.diverged, None, run.resumed_at, points))
        return
    facts = _facts(run.report(), run.mapper.latents, conditions)
    reason = "" if facts.faithful else _unfaithful(facts)
    yield TrialDone(task, TrialReport("finished", reason, recipe.epochs - 1, run.resumed_at, points, facts))


def point_of(record: MapperEpoch, recipe: MapperRecipe) -> EpochPoint:
    """An epoch as trials report it."""
    parts = {name: value for name, value in record.losses.items() if name != "loss"}
    loss = record.losses["loss"]
    return EpochPoint(record.epoch, loss, recipe.lr, record.seconds, Shares(), explained=record.explained, parts=parts)


def probe_mapper(kind: str, options: dict[str, Any], data: TrainingSet, recipe: MapperRecipe, where: str) -> Probed:
    """Build a mapper and make one step with a few images.

    Raises:
        ConfigError: it does not build for such images.
        PreflightError: the images are not square, or the step raises.
    """
    _, height, across = data.facts.shape
    if height != across:
        raise PreflightError(Problem(where, "square images for a mapper", f"{height}x{across}", "resize or pad them"))
    mapper = built(lambda: build(kind, seed=0, **options), where)
    rows, began = probe_rows(data), time.perf_counter()
    images = Images(data.train.images, data.train.labels, torch.device("cpu")).rows(rows)
    conditions = torch.zeros(len(rows), mapper.conditions) if isinstance(mapper, ConditionalGan) else None
    objective = objective_of(mapper, recipe.model_copy(update={"device": "cpu"}))
    saved = SavedBytes(*objective.modules.values())
    try:
        with torch.autograd.graph.saved_tensors_hooks(saved.keep, lambda kept: kept):
            objective.step(images, conditions, torch.Generator().manual_seed(0))
    except Exception as error:
        raise PreflightError(Problem(where, "a step of the mapper", raised_at(error))) from error
    parameters = sum(p.numel() for module in objective.modules.values() for p in module.parameters())
    return Probed(parameters, saved.bytes // len(rows), time.perf_counter() - began)


def _facts(report: MapperReport, latents: int, conditions: Conditions | None) -> MapperFacts:
    quality, gap = report.reconstruction, report.disentanglement
    first = latents - (0 if conditions is None else len(conditions.names))
    return MapperFacts(
        mse=quality.mse,
        psnr=quality.psnr,
        explained=quality.explained,
        held=quality.images,
        latents=latents,
        active=report.active,
        mig=gap.mig if gap else None,
        factors={name: FactorGap(value, gap.latent[name]) for name, value in gap.gaps.items()} if gap else {},
        names={first + index: name for index, name in enumerate(conditions.names)} if conditions else {},
        scales=conditions.scales if conditions else {},
    )


def _unfaithful(facts: MapperFacts) -> str:
    share = "none" if facts.explained is None else f"{facts.explained:.1%}"
    requirement = f"at least {LEAST_EXPLAINED:.0%} are asked"
    return f"does not reconstruct: cannot judge (it explains {share} of the variance held out, {requirement})"
