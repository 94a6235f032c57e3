"""Repair what an audit found weak: class offsets, fitted on one part of the samples and judged on the other.

Offsets are the cheapest remedy: numbers added to the logits, one a class, so that weak classes are predicted sooner.
They are fitted under the measure that is to improve, attacks included, which see the offsets as part of the network:
each round audits a few candidates side by side, on the fleet's workers and through its cache, so a run that was stopped
goes on where it was. The network as it is and the repaired one are then audited on samples that took no part, and
compared pair by pair. Repaired is only what these show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from pydantic import TypeAdapter

from jobs.audit.audit import run_audit
from jobs.audit.other_samples.confirmation import use_of_reserve
from jobs.audit.publish import Published, publish
from jobs.audit.session import RunnerFactory
from jobs.comparison.comparable import paired_rows
from jobs.comparison.compare import Kept, compare
from jobs.fleetfile.followups import NOTHING_FOLLOWS
from jobs.fleetfile.reading import Fleet, validate_fleet
from jobs.repair.offsets import Tried, best_of, front, proposals
from jobs.terminal.progress import Reporter
from services.errors import ConfigError, MeasureError, Problem
from services.loading.uris import parse_uri
from services.measures.measure import Measure
from services.numerics.change import change_of_the_worst
from services.numerics.paired import mean_difference
from services.records import AuditResult, Estimate, Evidence, ModelResult, Overrulable, Series, SeriesResult, digest_of
from services.registry import did_you_mean
from tracking.bundle.comparison import Comparison
from tracking.bundle.record_file import RecordFile
from tracking.bundle.scores import CLUSTER, read_kept_scores

HALF = 0.5
"""Share of the samples that is kept apart where the fleet file reserves none."""
FIRST_STEP = 0.1
"""Of the range of the logits: the middle one of the first three steps."""
FACTORS = (0.25, 0.5, 1.0)
"""Steps tried in a round, of twice the last one that helped."""
LEAST_STEP = 0.005
"""Of the range of the logits; below that offsets move next to nothing."""
REPAIRED, WORSE, OPEN = "repaired", "worse", "not shown"


@dataclass(frozen=True)
class Repair:
    """``repair.json`` in the bundle of the repaired network's audit.

    Attributes:
        model, series: what was repaired, and under which series.
        offsets: (K,) to be added to the logits.
        before, after: audits of the network as it is and of the repaired one, on `samples` samples that took no part.
        fitted: how many samples the offsets were fitted on.
        tried: worst class and mean on those, of the offsets between which no other is better in both.
        worst: change of the worst class's mean, worst after less worst before; each limit at `level`.
        mean: change of the mean of all samples; each limit at `level`.
        use: which use of the samples kept apart it is since the last acceptance, from 1 on. The level falls with each,
            so that all together keep delta: by halves where the fleet file reserves no samples, else as
            `confirmation` says.
    """

    model: str
    series: str
    offsets: tuple[float, ...]
    before: str
    after: str
    fitted: int
    samples: int
    tried: tuple[tuple[float, float], ...]
    worst_before: float
    worst_after: float
    worst: Estimate
    mean: Estimate
    use: int
    level: float
    schema_version: int = 1

    @property
    def verdict(self) -> str:
        """What the fresh samples show of the worst class."""
        if self.worst.low is not None and self.worst.low > 0:
            return REPAIRED
        return WORSE if self.worst.high is not None and self.worst.high < 0 else OPEN


REPAIR_FILE = RecordFile("repair.json", TypeAdapter(Repair), "a record of a repair", "repair again", 1)


@dataclass(frozen=True)
class Repaired:
    """A finished repair with the published audit of the repaired network, and its comparison with the one before."""

    repair: Repair
    published: Published
    comparison: Comparison


@dataclass
class _Fit:
    """What was tried on `samples` samples, the model as it is first."""

    tried: list[Tried]
    samples: int
    most_loss: float

    @property
    def start(self) -> Tried:
        return self.tried[0]

    @property
    def best(self) -> Tried:
        return best_of(self.tried, self.start.mean - self.most_loss)


def repair(
    fleet: Fleet,
    model: str,
    reporter: Reporter,
    *,
    under: str = "",
    rounds: int = 6,
    most_loss: float = 0.05,
    runner: RunnerFactory | None = None,
) -> Repaired | None:
    """Fit offsets for one model of a fleet, and audit it with and without them on samples that took no part.

    Args:
        under: key of the series whose worst class is to rise; by default that of the first gate that can say it, else
            the first attack's.
        rounds: at most; a round audits up to three candidates.
        most_loss: how much of the mean may be given up on the samples of the fit.

    Returns:
        None where no offsets did better on the samples of the fit: nothing was audited then.

    Raises:
        ConfigError: no such model, no such series, or one that offsets must not be fitted to.
        ClasswiseError: as `run_audit`.
    """
    own = _fleet_of(fleet, model)
    measure, series = _chosen(own, under)
    fit = _fit(own, measure, series, reporter, rounds, most_loss, runner)
    start, best = fit.start, fit.best
    if best is start:
        return None
    use = use_of_reserve(fleet.config, digest_of("repair", model, series.key, best.offsets))
    level = use.level if fleet.config.samples.reserve is not None else fleet.config.intervals.delta / 2**use.number
    before, after = (_fresh(own, offsets, level) for offsets in (start.offsets, best.offsets))
    first = run_audit(before, reporter, runner=runner, publishing=True)
    publish(before, first, reporter)
    second = run_audit(after, reporter, runner=runner, publishing=True)
    then, now = Kept(first.result, first.folder), Kept(second.result, second.folder)
    comparison = compare(then, now, level=level)
    record = _record(start, best, series, then, now, own, level)
    points = tuple((each.worst, each.mean) for each in front(fit.tried))
    known = Repair(**record, fitted=fit.samples, tried=points, use=use.number, level=level)
    REPAIR_FILE.write(known, second.folder)
    return Repaired(known, publish(after, second, reporter), comparison)


def _fleet_of(fleet: Fleet, model: str) -> Fleet:
    """The fleet with this model alone, and nothing to follow."""
    data: dict[str, Any] = fleet.config.model_dump(mode="json")
    names = [each["name"] for each in data["models"]]
    if model not in names:
        raise ConfigError(Problem("--model", "a model of the fleet file", repr(model), did_you_mean(model, names)))
    kept = data["models"][names.index(model)]
    if parse_uri(kept["uri"]).scheme == "logits":
        raise ConfigError(Problem(f"{model} (uri)", "a network", "a table of logits", "offsets need no network there"))
    data["models"] = [{**kept, "promote": None, "clean_accuracy": None}]
    data["gates"] = [gate for gate in data["gates"] if gate["not_worse_than"] is None]
    if data["samples"]["part"] == "reserve":
        raise ConfigError(Problem("samples.part", "audit", "reserve", "offsets are judged on the reserve"))
    data["samples"]["reserve"] = data["samples"]["reserve"] or HALF
    data |= {"measures": fleet.config.measures, "generated": None, "decide": "full", **NOTHING_FOLLOWS}
    return validate_fleet(data, source="repair")


def _chosen(fleet: Fleet, under: str) -> tuple[Measure, Series]:
    """The series that is to improve, with its measure."""
    known = {series.key: (measure, series) for measure in fleet.measures for series in measure.series()}
    able = [key for key, (_, series) in known.items() if series.can_be_fitted]
    if under and under not in able:
        expected = "a series over all samples, of an attack or an outcome"
        raise ConfigError(Problem("--under", expected, repr(under), did_you_mean(under, able)))
    if under:
        return known[under]
    gated = [gate.measure for gate in fleet.config.gates if gate.measure in able]
    attacks = [key for key in able if known[key][1].evidence is Evidence.ATTACK]
    for key in (*gated, *attacks, *able):
        return known[key]
    raise ConfigError(Problem("measures", "an attack, or clean", ", ".join(known), "add clean or pgd"))


def _fit(
    fleet: Fleet,
    measure: Measure,
    series: Series,
    reporter: Reporter,
    rounds: int,
    most_loss: float,
    runner: RunnerFactory | None,
) -> _Fit:
    """Audit candidates round by round, until none does better or steps are small."""
    place, start = list(fleet.measures).index(measure), fleet.config.models[0].offsets
    first = _audited(fleet, place, [start], reporter, runner)
    scale = float(first.models[0].facts["logits_high"]) - float(first.models[0].facts["logits_low"])
    fit = _Fit([_tried(first.models[0], series, start)], first.samples.count, most_loss)
    step = 2 * FIRST_STEP * scale
    for number in range(1, rounds + 1):
        wanted = proposals(_full(fit.best), [factor * step for factor in FACTORS])
        known = {each.offsets for each in fit.tried}
        if not (fresh := [offsets for offsets in dict.fromkeys(wanted) if offsets not in known]):
            break
        reporter.note(f"round {number} of {rounds}: worst class {fit.best.worst:.4g}, mean {fit.best.mean:.4g}")
        models = _audited(fleet, place, fresh, reporter, runner).models
        fit.tried += [_tried(model, series, offsets) for model, offsets in zip(models, fresh, strict=True)]
        now = fit.best.offsets
        step = 2 * step * FACTORS[wanted.index(now)] if now in wanted else step / 4
        if step < LEAST_STEP * scale:
            break
    return fit


def _full(tried: Tried) -> Tried:
    """With an offset for every class."""
    return tried if tried.offsets else Tried((0.0,) * len(tried.scores), tried.scores, tried.mean)


def _audited(
    fleet: Fleet,
    place: int,
    candidates: Sequence[tuple[float, ...]],
    reporter: Reporter,
    runner: RunnerFactory | None,
) -> AuditResult:
    """Measure the model under each candidate, side by side."""
    data: dict[str, Any] = fleet.config.model_dump(mode="json")
    own = data["models"][0]
    data["fleet"] = f"{fleet.config.fleet}-repair-fit"[-100:]
    data["models"] = [
        _shifted(own, offsets, fleet) | {"name": f"{own['name'][:180]} try {number}"}
        for number, offsets in enumerate(candidates, 1)
    ]
    data |= {"measures": (fleet.config.measures[place],), "gates": [], "groups": [], "gallery": "none", "slices": False}
    data["tracking"]["enabled"] = False
    return run_audit(validate_fleet(data, source="repair"), reporter, runner=runner).result


def _shifted(model: dict[str, Any], offsets: tuple[float, ...], fleet: Fleet) -> dict[str, Any]:
    """The model with these offsets. What preflight suspects of others than its own is a note: they alone differ."""
    own = fleet.config.models[0].offsets
    return {**model, "offsets": offsets, **({} if offsets == own else {"overrule": get_args(Overrulable)})}


def _tried(result: ModelResult, series: Series, offsets: tuple[float, ...]) -> Tried:
    measured = _by_class(result, series.key)
    scores = [group.score.value for group in measured.groups]
    if measured.aggregate.value is None or sum(score is not None for score in scores) < 2:
        raise MeasureError(Problem(series.key, "scores of at least two classes", measured.aggregate.reason or "none"))
    values = tuple(float("nan") if score is None else float(score) for score in scores)
    return Tried(tuple(offsets), values, float(measured.aggregate.value))


def _by_class(result: ModelResult, key: str) -> SeriesResult:
    for measured in result.series:
        if measured.series.key == key and measured.grouping == "class":
            return measured
    raise MeasureError(Problem(f"{result.spec.name} ({key})", "a measured series", "; ".join(result.reasons) or "none"))


def _fresh(fleet: Fleet, offsets: tuple[float, ...], level: float) -> Fleet:
    """The model with these offsets, on the samples that were kept apart."""
    data: dict[str, Any] = fleet.config.model_dump(mode="json")
    data["fleet"] = f"{fleet.config.fleet}-repair"[-100:]
    data["models"] = [_shifted(data["models"][0], offsets, fleet)]
    data["samples"]["part"] = "reserve"
    data["intervals"]["delta"] = level
    data["measures"] = fleet.config.measures
    return validate_fleet(data, source="repair")


def _record(
    start: Tried, best: Tried, series: Series, then: Kept, now: Kept, fleet: Fleet, level: float
) -> dict[str, Any]:
    """What the two audits on the fresh samples say, pair by pair."""
    columns = ["id", "label", series.key]
    if fleet.config.samples.cluster is not None:
        columns.append(CLUSTER)
    tables = [read_kept_scores(kept.folder, 0, kept.result.models[0].spec, columns) for kept in (then, now)]
    rows = paired_rows(*tables)
    before, after = (table[series.key][mine] for table, mine in zip(tables, rows, strict=True))
    labels = tables[1]["label"][rows[1]]
    clusters = tables[1][CLUSTER][rows[1]] if CLUSTER in tables[1] else None
    shared: dict[str, Any] = {
        "bound": series.bound,
        "alpha": level,
        "clusters": clusters,
        "seed": fleet.config.seed,
    }
    classes = len(now.result.samples.classes)
    weakest = (int(np.nanargmin(start.scores)), int(np.nanargmin(best.scores)))
    worst = change_of_the_worst(before, after, labels, classes, binary=series.binary, weakest=weakest, **shared)
    of_class = [labels == k for k in np.unique(labels)]
    return {
        "model": now.result.models[0].spec.name,
        "series": series.key,
        "offsets": best.offsets,
        "before": then.result.audit_id,
        "after": now.result.audit_id,
        "samples": len(labels),
        "worst_before": min(float(before[mine].mean()) for mine in of_class),
        "worst_after": min(float(after[mine].mean()) for mine in of_class),
        "worst": worst,
        "mean": mean_difference(before, after, **shared),
    }
