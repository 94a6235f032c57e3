"""What the dashboard's routes answer, as OpenAPI describes it. Numbers are those of the bundle, unrounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field

from jobs.submission.status import State
from jobs.web.problems import ProblemBody
from services.metrics import OF_SERIES
from services.records import AttackResult, GateResult, Outcome
from services.records.estimates import Estimate

if TYPE_CHECKING:
    Metric = str
else:
    Metric = Literal[tuple(metric.name for metric in OF_SERIES)]
Cell = list[float | None]
"""``[value, low, high]``; a limit that does not exist is null."""


class AuditHead(BaseModel):
    """One audit in a list. One that cannot be read has a `problem` and nothing else."""

    id: str = Field(description="Its folder in the storage; what paths of this API name it by.")
    fleet: str = Field("", description="Its fleet, as its people spell it.")
    audit_id: str = ""
    started: str = ""
    finished: str = ""
    outcome: Outcome | None = None
    counts: dict[Outcome, int] = Field({}, description="Models by outcome.")
    models: int = 0
    samples: int = 0
    classes: int = 0
    problem: ProblemBody | None = None


class FleetBody(BaseModel):
    """A fleet with its latest audit."""

    id: str = Field(description="Its folder in the storage; what paths of this API name it by.")
    name: str
    audits: int
    latest: AuditHead | None


class FleetList(BaseModel):
    """The fleets of the storage, by name; `total` of them, of which this is a part."""

    fleets: list[FleetBody]
    total: int


class AuditPage(BaseModel):
    """Audits of a fleet, the latest first; `total` of them, of which this is a part."""

    fleet: str
    audits: list[AuditHead]
    total: int


class SeriesName(BaseModel):
    """A series over a grouping that the audit measured."""

    lens: str
    title: str
    unit: str
    bound: float
    grouping: str


class TrendLine(BaseModel):
    """One model over the audits: its verdict and its number in each, null where it has none."""

    model: str
    outcomes: list[Outcome | None]
    cells: list[Cell | None]


class Trend(BaseModel):
    """One number of each model over the audits of a fleet, the earliest first."""

    fleet: str
    lens: str
    metric: Metric
    series: list[SeriesName] = Field(description="What can be asked for: the series of the latest audit.")
    audits: list[AuditHead]
    lines: list[TrendLine] = Field(description="Of the models of the latest audit first; those not passing first.")
    models: int = Field(description="How many models there are; `lines` may be fewer.")
    total: int = Field(description="How many audits there are; `audits` are the latest.")


class ModelRow(BaseModel):
    """A model in an audit's table, with one series."""

    index: int
    name: str
    outcome: Outcome
    why: str
    worst: str
    metrics: dict[Metric, Estimate] = Field(description="Empty when the series was not measured.")
    refuted: Estimate | None


class GateTally(BaseModel):
    """A gate, and how many models end in each outcome."""

    text: str
    counts: dict[Outcome, int]


class Links(BaseModel):
    """Where else the audit is."""

    folder: str
    run_url: str = Field(description="Page of its MLflow run; empty without one that has an address.")
    mlflow: str = Field(description="The MLflow store that holds it; empty when it was not uploaded.")


class AuditBody(BaseModel):
    """One audit: the verdict, what it means, and a row a model."""

    head: AuditHead
    fleet: str
    verdict: str
    words: list[str]
    advice: list[str] = Field(description="For who decides: of the models that fail first.")
    why: list[str] = Field(description="What the weakest class is taken for.")
    steps: list[str] = Field(description="What to do next.")
    gates: list[GateTally]
    samples: str
    content: str = Field(description="Digest of the samples.")
    compared_with: str
    versions: dict[str, str]
    lens: str
    series: list[SeriesName]
    models: list[ModelRow]
    earlier: str = Field(description="Id of the audit of this fleet before it; empty when it is the first.")
    links: Links


class SliceBody(BaseModel):
    """A group that nobody named and that fails more often than its classes explain."""

    words: str = Field(description="What its samples have in common.")
    title: str = Field(description="Under which predictions.")
    n: int = Field(description="Samples in the half that confirmed it.")
    rate: Estimate = Field(description="Share that keeps its class; limits hold for all groups that were tested.")
    expected: float = Field(description="The share that its classes alone would keep.")
    p: float = Field(description="Adjusted for all groups that were tested (Holm).")
    ids: list[int] = Field(description="Of samples that fail, in the order of the pictures.")
    pictures: list[str] = Field(description="Data URLs.")


class WhyBody(BaseModel):
    """What a model takes its classes for, and pictures of samples that an attack broke."""

    classes: list[str]
    parts: list[dict[str, Any]] = Field(
        description="Confusions, clean and under each attack: `title`, `under`, `attack`, `order` and `cells`, each "
        "[label, predicted, samples, samples of the class, lower limit, upper limit]; predicted -1 is no class."
    )
    entries: list[dict[str, Any]] = Field(description="Samples with `pictures` as data URLs, classes by their index.")
    total: int = Field(description="How many pictures the bundle has.")
    cut: bool = Field(description="Whether cells were left out, the smallest shares first.")
    slices: list[SliceBody]


class Hardest(BaseModel):
    """The samples of an audit that most of its models fail, the hardest first."""

    rows: list[dict[str, Any]] = Field(
        description="`id` and perhaps `key`, `label_name`, `wrong` and `broken` of `models` models, `consensus_name` "
        '(what `votes` models predict; "" is no class), `nearest` distance or null, `picture` as a data URL or "".'
    )


class ClassName(BaseModel):
    """A class, or a group of another grouping."""

    index: int
    name: str


class ClassMatrix(BaseModel):
    """The mean score of each class (columns) under each model (rows); null where undefined."""

    lens: str
    title: str
    classes: list[ClassName] = Field(description="The weakest ones, in their order.")
    models: list[str]
    values: list[list[float | None]]
    total: int = Field(description="How many classes there are.")
    problems: list[ProblemBody] = Field(description="Tables that could not be read; their models have no values.")


class ClassRow(BaseModel):
    """One class of one model."""

    index: int
    name: str
    n: int
    n_all: int
    score: Estimate
    worst: bool
    close: bool = Field(description="Its interval overlaps that of the worst: not separated.")


class Bracket(BaseModel):
    """Per class what is proved, claimed and broken, in one distance: robustness lies between first and last."""

    unit: str
    marks: list[str]
    classes: list[ClassName]
    values: list[list[float | None]] = Field(description="A list a mark, an entry a class.")


class SeriesBody(BaseModel):
    """One series of a model."""

    lens: str
    title: str
    unit: str
    grouping: str
    metrics: dict[Metric, Estimate]
    worst: str = Field(description="The group with the smallest mean, and how many tie with it.")
    groups: int
    missing: int
    close: int
    delta: float
    method: str
    refuted: Estimate | None
    gap: Estimate | None = Field(description="Train minus test of the aggregate.")
    words: str


class GapBody(BaseModel):
    """The largest gap between the groups of an attribute, and the class whose decision has it."""

    grouping: str
    title: str
    task: str
    gap: Estimate


class ModelCard(BaseModel):
    """Everything about one model in one audit, with the classes of one series."""

    head: AuditHead
    index: int
    name: str
    outcome: Outcome
    reasons: list[str]
    gates: list[GateResult]
    threat: str
    digest: str
    notes: list[str]
    attacks: list[AttackResult] = Field(description="Whether each attack was adequate; of its signs those that show.")
    gaps: list[GapBody] = Field(description="Between groups of an attribute; empty where none was judged.")
    lens: str
    series: list[SeriesBody]
    classes: list[ClassRow] = Field(description="The weakest first.")
    total: int = Field(description="How many classes there are.")
    brackets: list[Bracket] = Field(description="One a distance; empty where fewer than two of the three are known.")


class Difference(BaseModel):
    """A number before and after. Whether two intervals overlap is no test of a difference."""

    before: Estimate | None
    after: Estimate | None
    change: float | None
    overlap: bool | None = Field(description="Null where an interval lacks a side.")


class ModelDifference(BaseModel):
    """One model in two audits; an outcome is null where it was not audited."""

    name: str
    before: Outcome | None
    after: Outcome | None
    same_weights: bool | None = Field(description="Whether its fingerprint is the same; null where it is in one only.")
    metrics: dict[Metric, Difference]


class ClassDifference(BaseModel):
    """One class of one model in two audits."""

    index: int
    name: str
    difference: Difference


class Comparison(BaseModel):
    """Two audits of a fleet side by side."""

    before: AuditHead
    after: AuditHead
    lens: str
    series: list[SeriesName]
    models: list[ModelDifference]
    model: str = Field(description="Whose classes are compared; empty when no model is in both.")
    classes: list[ClassDifference] = Field(description="The largest loss first.")
    total: int
    notes: list[str]
    tested: dict[str, Any] | None = Field(description="The later audit's comparison.json, as it is, where it has one.")


class RunningBody(BaseModel):
    """An audit that waits or runs."""

    id: str
    fleet: str
    key: str
    state: State
    started: str
    stage: str = Field("", description="Empty until one is reported.")
    models: int = 0
    done: int = 0
    total: int = Field(0, description="Shards of this stage.")
    images_per_second: float | None = None
    model: str = ""
    seconds: float = Field(0.0, description="Since the stage began.")
    at: str = ""


class Running(BaseModel):
    """Audits that wait or run now; `problem` when the job server does not answer."""

    running: list[RunningBody]
    problem: ProblemBody | None = None


class FailureBody(BaseModel):
    """A submitted audit that ended without a result."""

    id: str
    fleet: str
    state: State
    started: str
    ended: str
    why: str


class Failures(BaseModel):
    """Submitted audits that ended without a result, the latest first: crashed, stopped, in an error."""

    failures: list[FailureBody]
    problem: ProblemBody | None = None


class FiringBody(BaseModel):
    """One time that a schedule came due."""

    due_at: str
    state: str
    outcome: Outcome | None
    missed: int
    submission: str
    message: str


class ScheduleBody(BaseModel):
    """A schedule; `next_at` is null when it is paused or never fires again."""

    name: str
    fleet: str
    cron: str
    zone: str
    overlap: str
    paused: bool
    next_at: str | None
    fault: str = Field(description="Why it does not fire; empty for none.")
    firings: list[FiringBody] = Field(description="The latest first.")


class ScheduleList(BaseModel):
    """All schedules, the next to fire first; `note` says why there are none."""

    schedules: list[ScheduleBody]
    note: str = ""


class LeaderboardBody(BaseModel):
    """Boards made from MLflow's runs; a board's cells are ``[value, low, high, deviation]`` or a reason."""

    source: str
    notes: list[str]
    boards: list[dict[str, Any]]
