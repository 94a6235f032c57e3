"""The records of training jobs: what a trial is asked to do, what it reports on the way, and its result.

Like `services.records`: frozen, free of torch, ray and mlflow. What is written to disk carries `SCHEMA_VERSION`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from services.records import SCHEMA_VERSION, ThreatModel
from services.records.estimates import Estimate, GapResult

State = Literal["finished", "early-stop", "dropped", "diverged", "failed"]
"""How a trial ended: all its epochs, out of patience, weaker than others of its sweep, a loss that is not finite, or an
error or dead workers."""

Kind = Literal["network", "mapper"]
"""What a trial trains: a classifier, or a mapper between images and latent factors."""

CLASS = "class"
"""The condition of a mapper that is no measured attribute."""

LEAST_EXPLAINED = 0.5
"""A mapper that explains less of the variance of images held out cannot judge: the default of `projection` too."""


@dataclass(frozen=True, slots=True)
class DataSpec:
    """A training set and the part of it that is taken.

    Attributes:
        label: the sweep's name for it.
        name: of the data set.
        root: folder that holds it; None for one that has none.
        size: pixels a side, where the data set can be resized.
        per_class, limit: as in `SampleSpec`, of the training split.
        holdout: share of each class of what was taken that is held out.
        seed: of both draws.
        extra: source of samples that are mixed in; None for none.
        share: of each batch that these make up.
    """

    label: str
    name: str
    root: str | None = None
    size: int | None = None
    per_class: int | None = None
    limit: int | None = None
    holdout: float = 0.0
    seed: int = 0
    extra: str | None = None
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class DataFacts:
    """What is known of a training set once it was read.

    Attributes:
        label, name: as in `DataSpec`.
        digest: of all pixels and labels, those held out and mixed in included, and of the share of the latter.
        train, held: samples of each class to train on and held out.
        shape: (C, H, W).
        classes: names in label order.
        extra: samples of each class that are mixed in; empty without any.
        share: of each batch that these make up.
    """

    label: str
    name: str
    digest: str
    train: tuple[int, ...]
    held: tuple[int, ...]
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    extra: tuple[int, ...] = ()
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class Start:
    """Weights that a fine-tuning starts from.

    Attributes:
        file: URL of their copy in the sweep's folder.
        digest: of the file or model that they were read from when the sweep was planned.
        key: which weights of that file; "" where it holds one set.
    """

    file: str
    digest: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class TrialTask:
    """One trial, as a worker needs it. The data travel apart, once for all trials of a node.

    Attributes:
        name: unique in the sweep.
        key: of everything the weights depend on.
        folder: where its checkpoints go.
        method, recipe: canonical JSON; the recipe holds the seed and the device. The method of a mapper has its
            conditions and the factors by which it is judged.
        architecture, options: what is built, with its arguments; the kind of a mapper.
        data: label of the training set.
        workers: among which each batch is shared.
        kind: what is trained.
        start: weights that the network starts from; None for weights drawn by the seed.
        until: epochs after which it waits for the others of its sweep, "dropped" for now; None for its last.
    """

    name: str
    key: str
    folder: str
    method: str
    recipe: str
    architecture: str
    options: tuple[tuple[str, Any], ...]
    data: str
    workers: int = 1
    kind: Kind = "network"
    start: Start | None = None
    until: int | None = None

    @property
    def group(self) -> str:
        """A trial that fails takes nothing else with it."""
        return self.name

    @property
    def alone(self) -> bool:
        """A group of one task needs no rule."""
        return False

    @property
    def title(self) -> str:
        """For messages."""
        return self.name


@dataclass(frozen=True, slots=True)
class Shares:
    """Accuracies in [0, 1] over all samples of a split, each None where it was not computed.

    Attributes:
        clean, robust: without and under the perturbation.
        worst_class: the smallest robust share of a class.
        per_class: robust share of each class; None for a class without samples.
    """

    clean: float | None = None
    robust: float | None = None
    worst_class: float | None = None
    per_class: tuple[float | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class EpochPoint:
    """One epoch that ended well.

    Attributes:
        epoch: 0, 1, ...
        loss: mean over the training samples of what is minimised.
        rate: learning rate.
        seconds: wall time.
        train: on the training stream, while the weights moved.
        validation: on the held-out split; None without one.
        explained: of the variance of the images held out, by a mapper; None for a network.
        parts: of a mapper's losses, by name; empty for a network.
        judging: of the seconds, those in which a network's held-out split was judged.
    """

    epoch: int
    loss: float
    rate: float
    seconds: float
    train: Shares
    validation: Shares | None = None
    explained: float | None = None
    parts: dict[str, float] = field(default_factory=dict)
    judging: float = 0.0

    @property
    def judged(self) -> Shares:
        """The held-out split's accuracies, else those of the training stream."""
        return self.validation or self.train


@dataclass(frozen=True, slots=True)
class FactorGap:
    """How well one latent stands for one factor: its mutual information gap, and the column of the latent."""

    gap: Estimate
    latent: int | None


@dataclass(frozen=True, slots=True)
class MapperFacts:
    """What is known of a trained mapper, on images held out.

    Attributes:
        mse, psnr, explained: of the reconstruction; the last two None where they are undefined.
        held: images looked at.
        latents, active: latent columns, and how many of them have not collapsed.
        mig: mean gap over the factors; None without factors.
        factors: the gap by factor.
        names: what the columns of a conditional mapper stand for, ready for `names` of the measure `projection`.
        scales: mean and spread, in its own unit, of each attribute that conditions it: a latent of 1 is one spread.
        generator: source of labelled samples, for `generated` of a fleet file; "" where no class conditions it.
    """

    mse: float
    psnr: float | None
    explained: float | None
    held: int
    latents: int
    active: int
    mig: Estimate | None = None
    factors: dict[str, FactorGap] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    scales: dict[str, tuple[float, float]] = field(default_factory=dict)
    generator: str = ""

    @property
    def faithful(self) -> bool:
        """Whether it reconstructs well enough to judge by."""
        return self.explained is not None and self.explained >= LEAST_EXPLAINED


@dataclass(frozen=True, slots=True)
class TrialReport:
    """What a worker says when a trial ended.

    Attributes:
        state, reason: how, and a sentence on why it ended before its last epoch, or why a mapper cannot judge.
        selected: the epoch whose weights were kept; None when none ended well.
        resumed_at: epochs that were found done.
        points: all epochs, those found done included.
        mapper: what is known of a mapper; None for a network.
    """

    state: State
    reason: str
    selected: int | None
    resumed_at: int
    points: tuple[EpochPoint, ...]
    mapper: MapperFacts | None = None


@dataclass(frozen=True, slots=True)
class Begun:
    """A worker has taken a trial, with so many epochs done."""

    task: TrialTask
    done: int


@dataclass(frozen=True, slots=True)
class EpochDone:
    """A trial's epoch and its checkpoint are done."""

    task: TrialTask
    point: EpochPoint


@dataclass(frozen=True, slots=True)
class TrialDone:
    """A trial ended by itself."""

    task: TrialTask
    report: TrialReport


@dataclass(frozen=True, slots=True)
class TrialResult:
    """Everything about one trial: the content of `trial.json`.

    Attributes:
        name, key: as in `TrialTask`.
        sweep: the sweep's name.
        state, reason: how it ended.
        method, recipe: parameters by name.
        architecture, options: what was built; the kind of a mapper.
        data: the training set.
        seed: of the trial.
        epochs: done.
        selected, chosen: the epoch whose weights were kept, and what it showed.
        seconds: of all epochs.
        weights: file of the selected weights; "" when there are none.
        uri: `factory:` source of the trained network or mapper; "" likewise.
        threat_model: what it was trained against; None for a method without perturbation.
        tags: method and architecture, or mapper; dataset, seed, sweep, trial.
        generalisation: train minus test, by series, once it was audited.
        kind: what was trained.
        mapper: what is known of a mapper; None for a network.
        judging: of the seconds, those in which the held-out split was judged.
    """

    name: str
    key: str
    sweep: str
    state: State
    reason: str
    method: dict[str, Any]
    recipe: dict[str, Any]
    architecture: str
    options: dict[str, Any]
    data: DataFacts
    seed: int
    epochs: int
    selected: int | None
    chosen: EpochPoint | None
    seconds: float
    weights: str
    uri: str
    threat_model: ThreatModel | None
    tags: dict[str, str]
    generalisation: tuple[GapResult, ...] = ()
    kind: Kind = "network"
    mapper: MapperFacts | None = None
    judging: float = 0.0
    schema_version: int = SCHEMA_VERSION

    @property
    def usable(self) -> bool:
        """Whether it ended as it was meant to."""
        return self.state in ("finished", "early-stop")


@dataclass(frozen=True, slots=True)
class SweepResult:
    """A sweep: the content of `sweep.json`.

    Attributes:
        sweep: its name.
        started, finished: UTC, ISO 8601; of the command that wrote it.
        trials: in the order of the sweep file.
        config: the sweep file as resolved.
        versions: of classwise, python, torch, ray, mlflow, numpy.
    """

    sweep: str
    started: str
    finished: str
    trials: tuple[TrialResult, ...]
    config: dict[str, Any]
    versions: dict[str, str] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    @property
    def outcome(self) -> State:
        """The worst of the trials': failed, then diverged, then finished."""
        states = {trial.state for trial in self.trials}
        return "failed" if "failed" in states else "diverged" if "diverged" in states else "finished"

    @property
    def exit_code(self) -> int:
        """0 when all trials ended as meant, 1 when one diverged, 2 when one failed."""
        return {"failed": 2, "diverged": 1}.get(self.outcome, 0)
