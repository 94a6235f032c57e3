"""What a sweep has to do, found out before any training: data are read, networks built and fed, methods tried.

Reports every problem of all trials together. What is left is a task a trial, with the key of all that its weights
depend on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from jobs.fleetfile.mlflow_uri import mlflow_store
from jobs.training.mapper_plan import MapperKey, measured_sets, planned_mapper, probed_mappers
from jobs.training.planned import KEY_VERSION, PlannedTrial, base_of, planned
from jobs.training.sweep_tree import SweepConfig
from jobs.training.sweepfile import Sweep, Trial, label_of
from services.errors import ClasswiseError, PreflightError, Problem
from services.records import digest_of
from services.records.trials import Start
from services.storage import files
from tracking.bundle.training_bundle import start_file, sweep_folder

if TYPE_CHECKING:
    from torch import nn

    from services.training.data.sets import TrainingSet
    from services.training.preflight import Probed, StartWeights

Pair = tuple[str, str]
"""Labels of an architecture and of a data set."""


@dataclass(frozen=True)
class TrainPlan:
    """A sweep that can be trained.

    Attributes:
        folder: of the sweep.
        trials: in order.
        sets: training sets by label.
        notes: what a user should know before the first epoch.
        starts: by the URL of their copy, the weights that fine-tunings start from.
    """

    folder: str
    trials: tuple[PlannedTrial, ...]
    sets: dict[str, TrainingSet]
    notes: tuple[str, ...] = ()
    starts: dict[str, StartWeights] = field(default_factory=dict)


def plan_training(sweep: Sweep) -> TrainPlan:
    """Read the data, try every network, method and mapper, and lay out the trials.

    Raises:
        ClasswiseError: with the faults of all data sets, or of all trials.
    """
    config = sweep.config
    files.filesystem(config.storage)
    with mlflow_store(config.storage, config.tracking.uri, needed=config.reads_mlflow):
        return _planned_training(sweep, config)


def _planned_training(sweep: Sweep, config: SweepConfig) -> TrainPlan:
    sets = _read_sets(config)
    problems: list[Problem] = []
    notes: list[str] = []
    starts: dict[Pair, StartWeights] = {}
    options, probes = _probed_networks(sweep, sets, problems, notes, starts)
    problems += _checked_methods(sweep, sets, options, probes)
    sets = measured_sets(sweep, sets, problems)
    mapped = probed_mappers(sweep, sets, problems)
    problems += _memory_problems(sweep, sets, probes, mapped)
    if problems:
        raise PreflightError(list(dict.fromkeys(problems)))
    folder = sweep_folder(base_of(config), config.sweep)
    networks = [_planned(trial, options[_pair(trial)], sets, starts, config) for trial in sweep.networks]
    mappers = (planned_mapper(trial, sets, config) for trial in sweep.mappers)
    pairs = zip(sweep.networks, networks, strict=True)
    copies = {item.task.start.file: starts[_pair(trial)] for trial, item in pairs if item.task.start}
    return TrainPlan(folder, (*networks, *mappers), sets, tuple(notes), copies)


def _read_sets(config: SweepConfig) -> dict[str, TrainingSet]:
    from services.training.data.sets import read_set

    sets: dict[str, TrainingSet] = {}
    problems: list[Problem] = []
    kind: type[ClasswiseError] = PreflightError
    for entry in config.datasets:
        try:
            sets[label_of(entry)] = read_set(entry.spec())
        except ClasswiseError as error:
            problems += error.problems
            kind = type(error)
    if problems:
        raise kind(problems)
    return sets


def _pair(trial: Trial) -> Pair:
    return label_of(trial.architecture), label_of(trial.dataset)


def _probed_networks(
    sweep: Sweep,
    sets: dict[str, TrainingSet],
    problems: list[Problem],
    notes: list[str],
    starts: dict[Pair, StartWeights],
) -> tuple[dict[Pair, dict[str, Any]], dict[Pair, Probed]]:
    """The arguments of each network on each training set, and what its probe showed where it passed.

    Adds what does not pass to `problems`, and the weights that networks start from to `starts`.
    """
    from services.training.preflight import fitted, probe_network, read_start

    options: dict[Pair, dict[str, Any]] = {}
    probes: dict[Pair, Probed] = {}
    for trial in sweep.networks:
        pair = _pair(trial)
        if pair in options:
            continue
        name, data = trial.architecture.name, sets[pair[1]]
        options[pair] = fitted(name, trial.architecture.options(), data.facts)
        try:
            where = f"{pair[0]} on {pair[1]}"
            probes[pair] = probe_network(name, options[pair], data, trial.recipe, where)
            if (load := _start_of(trial, sweep.config, where)) is not None:
                starts[pair], remark = read_start(name, options[pair], load, data, trial.recipe, where)
                notes += [remark] if remark else []
        except ClasswiseError as error:
            problems += error.problems
    return options, probes


def _checked_methods(
    sweep: Sweep, sets: dict[str, TrainingSet], options: dict[Pair, dict[str, Any]], probes: dict[Pair, Probed]
) -> Iterator[Problem]:
    """What trials ask of their data, and one step of each method on each training set, on its quickest network."""
    from services.training.preflight import SLOW_SECONDS, check_recipe, probe_method

    workers, tried = sweep.config.resources.workers, set[tuple[str, str]]()
    quickest = {
        data: min((probe.seconds, pair) for pair, probe in probes.items() if pair[1] == data) for _, data in probes
    }
    for trial in sweep.networks:
        method, pair = trial.method, _pair(trial)
        where = f"{method.label} on {pair[1]}"
        yield from check_recipe(method.method, trial.recipe, sets[pair[1]], workers, where)
        seconds, chosen = quickest.get(pair[1], (SLOW_SECONDS, pair))
        if (method.label, pair[1]) in tried or chosen != pair or seconds >= SLOW_SECONDS:
            continue
        tried.add((method.label, pair[1]))
        try:
            probe_method(method.method, trial.architecture.name, options[pair], sets[pair[1]], trial.recipe, where)
        except ClasswiseError as error:
            yield from error.problems


def _memory_problems(
    sweep: Sweep, sets: dict[str, TrainingSet], probes: dict[Pair, Probed], mapped: dict[MapperKey, Probed]
) -> Iterator[Problem]:
    """Trials that this machine's memory cannot hold, when they run on its cores."""
    resources = sweep.config.resources
    if resources.gpus or resources.address or os.environ.get("RAY_ADDRESS"):
        return
    have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    parts = [part for split in sets.values() for part in (split.train, split.held) if part is not None]
    mixed = [
        part for split in sets.values() if split.extra for part in (split.train, split.extra.data, split.extra.data)
    ]
    data = sum(part.images.nbytes for part in (*parts, *mixed))
    copies = 1 if resources.runner == "local" else 2
    for trial in sweep.trials:
        probe = probes.get(_pair(trial)) if isinstance(trial, Trial) else mapped.get(trial.key)
        if probe is None:
            continue
        need = data * copies + probe.needs(trial.recipe.batch)
        if need > have:
            actual = f"{have / 2**30:.1f} GiB in this machine"
            remedy = "lower recipe.batch, take less of the data, choose a smaller network, or train on a GPU"
            yield Problem(trial.name, f"about {need / 2**30:.1f} GiB of memory", actual, remedy)


def _planned(
    trial: Trial,
    options: dict[str, Any],
    sets: dict[str, TrainingSet],
    starts: Mapping[Pair, StartWeights],
    config: SweepConfig,
) -> PlannedTrial:
    facts, method = sets[label_of(trial.dataset)].facts, trial.method.method.canonical()
    workers = config.resources.workers
    parts = [method, trial.recipe.canonical(), trial.architecture.name, options, facts.digest, workers]
    start, key = starts.get(_pair(trial)), trial.architecture.init_key or ""
    own = [] if start is None else [start.digest, key]
    name, whole = trial.architecture.name, digest_of("trial", KEY_VERSION, *parts, *own)
    item = planned(trial, options, config, key=whole, method=method, architecture=name, workers=workers)
    if start is None:
        return item
    copy = start_file(sweep_folder(base_of(config), config.sweep), digest_of(name, options, *own))
    return replace(item, task=replace(item.task, start=Start(copy, start.digest, key)))


def _start_of(trial: Trial, config: SweepConfig, where: str) -> Callable[[nn.Module], str] | None:
    """What loads the weights that it starts from, if it starts from any."""
    from services.training.starting import load_start

    given = trial.architecture
    if given.init is None:
        return None
    return partial(load_start, init=given.init, key=given.init_key, factories=config.factories, where=f"{where} (init)")
