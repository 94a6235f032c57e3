"""The fleet file as one typed, frozen tree.

Everything a user can get wrong is found here, before Ray, torch or MLflow are imported, and reported together.
`jobs.fleetfile.reading` reads YAML into this tree and turns its complaints into `Problem`s with line numbers.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    field_validator,
    model_validator,
)

from jobs.fleetfile.deciding import Decide, EarlyConfig
from jobs.fleetfile.followups import NotifyConfig, PromoteConfig
from jobs.fleetfile.gates import GateConfig
from jobs.fleetfile.inputs import InputConfig, JobName, ModelConfig, Name, SamplesConfig, crossed
from jobs.fleetfile.parts import Part as Part
from services.records import (
    InputContract,
    ModelSpec,
    SampleSpec,
    ThreatModel,
)
from services.telemetry.redaction import redacted

MEASURES, GATES = 100, 1000
"""Of a fleet, at most."""
MOST_SECONDS = 31_536_000.0
"""A year."""


class TemperatureConfig(Part):
    """How the temperature of the GREAT score is chosen."""

    policy: Literal["fixed", "fleet-accuracy", "class-accuracy", "ranking-stability"] = "fixed"
    value: float = Field(1.0, gt=0, le=1000, description="The temperature of policy fixed.")
    low: float = Field(0.01, gt=0)
    high: float = Field(10.0, gt=0)
    step: float = Field(0.1, gt=0)
    fine_step: float = Field(0.001, gt=0)

    @model_validator(mode="after")
    def _order(self) -> TemperatureConfig:
        if self.low >= self.high:
            raise ValueError("low must be below high")
        if (self.high - self.low) / self.step > 100_000 or self.step / self.fine_step > 100_000:
            raise ValueError("at most 100,000 temperatures a grid; make the step larger")
        return self


class IntervalsConfig(Part):
    """How sure: the method and the level of all intervals."""

    method: Literal["betting", "hoeffding", "empirical-bernstein"] = Field(
        "betting", description="For scores; 0/1 measures always get Clopper-Pearson."
    )
    delta: float = Field(
        0.05, gt=0, lt=0.5, description="Each family of intervals misses with at most this probability."
    )
    anytime: bool = Field(
        False,
        description="Limits by class that hold at every look: wider, and more samples may be added until they decide.",
    )


def _without_secret(value: str) -> str:
    if redacted(value) != value:
        remedy = "give them by the environment or by the library's own files (AWS_SECRET_ACCESS_KEY, ~/.aws)"
        raise ValueError(f"a folder or a URL without credentials: it stands in logs and bundles; {remedy}")
    return value


Seed = Annotated[int, Field(ge=0, lt=2**63)]
Place = Annotated[str, AfterValidator(_without_secret)]
"""A storage."""


class ServerConfig(Part):
    """Where MLflow is."""

    enabled: bool = True
    uri: str | None = Field(
        None, description="MLflow tracking URI; default: MLFLOW_TRACKING_URI, else SQLite in storage."
    )
    experiment: str | None = Field(None, description="Default: the file's name of itself, `fleet` or `sweep`.")

    @field_validator("uri")
    @classmethod
    def _no_password(cls, value: str | None) -> str | None:
        if value and (re.search(r"//[^/@:]+:[^/@]+@", value) or redacted(value) != value):
            raise ValueError(
                "a password in a tracking URI would end in logs; use MLFLOW_TRACKING_USERNAME and _PASSWORD"
            )
        return value


class TrackingConfig(ServerConfig):
    """Where MLflow is, and what an audit may write beside runs."""

    tag_registry: bool = Field(True, description="Tag registry versions of mlflow: models with the verdict.")
    figures: bool = Field(True, description="Draw charts as PNG files into the bundle and the runs.")


def _worker_count(value: int | str) -> int | str:
    if isinstance(value, int) and not 1 <= value <= 1024:
        raise ValueError("auto or 1..1024")
    return value


WorkerCount = Annotated[int | Literal["auto"], AfterValidator(_worker_count)]


class PlacementConfig(Part):
    """What a job asks of the machine or the cluster."""

    runner: Literal["ray", "local"] = Field(
        "ray", description="ray: actors, embedded or on a cluster; local: in process."
    )
    address: str | None = Field(None, description="Ray address; default: RAY_ADDRESS, else an embedded Ray.")
    cpus: float = Field(1.0, ge=0, description="Cores a worker; also its torch threads.")
    gpus: float = Field(0.0, ge=0, le=8, description="GPUs a worker, or a share of one: 0.5 packs two a GPU.")
    wait_seconds: float = Field(60.0, gt=0, description="How long to wait for workers before saying what is missing.")

    @field_validator("gpus")
    @classmethod
    def _share_or_whole(cls, value: float) -> float:
        if value > 1 and value != int(value):
            raise ValueError("gpus must be a share up to 1, or a whole number")
        return value


class ResourcesConfig(PlacementConfig):
    """What the audit asks of the machine or the cluster."""

    workers: WorkerCount = Field("auto", description="Actors; auto: one a GPU asked for, else one a core.")
    batch: int = Field(128, ge=1, le=65536, description="Largest batch; halved when memory runs out.")
    shard: int = Field(1000, ge=1, le=1_000_000, description="Samples a shard: the unit of progress, retry and cache.")
    price: float | None = Field(
        None, ge=0, description="Of an hour of a GPU, or of a worker without one: estimates then say money, too."
    )
    deadline: float | None = Field(
        None,
        gt=0,
        le=MOST_SECONDS,
        description="Seconds after which the audit stops, its shards kept; none: never.",
    )


class FleetConfig(Part):
    """A fleet file."""

    fleet: JobName = Field(
        description="Name of the fleet: letters, digits, dot, dash, underscore. It names the MLflow experiment."
    )
    models: tuple[ModelConfig, ...] = Field(min_length=1, max_length=10_000)
    input: InputConfig = Field(InputConfig(), description="Input contract of every model that declares none.")
    samples: SamplesConfig
    generated: SamplesConfig | None = Field(
        None, description="Samples of a generative model: also computes GREAT on them and reports the gap."
    )
    measures: tuple[Any, ...] = Field(
        ("clean", "great"), min_length=1, max_length=MEASURES, description="Names, or mappings with parameters."
    )
    temperature: TemperatureConfig = TemperatureConfig()
    groups: tuple[Name, ...] = Field(
        (),
        max_length=100,
        description="Columns of the samples to profile by, besides the class; class*sex crosses two of them.",
    )
    intervals: IntervalsConfig = IntervalsConfig()
    gallery: Annotated[int, Field(ge=2, le=1000)] | Literal["none"] = Field(
        64,
        description="Samples of each model that are kept as pictures before and after an attack; none: no picture.",
    )
    slices: bool = Field(False, description="Look for weak groups that nobody named, in attributes and embedding.")
    fp_lambda: float = Field(0.5, ge=0, description="Weight of RDI in the fairness-penalised score.")
    gates: tuple[GateConfig, ...] = Field((), max_length=GATES)
    decide: Decide = Field("full", description="early: each model is measured on as many samples as its gates need.")
    early: EarlyConfig = EarlyConfig()
    storage: Place = Field(
        "classwise-runs", min_length=1, description="Local folder or fsspec URL for bundles and cache."
    )
    tracking: TrackingConfig = TrackingConfig()
    resources: ResourcesConfig = ResourcesConfig()
    accept: Literal["by-hand", "passed"] = Field(
        "by-hand", description="passed: an audit that passes becomes the accepted one, which later ones must match."
    )
    notify: tuple[NotifyConfig, ...] = Field((), max_length=20, description="Webhooks notified when an audit ends.")
    promote: PromoteConfig | None = Field(None, description="For every `mlflow:models:` model that passes.")
    factories: tuple[str, ...] = Field(
        ("services.training.*",), max_length=1000, description="Modules that factory: and generator: may import."
    )
    confine: tuple[Place, ...] | None = Field(
        None,
        max_length=100,
        description="Folders outside of which nothing that the file names is opened, wherever links lead; "
        "left out: anywhere.",
    )
    on_model_fault: Literal["stop", "skip"] = Field(
        "stop", description="stop: no long work when one model fails preflight; skip: audit the others."
    )
    seed: int = Field(0, ge=0, lt=2**63)

    @model_validator(mode="after")
    def _unique_names(self) -> FleetConfig:
        names = [model.name for model in self.models]
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        if twice:
            raise ValueError(f"model names must be unique; twice: {', '.join(twice)}")
        return self

    @model_validator(mode="after")
    def _clusters(self) -> FleetConfig:
        if self.generated is not None and self.generated.cluster is not None:
            raise ValueError("cluster is a column of samples; generated samples are independent")
        if self.samples.cluster is not None and self.decide == "early":
            raise ValueError(
                "decide: early goes without samples.cluster: its rounds take samples one by one, and their limits hold "
                "for independent ones; say decide: full"
            )
        return self

    @field_validator("groups")
    @classmethod
    def _distinct(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) < len(value) or "class" in value:
            raise ValueError("each column once, and not 'class': by class is always profiled")
        for name in value:
            sides = crossed(name)
            if len(sides) > 2 or len({*sides}) < len(sides) or not all(sides):
                raise ValueError(f"a column, or two different ones crossed such as class*sex; found {name}")
        return value

    def model_specs(self) -> tuple[ModelSpec, ...]:
        """The models as workers need them."""
        return tuple(_model_spec(model, model.input or self.input) for model in self.models)

    def sample_spec(self) -> SampleSpec:
        """The samples as workers need them."""
        columns = tuple(dict.fromkeys(side for name in self.groups for side in crossed(name) if side != "class"))
        return replace(_plain_spec(self.samples), groups=columns)

    def generated_spec(self) -> SampleSpec | None:
        """The generated samples as workers need them; None without any."""
        return None if self.generated is None else _plain_spec(self.generated)


def _plain_spec(samples: SamplesConfig) -> SampleSpec:
    return SampleSpec(
        samples.uri,
        samples.per_class,
        samples.limit,
        samples.seed,
        on_corrupt=samples.on_corrupt,
        duplicates=samples.duplicates,
        training=samples.training,
        cluster=samples.cluster,
        reserve=samples.reserve or 0.0,
        part=samples.part,
    )


def _model_spec(model: ModelConfig, contract: InputConfig) -> ModelSpec:
    threat = model.threat_model
    return ModelSpec(
        name=model.name,
        uri=model.uri,
        input=InputContract(
            *contract.range, contract.mean, contract.std, contract.size, contract.channels, contract.channel_order
        ),
        outputs=model.outputs,
        output=model.output,
        classes=model.classes,
        clean_accuracy=model.clean_accuracy,
        robust_accuracy=model.robust_accuracy,
        threat_model=ThreatModel(threat.norm, threat.epsilon) if threat else None,
        stochastic=model.stochastic,
        allow_unpickling=model.allow_unpickling,
        overrule=model.overrule,
        offsets=model.offsets,
        tags=tuple(sorted(model.tags.items())),
    )


class GeneralisationConfig(Part):
    """The training sample on which audited models are measured again, for their generalisation error."""

    per_class: int | None = Field(None, ge=1, description="At most so many samples of each class.")
    limit: int | None = Field(1000, ge=1, description="At most so many samples in all, in proportion to the classes.")
    seed: Seed = Field(0, description="Of the draw.")
