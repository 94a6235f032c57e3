"""What an audit found: one series of one model, a gate, a model, the whole audit."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from services.records.attacks import AttackResult
from services.records.confusions import ConfusionResult
from services.records.estimates import Estimate, GapResult, GroupScore, RefutedResult
from services.records.fairness import FairnessResult, ProjectionResult
from services.records.intake import Intake
from services.records.schema import AUDIT_VERSION
from services.records.series import Series
from services.records.slices import SliceResult
from services.records.specs import ModelSpec


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
"""The order in which outcomes are listed; the first that occurs decides for a whole."""


@dataclass(frozen=True, slots=True)
class SeriesResult:
    """One series of one model over one grouping: the profile, its disparity, and how sure.

    Attributes:
        grouping: "class" or the name of a column.
        metrics: every metric of `services.metrics` by name, with its interval.
        worst: names of the groups with the smallest mean, smallest first; more than one when tied.
        not_separated: names whose intervals overlap the worst group's.
        missing: names of groups without samples.
        method, delta: of the intervals.
        extras: further numbers of the series (saturated share, offset sensitivity, accuracy weighted value).
        notes: plain sentences a reader must know ("12 % of margins saturate").
        joint: the mean over all samples and the worst class with limits that hold for all models of the audit together,
            each at delta over their number: what may be said of a model that was chosen by its number. By class alone,
            and empty where there is one model.
        measured: samples that an audit that decides early measured: its limits then hold at every stopping time. None
            where all were.
    """

    series: Series
    grouping: str
    metrics: dict[str, Estimate]
    worst: tuple[str, ...]
    not_separated: tuple[str, ...]
    missing: tuple[str, ...]
    groups: tuple[GroupScore, ...]
    method: str
    delta: float
    extras: dict[str, float | None] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    measured: int | None = None
    joint: dict[str, Estimate] = field(default_factory=dict)

    def metric(self, name: str) -> Estimate:
        """The metric of that name; undefined in audits of versions that did not have it."""
        return self.metrics.get(name, Estimate(None, reason="not known in this audit's version"))

    @property
    def aggregate(self) -> Estimate:
        """The mean over all counted samples."""
        return self.metrics["aggregate"]

    @property
    def wcr(self) -> Estimate:
        """The mean of the worst group."""
        return self.metrics["wcr"]


@dataclass(frozen=True, slots=True)
class Threshold:
    """What a gate asks of a number.

    Attributes:
        measure, metric, grouping: key of the series, name in `services.metrics`, "class" or a column.
        sign, value: ">=" or "<=" of what.
    """

    measure: str
    metric: str
    grouping: str
    sign: str
    value: float


@dataclass(frozen=True, slots=True)
class GateResult:
    """One gate judged on one model.

    Attributes:
        text: the gate as a sentence: "great wcr >= 0.05".
        threshold: what it asks; None for a comparison with another audit.
        outcome: pass, fail or undecided; error when the number is undefined.
        estimate: what was judged.
        reason: a sentence: "lower bound 0.061 clears 0.05".
        overruled: objections to a pass that the fleet file overrules, by name; the reason has them in words.
        wanted: of an undecided gate of an early audit, how many more samples would decide it, in words; the reason
            ends with it.
        objected: of an undecided gate that its number clears or misses, or would with more samples, what speaks against
            the number, in words; the reason ends with it.
    """

    text: str
    outcome: Outcome
    estimate: Estimate
    reason: str
    threshold: Threshold | None = None
    overruled: tuple[str, ...] = ()
    wanted: str = ""
    objected: str = ""


@dataclass(frozen=True, slots=True)
class CalibrationResult:
    """A temperature policy's answer and what a reader must know before trusting it (docs/statistics.md).

    Attributes:
        policy: "fixed", "fleet-accuracy", "class-accuracy" or "ranking-stability".
        temperature: the chosen T, or None with `reason`.
        objective: the objective's value there.
        at_edge: the optimum lies at the grid's edge.
        plateau: (low, high) temperatures between which the objective keeps its best value.
        best_share: share of the coarse grid on which it has that value, on this stretch or elsewhere; None where a
            record does not say.
        resampled: where 95 % of other samples of this size would choose; None where it is not known.
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
    best_share: float | None = None
    resampled: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class ModelResult:
    """Everything found about one model.

    Attributes:
        spec: what was asked.
        digest: of weights and code.
        outcome, reasons: the verdict and its sentences.
        gates: each gate judged.
        series: one entry a series and grouping.
        facts: preflight's findings (parameters, clean accuracy on the probe, range of logits, batch difference).
        notes: plain sentences.
        forwards: images that passed through the network in this audit; 0 when all came from the cache.
        seconds: worker time.
        refuted: for each GREAT series and grouping, the claims that attacks refuted; empty without `minimal`.
        generalisation: train minus test by series; of models that were trained by the sweep that audits them.
        fairness: group metrics of its decisions, one entry an attribute.
        projection: tolerance to latent factors, one entry a mapper.
        generated: each GREAT series on samples of a generative model minus that on the audit's samples.
        attacks: each attack, whether it was adequate, and what was seen of it.
        confusions: what its classes are taken for, clean and under each attack; () in audits of older versions.
        slices: weak groups that nobody named and the held-out half confirmed; () unless they were looked for.
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
    refuted: tuple[RefutedResult, ...] = ()
    generalisation: tuple[GapResult, ...] = ()
    fairness: tuple[FairnessResult, ...] = ()
    projection: tuple[ProjectionResult, ...] = ()
    generated: tuple[GapResult, ...] = ()
    attacks: tuple[AttackResult, ...] = ()
    confusions: tuple[ConfusionResult, ...] = ()
    slices: tuple[SliceResult, ...] = ()


@dataclass(frozen=True, slots=True)
class SampleFacts:
    """What the audit knows of its samples: enough for an MLflow dataset and a reader.

    Attributes:
        counts: samples of each class in the audit.
        skipped: by class, files or rows that could not be read, and were left out as `on_corrupt: skip` has it.
        intake: what became of everything that the source holds.
    """

    uri: str
    digest: str
    count: int
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    counts: tuple[int, ...]
    skipped: dict[str, int] = field(default_factory=dict)
    content: str = ""
    intake: Intake = field(default_factory=Intake)


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
        compared_with: audit_id this one was compared with, or "".
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
    compared_with: str = ""
    schema_version: int = AUDIT_VERSION
