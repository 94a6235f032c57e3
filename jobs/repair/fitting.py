"""Class offsets fitted to what audits measure, and any other candidate measured by them.

Each round audits a few candidates side by side, on the fleet's workers and through its cache, so a run that was stopped
goes on where it was. Attacks see the offsets as part of the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from jobs.audit.audit import run_audit
from jobs.audit.session import RunnerFactory
from jobs.fleetfile.reading import Fleet, validate_fleet
from jobs.repair.offsets import Tried, best_of, proposals
from jobs.terminal.progress import Reporter
from services.errors import MeasureError, Problem
from services.measures.measure import Measure
from services.records import AuditResult, ModelResult, Overrulable, Series, SeriesResult

FIRST_STEP = 0.1
"""Of the range of the logits: the middle one of the first three steps."""
FACTORS = (0.25, 0.5, 1.0)
"""Steps tried in a round, of twice the last one that helped."""
LEAST_STEP = 0.005
"""Of the range of the logits; below that offsets move next to nothing."""
Entry = dict[str, Any]
"""A model of a fleet file."""


@dataclass(frozen=True)
class Trying:
    """Where candidates are measured: the fleet of one model, the measure and series that are to improve.

    Attributes:
        most_loss: how much of the mean may be given up.
    """

    fleet: Fleet
    measure: Measure
    series: Series
    most_loss: float
    reporter: Reporter
    runner: RunnerFactory | None = None

    @property
    def entry(self) -> Entry:
        """The model as it is."""
        return dict(self.fleet.config.model_dump(mode="json")["models"][0])

    def audited(self, entries: Sequence[Entry]) -> AuditResult:
        """Measure candidates side by side, on the samples that are not kept apart."""
        data: dict[str, Any] = self.fleet.config.model_dump(mode="json")
        place = list(self.fleet.measures).index(self.measure)
        data["fleet"] = f"{self.fleet.config.fleet}-repair-fit"[-100:]
        data["models"] = [
            {**entry, "name": f"{entry['name'][:180]} try {number}"} for number, entry in enumerate(entries, 1)
        ]
        data |= {"measures": (self.fleet.config.measures[place],), "gates": [], "groups": []}
        data |= {"gallery": "none", "slices": False}
        data["tracking"]["enabled"] = False
        return run_audit(validate_fleet(data, source="repair"), self.reporter, runner=self.runner).result

    def tried(self, result: ModelResult, offsets: Sequence[float] = ()) -> Tried:
        """The scores of a candidate by class.

        Raises:
            MeasureError: fewer than two classes have one.
        """
        measured = _by_class(result, self.series.key)
        scores = [group.score.value for group in measured.groups]
        if measured.aggregate.value is None or sum(score is not None for score in scores) < 2:
            reason = measured.aggregate.reason or "none"
            raise MeasureError(Problem(self.series.key, "scores of at least two classes", reason))
        values = tuple(float("nan") if score is None else float(score) for score in scores)
        return Tried(tuple(offsets), values, float(measured.aggregate.value))


@dataclass
class Fit:
    """What was tried on `samples` samples, the model as it is first."""

    tried: list[Tried]
    samples: int
    most_loss: float

    @property
    def start(self) -> Tried:
        """The model as it is."""
        return self.tried[0]

    @property
    def best(self) -> Tried:
        """The best worst class of those that keep the mean."""
        return best_of(self.tried, self.start.mean - self.most_loss)


@dataclass(frozen=True)
class Remedy:
    """What is to be shown on fresh samples.

    Attributes:
        name: "offsets" or "tuning".
        entry: the repaired model.
        fit: what was tried; `best` of it is the remedy.
        identity: what makes it another remedy.
        facts: what its record says of it beside numbers.
    """

    name: str
    entry: Entry
    fit: Fit
    best: Tried
    identity: tuple[Any, ...]
    facts: dict[str, Any]


def first_look(trying: Trying) -> tuple[Fit, float]:
    """The model as it is, and the range of its logits."""
    start = trying.fleet.config.models[0].offsets
    first = trying.audited([with_offsets(trying, start)])
    facts = first.models[0].facts
    fit = Fit([trying.tried(first.models[0], start)], first.samples.count, trying.most_loss)
    return fit, float(facts["logits_high"]) - float(facts["logits_low"])


def fit_offsets(trying: Trying, rounds: int) -> Fit:
    """Audit candidates round by round, until none does better or steps are small."""
    fit, scale = first_look(trying)
    step = 2 * FIRST_STEP * scale
    for number in range(1, rounds + 1):
        wanted = proposals(_full(fit.best), [factor * step for factor in FACTORS])
        known = {each.offsets for each in fit.tried}
        if not (fresh := [offsets for offsets in dict.fromkeys(wanted) if offsets not in known]):
            break
        trying.reporter.note(f"round {number} of {rounds}: worst class {fit.best.worst:.4g}, mean {fit.best.mean:.4g}")
        models = trying.audited([with_offsets(trying, offsets) for offsets in fresh]).models
        fit.tried += [trying.tried(model, offsets) for model, offsets in zip(models, fresh, strict=True)]
        now = fit.best.offsets
        step = 2 * step * FACTORS[wanted.index(now)] if now in wanted else step / 4
        if step < LEAST_STEP * scale:
            break
    return fit


def with_offsets(trying: Trying, offsets: tuple[float, ...]) -> Entry:
    """The model with these offsets. What preflight suspects of others than its own is a note: they alone differ."""
    own = trying.fleet.config.models[0].offsets
    return {**trying.entry, "offsets": offsets, **({} if offsets == own else {"overrule": get_args(Overrulable)})}


def _full(tried: Tried) -> Tried:
    """With an offset for every class."""
    return tried if tried.offsets else Tried((0.0,) * len(tried.scores), tried.scores, tried.mean)


def _by_class(result: ModelResult, key: str) -> SeriesResult:
    for measured in result.series:
        if measured.series.key == key and measured.grouping == "class":
            return measured
    raise MeasureError(Problem(f"{result.spec.name} ({key})", "a measured series", "; ".join(result.reasons) or "none"))
