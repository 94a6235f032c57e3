"""What the mappers of a sweep have to do, found out before any training: attributes measured, every mapper tried."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from jobs.training.planned import KEY_VERSION, PlannedTrial, planned
from jobs.training.sweep_tree import SweepConfig
from jobs.training.sweepfile import MapperTrial, Sweep, label_of
from services.errors import ClasswiseError, Problem
from services.records import digest_of

if TYPE_CHECKING:
    from services.training.data.sets import TrainingSet
    from services.training.preflight import Probed

MapperKey = tuple[str, str]
"""Labels of a mapper and of a data set."""


def measured_sets(sweep: Sweep, sets: dict[str, TrainingSet], problems: list[Problem]) -> dict[str, TrainingSet]:
    """The training sets with the attributes that mappers ask of them, measured once for all trials.

    Attributes that images lack, or in which they do not differ, are reported.
    """
    names = list(dict.fromkeys(name for trial in sweep.mappers for name in trial.mapper.measured))
    if not names:
        return sets
    from services.training.mappers.kinds import attribute_problems, measure

    measured = {}
    for label, data in sets.items():
        attributes = measure(data, names)
        problems += attribute_problems(data, attributes, names)
        measured[label] = replace(data, attributes=attributes)
    return measured


def probed_mappers(sweep: Sweep, sets: dict[str, TrainingSet], problems: list[Problem]) -> dict[MapperKey, Probed]:
    """What one step of each mapper on each training set showed, where it passed."""
    if not sweep.mappers:
        return {}
    from services.training.mappers.kinds import fitted
    from services.training.mappers.trial import probe_mapper

    probes: dict[MapperKey, Probed] = {}
    tried = set[MapperKey]()
    for trial in sweep.mappers:
        if trial.key in tried:
            continue
        tried.add(trial.key)
        mapper, data = trial.mapper, sets[trial.key[1]]
        options = fitted(mapper.latents, mapper.width, mapper.conditions, data.facts)
        try:
            probes[trial.key] = probe_mapper(mapper.kind, options, data, trial.recipe, " on ".join(trial.key))
        except ClasswiseError as error:
            problems += error.problems
    return probes


def planned_mapper(trial: MapperTrial, sets: dict[str, TrainingSet], config: SweepConfig) -> PlannedTrial:
    """A mapper's trial, with the key of everything that it depends on."""
    from services.training.mappers.kinds import fitted

    mapper, facts = trial.mapper, sets[label_of(trial.dataset)].facts
    options = fitted(mapper.latents, mapper.width, mapper.conditions, facts)
    how = {"name": mapper.kind, "conditions": list(mapper.conditions), "factors": list(mapper.judged)}
    method = json.dumps(how, sort_keys=True)
    key = digest_of("mapper", KEY_VERSION, method, trial.recipe.canonical(), options, facts.digest)
    return planned(trial, options, config, key=key, method=method, architecture=mapper.kind, kind="mapper")
