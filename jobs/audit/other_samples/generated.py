"""GREAT on samples of a generative model beside the audit's own: what the score's theorem asks for, and the difference.

The generated samples get an audit of their own, of the GREAT scores and clean accuracy, under the temperature that the
first audit chose; its numbers are laid beside those of the first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jobs.audit import audit
from jobs.audit.audit import Finished, run_audit
from jobs.audit.other_samples.generalisation import gaps
from jobs.audit.session import RunnerFactory
from jobs.fleetfile.followups import NOTHING_FOLLOWS
from jobs.fleetfile.mlflow_uri import mlflow_sources
from jobs.fleetfile.reading import Fleet, validate_fleet
from jobs.terminal.progress import Reporter
from services.errors import PreflightError, Problem
from services.loading.samples.source import open_samples
from services.measures.great import Great
from services.records import SampleFacts
from tracking.bundle.bundle import write_bundle


def audit_both(
    fleet: Fleet, reporter: Reporter, *, runner: RunnerFactory | None = None
) -> tuple[Finished, tuple[Fleet, Finished] | None]:
    """Audit a fleet, and its models once more on the generated samples that it names.

    Returns:
        the audit, its bundle with the differences; and the second audit with its fleet, None where none was asked for.

    Raises:
        ClasswiseError: as `run_audit`; what is wrong with the generated samples is reported before anything runs.
    """
    if fleet.config.generated is None:
        return run_audit(fleet, reporter, runner=runner, publishing=True), None
    count = check_generated(fleet)
    finished = run_audit(fleet, reporter, runner=runner, publishing=True)
    measured = [model.spec.name for model in finished.result.models if model.series]
    if not measured:
        return finished, None
    own = generated_fleet(fleet, measured, count, finished.result.calibration.temperature)
    second = run_audit(own, reporter, runner=runner, publishing=True)
    gaps_by_model = gaps(fleet, finished, own, second)
    models = [replace(model, generated=gaps_by_model.get(model.spec.name, ())) for model in finished.result.models]
    result = replace(finished.result, models=tuple(models))
    write_bundle(result, finished.folder)
    return Finished(result, finished.folder), (own, second)


def check_generated(fleet: Fleet) -> int:
    """How many samples are generated.

    Raises:
        SourceError: they cannot be opened.
        PreflightError: they are not of the audit's kind.
    """
    config = fleet.config
    spec = config.generated_spec()
    if spec is None:
        return 0
    with mlflow_sources(config):
        made = open_samples(spec, allowed_factories=config.factories)
        own = open_samples(config.sample_spec(), allowed_factories=config.factories)
    problems = []
    if tuple(made.shape) != tuple(own.shape):
        problems.append(Problem("generated.uri", f"images {tuple(own.shape)} as samples.uri", f"{tuple(made.shape)}"))
    if len(made.classes) != len(own.classes):
        expected = f"{len(own.classes)} classes as samples.uri"
        problems.append(Problem("generated.uri", expected, f"{len(made.classes)}"))
    if problems:
        raise PreflightError(problems)
    return len(made)


def generated_fleet(fleet: Fleet, names: list[str], count: int, temperature: float | None) -> Fleet:
    """The fleet that audits some of the models on the generated samples: it judges nothing.

    Its `limit` takes all of the samples, and says to the intervals that the numbers of samples a class were fixed.
    Declared accuracies are of other samples and left out.
    """
    data: dict[str, Any] = fleet.config.model_dump(mode="json")
    chosen = [model for model in data["models"] if model["name"] in names]
    for model in chosen:
        model |= {"clean_accuracy": None, "tags": {**model["tags"], "split": "generated"}, "promote": None}
    kept = [index for index, measure in enumerate(fleet.measures) if isinstance(measure, Great)]
    data |= {
        "fleet": f"{fleet.config.fleet}-generated"[:100],
        "models": chosen,
        "samples": {"limit": count, **{name: value for name, value in data["generated"].items() if value is not None}},
        "generated": None,
        "measures": ["clean", *(fleet.config.measures[index] for index in kept)],
        "gates": [],
        "groups": [],
        **NOTHING_FOLLOWS,
    }
    if temperature is not None:
        data["temperature"] = {"policy": "fixed", "value": temperature}
    return validate_fleet(data, source=data["fleet"])


def validate_sources(fleet: Fleet) -> SampleFacts:
    """What `classwise validate` does: open what the fleet names, generated samples included, and run nothing.

    Raises:
        ClasswiseError: with the problems of all models together, or those of the generated samples.
    """
    facts = audit.validate_sources(fleet)
    check_generated(fleet)
    return facts
