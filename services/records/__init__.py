"""The records that pass between stages, workers, the driver, the bundle and MLflow.

Frozen dataclasses only, free of torch, ray and mlflow. What is written to disk carries `SCHEMA_VERSION`. An undefined
number is `None` with a reason beside it; NaN and infinity never enter a record.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Generic, Literal, TypeVar

from services.records.asked import InputContract as InputContract
from services.records.asked import ModelSpec as ModelSpec
from services.records.asked import SampleSpec as SampleSpec
from services.records.asked import Series as Series
from services.records.asked import ThreatModel as ThreatModel
from services.records.estimates import Estimate as Estimate
from services.records.estimates import FalsifiedResult as FalsifiedResult
from services.records.estimates import GapResult as GapResult
from services.records.estimates import GroupScore as GroupScore
from services.records.fairness import FairnessResult as FairnessResult
from services.records.fairness import LatentDimension as LatentDimension
from services.records.fairness import ProjectedGroup as ProjectedGroup
from services.records.fairness import ProjectionResult as ProjectionResult
from services.records.fairness import TaskGaps as TaskGaps

SCHEMA_VERSION = 1
"""Version of the bundle's JSON and Parquet layouts. Readers accept this version and older ones."""


def digest_of(*parts: Any) -> str:
    """Hex SHA-256 (first 32 digits) of the canonical JSON of `parts`; dataclasses are taken by their fields."""

    def plain(value: Any) -> Any:
        return asdict(value) if hasattr(value, "__dataclass_fields__") else value

    text = json.dumps([plain(part) for part in parts], sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


# --- what a worker does ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShardTask:
    """One piece of work: rows [start, stop) of the samples, one model, one measure.

    Attributes:
        kind: "preflight" (one batch, start and stop unused), "logits" (forward passes to a logits shard), "derive" (a
            measure over a finished logits shard), "measure" (a measure that runs the network), "calibrate" (per-class
            sums over temperatures from a logits shard), "picture" (a measure's file for people, to `target`).
        measure: canonical parameters of the measure (its JSON), or "".
        source: path of the logits shard for "derive" and "calibrate".
        target: path of the Parquet shard to write, or "".
        batch: largest batch; halved by the worker when memory runs out.
        payload: further JSON that the kind needs (temperatures, activation).
        digest: the model's fingerprint when the audit began. A worker refuses to run another model under that name:
            its numbers would enter the cache as those of this one. "" is not compared.
    """

    kind: Literal["preflight", "logits", "derive", "measure", "calibrate", "picture"]
    model: ModelSpec
    samples: SampleSpec
    start: int
    stop: int
    seed: int
    batch: int
    measure: str = ""
    source: str = ""
    target: str = ""
    payload: str = ""
    digest: str = ""

    @property
    def group(self) -> str:
        """Tasks that are dropped together when one of them fails: those of a model."""
        return self.model.name

    @property
    def title(self) -> str:
        """For messages."""
        rows = f", rows {self.start} to {self.stop}" if self.stop else ""
        return f"{self.model.name}, {self.kind}{rows}"


@dataclass(frozen=True)
class Receipt:
    """What a worker returns for a task: counts, sums and small vectors, never logits.

    Attributes:
        task: the task done.
        rows: samples handled.
        forwards: images passed through the network, backward passes not counted.
        seconds: wall time on the worker.
        facts: small JSON-able findings (preflight facts, counters, notes).
        arrays: small vectors by name (calibration sums).
    """

    task: ShardTask
    rows: int
    forwards: int
    seconds: float
    facts: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Any] = field(default_factory=dict)


T = TypeVar("T")


@dataclass(frozen=True)
class TaskFailure(Generic[T]):
    """A task that raised: its problems, as (where, expected, found, remedy). Other tasks of its group are dropped."""

    task: T
    problems: tuple[tuple[str, str, str, str], ...]


# --- what comes out ----------------------------------------------------------------------------------------------


class Outcome(StrEnum):
    """What an audit, a model or a gate ends in; `exit_code` is what the process returns."""

    PASS = "pass"
    FAIL = "fail"
    UNDECIDED = "undecided"
    ERROR = "error"

    @property
    def exit_code(self) -> int:
        return {"pass": 0, "fail": 1, "error": 2, "undecided": 3}[self.value]


WORST_FIRST = (Outcome.ERROR, Outcome.FAIL, Outcome.UNDECIDED, Outcome.PASS)
"""The order in which outcomes are told, and in which one of them decides for a whole."""


@dataclass(frozen=True, slots=True)
class SeriesResult:
    """One series of one model over one grouping: the profile, its disparity, and how sure.

    Attributes:
        grouping: "class" or the name of a column.
        aggregate: mean over all counted samples.
        rdi, nrgc, wcr, fp: science.md section 2; wcr's `low` is the intersection-union bound.
        worst: names of the groups with the smallest mean, smallest first; more than one when tied.
        not_separated: names whose intervals overlap the worst group's.
        missing: names of groups without samples.
        method, delta: of the intervals.
        extras: further numbers of the series (saturated share, offset sensitivity, accuracy weighted value).
        notes: plain sentences a reader must know ("12 % of margins saturate").
    """

    series: Series
    grouping: str
    aggregate: Estimate
    rdi: Estimate
    nrgc: Estimate
    wcr: Estimate
    fp: Estimate
    worst: tuple[str, ...]
    not_separated: tuple[str, ...]
    missing: tuple[str, ...]
    groups: tuple[GroupScore, ...]
    method: str
    delta: float
    extras: dict[str, float | None] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GateResult:
    """One gate judged on one model.

    Attributes:
        text: the gate as a sentence: "great wcr >= 0.05".
        outcome: pass, fail or undecided; error when the number is undefined.
        estimate: what was judged.
        reason: a sentence: "lower bound 0.061 clears 0.05".
    """

    text: str
    outcome: Outcome
    estimate: Estimate
    reason: str


@dataclass(frozen=True, slots=True)
class CalibrationResult:
    """A temperature policy's answer and what a reader must know before trusting it (science.md section 4).

    Attributes:
        policy: "fixed", "fleet-accuracy", "class-accuracy" or "ranking-stability".
        temperature: the chosen T, or None with `reason`.
        objective: the objective's value there.
        at_edge: the optimum lies at the grid's edge.
        plateau: (low, high) temperatures between which the objective keeps its best value.
        reference, reference_before: Spearman of the calibrated and of the uncalibrated (T = 1) scores with the declared
            robust accuracies; None when fewer than three models declare one.
        reference_accuracy: the same correlation for clean accuracy alone.
        grid, curve: temperatures evaluated and the objective there (None where undefined), for the figure.
        notes: plain sentences.
    """

    policy: str
    temperature: float | None
    objective: float | None = None
    at_edge: bool = False
    plateau: tuple[float, float] | None = None
    reference: float | None = None
    reference_before: float | None = None
    reference_accuracy: float | None = None
    grid: tuple[float, ...] = ()
    curve: tuple[float | None, ...] = ()
    reason: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelResult:
    """Everything found about one model.

    Attributes:
        spec: what was asked.
        digest: of weights and code.
        outcome, reasons: the verdict and its sentences.
        gates: each gate judged.
        series: one entry a series and grouping.
        facts: preflight's findings (parameters, clean accuracy on the probe, range of logits, batch difference), and
            `masking`, the signs of masked gradients that the measures saw.
        notes: plain sentences.
        forwards: images that passed through the network in this audit; 0 when all came from the cache.
        seconds: worker time.
        falsified: for each GREAT series and grouping, the claims that attacks refuted; empty without `minimal`.
        generalisation: train minus test by series; of models that were trained by the sweep that audits them.
        fairness: group metrics of its decisions, one entry an attribute.
        projection: tolerance to latent factors, one entry a mapper.
        generated: each GREAT series on samples of a generative model minus that on the audit's samples.
    """

    spec: ModelSpec
    digest: str
    outcome: Outcome
    reasons: tuple[str, ...] = ()
    gates: tuple[GateResult, ...] = ()
    series: tuple[SeriesResult, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    forwards: int = 0
    seconds: float = 0.0
    falsified: tuple[FalsifiedResult, ...] = ()
    generalisation: tuple[GapResult, ...] = ()
    fairness: tuple[FairnessResult, ...] = ()
    projection: tuple[ProjectionResult, ...] = ()
    generated: tuple[GapResult, ...] = ()


@dataclass(frozen=True, slots=True)
class SampleFacts:
    """What the audit knows of its samples: enough for an MLflow dataset and a reader."""

    uri: str
    digest: str
    count: int
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    counts: tuple[int, ...]
    skipped: dict[str, int] = field(default_factory=dict)
    content: str = ""


@dataclass(frozen=True, slots=True)
class AuditResult:
    """One audit of one fleet: the content of `bundle.json`.

    Attributes:
        audit_id: sortable and unique: UTC time and eight hex digits.
        fleet: the fleet's name.
        started, finished: UTC, ISO 8601.
        outcome: the worst of the models': error, then fail, then undecided, then pass.
        config: the fleet file as resolved, without secrets.
        versions: of classwise, python, torch, ray, mlflow, numpy.
        checks: fleet-wide findings by name (rank correlations, re-ranking), JSON-able.
        baseline: audit_id this one was compared with, or "".
    """

    audit_id: str
    fleet: str
    started: str
    finished: str
    outcome: Outcome
    samples: SampleFacts
    models: tuple[ModelResult, ...]
    calibration: CalibrationResult
    config: dict[str, Any]
    versions: dict[str, str]
    checks: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    baseline: str = ""
    schema_version: int = SCHEMA_VERSION
