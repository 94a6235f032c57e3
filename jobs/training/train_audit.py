"""Train, then audit: the trained networks become a fleet, audited as `classwise audit` would.

The template is a fleet file without models; models that it has are audited beside the trained ones. It is checked
against the training data before anything is trained.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from jobs.audit.audit import Finished, run_audit
from jobs.audit.other_samples import generalisation
from jobs.audit.other_samples.generated import audit_both
from jobs.audit.publish import Published, publish
from jobs.fleetfile.mlflow_uri import mlflow_sources
from jobs.fleetfile.radii import radius_problems
from jobs.fleetfile.reading import KIND, Fleet, validate_fleet
from jobs.fleetfile.tree import FleetConfig
from jobs.fleetfile.yamlfile import Locator, read_yaml, require_kind
from jobs.terminal.progress import Reporter
from jobs.training.sweep_plan import TrainPlan
from jobs.training.sweep_run import Trained
from jobs.training.sweep_tree import SweepConfig
from jobs.training.sweepfile import Sweep
from jobs.training.trial_result import contract_of
from services.errors import ClasswiseError, ConfigError, Problem, SourceError
from services.loading.models.source import fingerprint
from services.loading.samples.source import open_samples
from services.records import GapResult
from services.records.trials import DataFacts, TrialResult
from services.training.networks import ARCHITECTURES
from tracking.bundle.bundle import write_bundle
from tracking.bundle.training_bundle import folder_of_trial, read_curves, write_sweep, write_trial
from tracking.mlflow.layout import SECONDS_PER_EPOCH


@dataclass(frozen=True)
class Template:
    """A fleet file as plain data, whose models are still to be trained, and where its values stand."""

    data: dict[str, Any]
    where: Locator


@dataclass(frozen=True)
class TrainedAndAudited:
    """A sweep, the audit of its networks, those on training samples, and the trials that were left out."""

    trained: Trained
    audit: Published
    on_training: tuple[Published, ...]
    left_out: tuple[str, ...]


def load_template(path: str | Path) -> Template:
    """Read a fleet file that may lack models.

    Raises:
        ConfigError: it cannot be read, or is no mapping.
    """
    data, where = read_yaml(path, KIND)
    require_kind(data, where)
    if not isinstance(data, dict):
        raise ConfigError(Problem(where.source, f"a mapping with {KIND.keys}", type(data).__name__))
    return Template(data, where)


def check_template(template: Template, sweep: Sweep, plan: TrainPlan, **options: Any) -> None:
    """Find what would keep the audit from running, before hours of training.

    Raises:
        ConfigError: the template is wrong, or its storage or samples do not go with the sweep.
        SourceError: its samples or its own models cannot be opened.
    """
    if not sweep.networks and not template.data.get("models"):
        remedy = "leave --audit out, add methods and architectures, or give the template models"
        raise ConfigError(Problem("--audit", "a sweep with networks to audit", "mappers alone", remedy))
    entries = [_entry(trial.name, "factory:not.trained:yet", None, None, {}) for trial in sweep.networks]
    fleet = _fleet(template, sweep.config, entries, **options)
    own = {str(model.get("name")) for model in template.data.get("models") or () if isinstance(model, dict)}
    with mlflow_sources(fleet.config):
        _check_sources(fleet, sweep, plan, own)


def _check_sources(fleet: Fleet, sweep: Sweep, plan: TrainPlan, own: Collection[str]) -> None:
    samples = open_samples(fleet.config.sample_spec(), allowed_factories=fleet.config.factories)
    problems = [
        *_factory_problems(fleet, sweep),
        *_data_problems(fleet, plan, samples.shape, samples.classes),
        *radius_problems(fleet, samples.shape),
    ]
    if problems:
        raise ConfigError(problems)
    faults: list[Problem] = []
    for spec in fleet.config.model_specs():
        if spec.name in own:
            try:
                fingerprint(spec)
            except ClasswiseError as error:
                faults += error.problems
    if faults:
        raise SourceError(faults)


def audit_trained(
    template: Template, sweep: Sweep, trained: Trained, reporter: Reporter, **options: Any
) -> TrainedAndAudited | None:
    """Audit the networks whose trials ended well, on test samples and on a training sample; None without any network.

    Args:
        options: command line options that go over the template's values: storage, runner, track.
    """
    networks = [trial for trial in trained.result.trials if trial.kind == "network"]
    usable = [trial for trial in networks if trial.usable]
    left_out = tuple(trial.name for trial in networks if not trial.usable)
    if mappers := [trial.name for trial in trained.result.trials if trial.kind == "mapper"]:
        reporter.note(f"not audited, being mappers and no classifiers: {', '.join(mappers)}")
    for trial in networks:
        if not trial.usable:
            reporter.note(f"{trial.name} is not audited: it {trial.state} ({trial.reason})")
    if not usable and not template.data.get("models"):
        return None
    fleet = _fleet(template, sweep.config, [entry_of(trial) for trial in usable], **options)
    finished, generated = audit_both(fleet, reporter)
    others = [] if generated is None else [publish(*generated, reporter)]
    gaps_by_trial: dict[str, tuple[GapResult, ...]] = {}
    for own, on_training in _on_training(fleet, finished, sweep, trained, usable, reporter):
        gaps_by_trial |= generalisation.gaps(fleet, finished, own, on_training)
        others.append(publish(own, on_training, reporter))
    finished = _with_training(finished, gaps_by_trial, usable)
    audit = publish(fleet, finished, reporter)
    return TrainedAndAudited(_kept(trained, gaps_by_trial), audit, tuple(others), left_out)


def entry_of(trial: TrialResult) -> dict[str, Any]:
    """A trained network as an entry of a fleet file."""
    threat = trial.threat_model
    contract = contract_of(trial)
    return _entry(
        trial.name,
        trial.uri,
        contract.mean,
        contract.std,
        trial.tags,
        **({"threat_model": {"norm": threat.norm, "epsilon": threat.epsilon}} if threat else {}),
    )


def _entry(name: str, uri: str, mean: Any, std: Any, tags: dict[str, str], **more: Any) -> dict[str, Any]:
    """The input contract is said for every network: the template's own is of other models."""
    contract = {} if mean is None else {"mean": list(mean), "std": list(std)}
    return {"name": name, "uri": uri, "input": contract, "tags": tags, **more}


def _fleet(
    template: Template,
    sweep: SweepConfig,
    entries: Sequence[dict[str, Any]],
    *,
    storage: str | None = None,
    runner: str | None = None,
    track: bool = True,
) -> Fleet:
    """The template with the trained networks; what it leaves out of place and tracking is as the sweep has it."""
    data = dict(template.data)
    own = data.get("models") or []
    data["models"] = [*own, *entries] if isinstance(own, list) else own
    data["storage"] = storage or data.get("storage", sweep.storage)
    data.setdefault("on_model_fault", "skip")
    for part, names in (("resources", ("runner", "address")), ("tracking", ("enabled", "uri"))):
        section = data.get(part) or {}
        if isinstance(section, dict):
            data[part] = {**{name: getattr(getattr(sweep, part), name) for name in names}, **section}
    if runner is not None and isinstance(data["resources"], dict):
        data["resources"]["runner"] = runner
    if not track and isinstance(data["tracking"], dict):
        data["tracking"]["enabled"] = False
    allowed = data.get("factories", FleetConfig.model_fields["factories"].default)
    if isinstance(allowed, list | tuple):
        data["factories"] = list(dict.fromkeys([*allowed, *sweep.factories]))
    return validate_fleet(data, where=template.where)


def _factory_problems(fleet: Fleet, sweep: Sweep) -> Iterator[Problem]:
    """Networks of modules that the audit may not import."""
    allowed = fleet.config.factories
    for name in dict.fromkeys(trial.architecture.name for trial in sweep.networks):
        module, _ = ARCHITECTURES.location(name)
        if not any(fnmatchcase(module, pattern) for pattern in allowed):
            remedy = f"add {module!r} to factories if you trust its code"
            yield Problem(f"architecture {name}", f"a module that matches {', '.join(allowed)}", module, remedy)


def _data_problems(fleet: Fleet, plan: TrainPlan, shape: Sequence[int], classes: Sequence[str]) -> list[Problem]:
    """Test samples that are not of the kind that the networks are trained on."""
    problems = []
    for label, data in plan.sets.items():
        facts: DataFacts = data.facts
        where = f"{fleet.config.samples.uri} against {label}"
        if tuple(shape) != facts.shape:
            problems.append(Problem(where, f"images {facts.shape} as trained on", f"{tuple(shape)}"))
        if len(classes) != len(facts.classes):
            problems.append(Problem(where, f"{len(facts.classes)} classes as trained on", f"{len(classes)}"))
        elif set(classes) == set(facts.classes) and tuple(classes) != facts.classes:
            remedy = "give the samples' classes in the order of the training data"
            problems.append(Problem(where, "classes in the order trained on", ", ".join(classes[:5]), remedy))
    return problems


def _on_training(
    fleet: Fleet, finished: Finished, sweep: Sweep, trained: Trained, usable: Sequence[TrialResult], reporter: Reporter
) -> Iterator[tuple[Fleet, Finished]]:
    """Audits on the training samples, one for each training set that has networks."""
    config = sweep.config.generalisation
    measured = {model.spec.name for model in finished.result.models if model.series}
    for label, data in trained.plan.sets.items():
        names = [trial.name for trial in usable if trial.data.label == label and trial.name in measured]
        if config is None or not names:
            continue
        sample = generalisation.write_sample(data, config, trained.folder)
        several = label if len(trained.plan.sets) > 1 else ""
        own = generalisation.training_fleet(fleet, names, sample, several, finished.result.calibration.temperature)
        yield own, run_audit(own, reporter, publishing=True)


def _with_training(
    finished: Finished, gaps_by_trial: dict[str, tuple[GapResult, ...]], usable: Sequence[TrialResult]
) -> Finished:
    """The audit with what is known of the training of its models, in its bundle too."""
    seconds = {trial.name: (trial.seconds - trial.judging) / trial.epochs for trial in usable if trial.epochs}
    models = []
    for model in finished.result.models:
        name = model.spec.name
        facts = {**model.facts, **({SECONDS_PER_EPOCH: seconds[name]} if name in seconds else {})}
        models.append(generalisation.with_gaps(replace(model, facts=facts), gaps_by_trial))
    result = replace(finished.result, models=tuple(models))
    write_bundle(result, finished.folder)
    return Finished(result, finished.folder)


def _kept(trained: Trained, gaps_by_trial: dict[str, tuple[GapResult, ...]]) -> Trained:
    """The sweep with the generalisation errors in its files."""
    trials = []
    for trial in trained.result.trials:
        if trial.name in gaps_by_trial:
            trial = replace(trial, generalisation=gaps_by_trial[trial.name])
            folder = folder_of_trial(trained.folder, trial)
            write_trial(trial, read_curves(folder), folder)
        trials.append(trial)
    result = replace(trained.result, trials=tuple(trials))
    write_sweep(result, trained.folder)
    return replace(trained, result=result)
