"""A short fine-tuning as a remedy: the audited network, trained on with the class weights that the audit measured.

It is a sweep of one trial as `classwise train` runs them, checkpoints, resume and all, from the model's own weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from jobs.fleetfile.mlflow_uri import mlflow_sources
from jobs.fleetfile.tree import FleetConfig, PlacementConfig
from jobs.repair.fitting import Remedy, Trying, first_look
from jobs.repair.offsets import Tried
from jobs.terminal.progress import Reporter
from jobs.training.progress import QuietTraining
from jobs.training.sweep_plan import TrainPlan
from jobs.training.sweep_run import Trained, run_sweep
from jobs.training.sweepfile import validate_sweep
from jobs.training.train_audit import entry_of
from services.errors import ConfigError, Problem, WorkerError
from services.loading.factories import factory
from services.loading.models.schemes.factory import CHOICE
from services.loading.samples.source import open_samples
from services.loading.uris import parse_uri
from services.records import Series
from services.records.trials import EpochPoint, TrialResult
from services.training.methods import METHODS
from services.training.networks import ARCHITECTURES

WEIGHTED, ADJUSTED = "weighted", "logit-adjusted"
STEPS = 10
"""Of the attack that is trained against; a step is a quarter of the radius, as in PRB B.2."""
EPOCHS = 5
RECIPE = {"epochs": EPOCHS, "lr": 0.005, "batch": 128, "weight_decay": 5e-4, "schedule": "cosine"}
HELD_OUT = 0.1
"""Share of the training samples by which the epoch is chosen."""
LEAST_WEIGHT = 0.05
"""Of the mean weight: a class without errors stays in the training."""


@dataclass(frozen=True)
class Tuning:
    """What to train.

    Attributes:
        train: source of the training samples.
        method: name or fields of a training method; the radius is that of the series where it gives none, and the
            class weights of `weighted` and rates of `logit-adjusted` are those measured.
        recipe: what differs from `RECIPE`.
        architecture: with its arguments, where the model's source does not say which it is.
    """

    train: str
    method: str | Mapping[str, Any] = WEIGHTED
    recipe: Mapping[str, Any] = field(default_factory=dict)
    architecture: Mapping[str, Any] | None = None


def asked_for(train: str, method: str, recipe: str, architecture: str = "") -> Tuning | None:
    """A fine-tuning as the command line gives it; None without training samples.

    Raises:
        ConfigError: a method, recipe or architecture that is no name or mapping, or one without training samples.
    """
    how, changes = _yaml("--method", method, str | dict), _yaml("--recipe", recipe, dict)
    network = _yaml("--architecture", architecture, str | dict) if architecture else None
    if train:
        return Tuning(train, how, changes, {"name": network} if isinstance(network, str) else network)
    if method != WEIGHTED or changes or network:
        raise ConfigError(Problem("--train", "training samples, for a method or recipe", "none", "add --train SAMPLES"))
    return None


def _yaml(option: str, text: str, kinds: Any) -> Any:
    import yaml

    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        value = None
    if not isinstance(value, kinds):
        raise ConfigError(Problem(option, "a mapping such as {epochs: 3}", repr(text), "quote it for the shell"))
    return value


def tuned(trying: Trying, tuning: Tuning) -> Remedy | None:
    """Train, and measure what came out where the model was measured; None where it is no better there.

    Raises:
        ConfigError: the model is no network that can be trained here, the series no attack that training knows, the
            classes are others, or samples that are to show the repair are among the training samples.
        ClasswiseError: as `run_sweep` and `run_audit`.
    """
    config = trying.fleet.config
    if problems := hindrances(config, trying.series, tuning):
        raise ConfigError(problems)
    fit, _ = first_look(trying)
    data = sweep_data(config, tuning, trying.series, [tuning.method], fit.start)
    sweep = validate_sweep(data, source="repair --train")
    with mlflow_sources(config):
        trained = run_sweep(sweep, _Notes(trying.reporter), check=lambda plan: _check(trying, tuning, plan))
    trial = _usable(trained)
    entry = {**trying.entry, "uri": trial.uri, "offsets": [], "input": entry_of(trial)["input"]}
    after = trying.tried(trying.audited([entry]).models[0])
    trying.reporter.note(
        f"on the samples of the fit: worst class {fit.start.worst:.4g} to {after.worst:.4g}, "
        f"mean {fit.start.mean:.4g} to {after.mean:.4g}"
    )
    fit.tried.append(after)
    if fit.best is not after:
        return None
    training = {"method": trial.method, "recipe": trial.recipe, "samples": tuning.train}
    facts = {"uri": trial.uri, "training": training}
    return Remedy("tuning", entry, fit, after, identity=("tuning", trial.key), facts=facts)


def measured_weights(tried: Tried, bound: float) -> tuple[float, ...]:
    """``w_k = (1 - s_k / bound) / mean_j (1 - s_j / bound)``, at least `LEAST_WEIGHT`: the share of errors of a class.

    A class without samples has the weight 1.
    """
    errors = 1 - np.array(tried.scores) / bound
    mean = float(np.nanmean(errors))
    weights = np.ones(len(errors)) if mean <= 0 else errors / mean
    return tuple(np.maximum(np.nan_to_num(weights, nan=1.0), LEAST_WEIGHT).round(4).tolist())


def measured_rates(tried: Tried, bound: float) -> tuple[float, ...]:
    """``s_k / bound``, at least `LEAST_WEIGHT`: a class that is seldom right must win by a margin, as a rare one would.

    A class without samples has the mean of the others.
    """
    shares = np.array(tried.scores) / bound
    shares = np.nan_to_num(shares, nan=float(np.nanmean(shares)))
    return tuple(np.maximum(shares, LEAST_WEIGHT).round(4).tolist())


def hindrances(config: FleetConfig, series: Series, tuning: Tuning) -> list[Problem]:
    """Why the model cannot be trained on, or not against the series."""
    return [*_model_problems(config, tuning), *_series_problems(series)]


def _model_problems(config: FleetConfig, tuning: Tuning) -> Iterator[Problem]:
    model = config.models[0]
    if tuning.architecture is None and _architecture(config) is None:
        expected = "factory: with one of the architectures that are trained here, or --architecture"
        remedy = "say which: --architecture '{name: resnet18}'; others by the entry point classwise.architectures"
        yield Problem(f"{model.name} (uri)", expected, model.uri, remedy)
    if model.outputs != "logits" or model.output is not None:
        yield Problem(f"{model.name} (outputs)", "a network that returns logits", model.outputs, "fit offsets")
    odd = _contract(config).model_dump(exclude_defaults=True, exclude={"mean", "std"})
    if odd:
        expected = "a network of images in [0, 1], with mean and std alone"
        yield Problem(f"{model.name} (input)", expected, ", ".join(odd), "say the same by mean and std, or fit offsets")


def _series_problems(series: Series) -> Iterator[Problem]:
    threat = series.threat
    if threat is not None and (threat.norm != "Linf" or not threat.epsilon):
        remedy = "name a series of Linf or clean with --under, or fit offsets"
        yield Problem("--under", "an attack in Linf, or clean accuracy: training knows no other", series.key, remedy)


def _contract(config: FleetConfig) -> Any:
    return config.models[0].input or config.input


def _architecture(config: FleetConfig) -> dict[str, Any] | None:
    """The architecture that the model's factory builds, under whatever module it is named, with its arguments.

    Raises:
        SourceError: the module is not allowed, or has no such function.
    """
    uri = parse_uri(config.models[0].uri)
    if uri.scheme != "factory":
        return None
    called = uri.rest.rpartition(":")[2]
    alike = [name for name in ARCHITECTURES.names() if ARCHITECTURES.location(name)[1] == called]
    function = factory(uri, config.factories) if alike else None
    name = next((name for name in alike if ARCHITECTURES.get(name) is function), None)
    arguments = {key: _plain(text) for key, text in uri.query.items() if key not in ("weights", *CHOICE)}
    return None if name is None else {"name": name, **arguments}


def sweep_data(
    config: FleetConfig,
    tuning: Tuning,
    series: Series,
    methods: list[str | Mapping[str, Any]],
    start: Tried | None = None,
) -> dict[str, Any]:
    """The fine-tuning as a sweep file.

    Args:
        start: scores of the classes, for methods that go by them.
    """
    contract = _contract(config)
    normalisation = {} if contract.mean is None else {"mean": list(contract.mean), "std": list(contract.std)}
    shared = {name: getattr(config.resources, name) for name in PlacementConfig.model_fields}
    network = {**(tuning.architecture or _architecture(config) or {}), "init": config.models[0].uri}
    return {
        "sweep": f"{config.fleet}-tuning"[-100:],
        "methods": [_method(method, series, start) for method in methods],
        "architectures": [network],
        "datasets": [{"name": "samples", "root": tuning.train, "holdout": HELD_OUT, "recipe": normalisation}],
        "seeds": [config.seed],
        "recipe": {**RECIPE, **tuning.recipe},
        "resources": shared,
        "storage": config.storage,
        "tracking": {"enabled": False, "uri": config.tracking.uri},
        "factories": list(config.factories),
    }


def _method(given: str | Mapping[str, Any], series: Series, start: Tried | None) -> dict[str, Any]:
    """The method's fields, with the series' radius and what was measured of the classes where none are given."""
    fields: dict[str, Any] = {"name": given} if isinstance(given, str) else dict(given)
    takes = METHODS.get(str(fields.get("name")), where="--method").model_fields
    threat = series.threat
    if threat is not None and "budget" in takes and "budget" not in fields:
        fields["budget"] = {"epsilon": threat.epsilon, "step": threat.epsilon / 4, "steps": STEPS}
    base = "erm" if threat is None else "pgd"
    if start is None:
        return fields
    if fields.get("name") == WEIGHTED:
        return {"weights": measured_weights(start, series.bound), "base": base, **fields}
    if fields.get("name") == ADJUSTED:
        return {"rates": measured_rates(start, series.bound), "base": base, **fields}
    return fields


def _plain(text: str) -> Any:
    """An argument of the network as the source has it: numbers, true and false by themselves."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float) else text


def _check(trying: Trying, tuning: Tuning, plan: TrainPlan) -> None:
    """Other classes, and samples that would be trained on and then show the repair.

    Raises:
        ConfigError: one of the two.
    """
    spec = replace(trying.fleet.config.sample_spec(), part="reserve", training=tuning.train)
    fresh = open_samples(spec, allowed_factories=trying.fleet.config.factories)
    (data,) = plan.sets.values()
    problems = []
    if tuple(data.facts.classes) != fresh.classes:
        actual = f"{', '.join(data.facts.classes[:5])} for {', '.join(fresh.classes[:5])}"
        problems.append(Problem("--train", "the classes of the samples, in their order", actual, "set ?classes="))
    if fresh.intake.trained_on:
        actual = f"{fresh.intake.trained_on} of {len(fresh)} among the training samples"
        remedy = "train on other samples: these are to show the repair"
        problems.append(Problem("--train", "fresh samples that are not trained on", actual, remedy))
    if problems:
        raise ConfigError(problems)


def _usable(trained: Trained) -> TrialResult:
    (trial,) = trained.result.trials
    if not trial.usable:
        remedy = "lower lr by --recipe" if trial.state == "diverged" else "fix it and repair again"
        raise WorkerError(Problem("fine-tuning", "it to end well", f"{trial.state}: {trial.reason}", remedy))
    return trial


class _Notes(QuietTraining):
    """Epochs as notes of the repair."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def epoch(self, name: str, point: EpochPoint) -> None:
        """One line."""
        held = point.validation
        worst = "" if held is None or held.worst_class is None else f", held out: worst class {held.worst_class:.3g}"
        self._reporter.note(f"fine-tuning, epoch {point.epoch + 1}: loss {point.loss:.4g}{worst}")

    def note(self, text: str) -> None:
        """Hand it on."""
        self._reporter.note(text)
