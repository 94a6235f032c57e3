"""Repair what an audit found weak: by class offsets, or by a fine-tuning, and judge it on samples that took no part.

Offsets are the cheapest remedy: numbers added to the logits, one a class, so that weak classes are predicted sooner.
They are fitted under the measure that is to improve. A fine-tuning gives each class the weight that the audit found it
to need. The network as it is and the repaired one are then audited on samples that took no part, and compared pair by
pair. Repaired is only what these show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from jobs.audit.audit import run_audit
from jobs.audit.other_samples.confirmation import use_of_reserve
from jobs.audit.publish import Published, publish
from jobs.audit.session import RunnerFactory
from jobs.comparison.comparable import paired_rows
from jobs.comparison.compare import Kept, compare
from jobs.fleetfile.followups import NOTHING_FOLLOWS
from jobs.fleetfile.reading import Fleet, validate_fleet
from jobs.repair.fitting import Entry, Remedy, Trying, fit_offsets, with_offsets
from jobs.repair.offsets import front
from jobs.repair.record import REPAIR_FILE, Repair
from jobs.repair.tuning import Tuning, tuned
from jobs.terminal.progress import Reporter
from services.errors import ConfigError, Problem
from services.loading.uris import parse_uri
from services.measures.measure import Measure
from services.numerics.change import change_of_the_worst
from services.numerics.paired import mean_difference
from services.records import Evidence, Series, digest_of
from services.registry import did_you_mean
from tracking.bundle.bundle import list_bundles
from tracking.bundle.comparison import Comparison
from tracking.bundle.scores import CLUSTER, read_kept_scores

HALF = 0.5
"""Share of the samples that is kept apart where the fleet file reserves none."""


@dataclass(frozen=True)
class Repaired:
    """A finished repair with the published audit of the repaired network, and its comparison with the one before.

    Attributes:
        remedies: all repairs that the same samples showed, this one among them.
    """

    repair: Repair
    published: Published
    comparison: Comparison
    remedies: tuple[Repair, ...] = ()


def repair(
    fleet: Fleet,
    model: str,
    reporter: Reporter,
    *,
    under: str = "",
    rounds: int = 6,
    most_loss: float = 0.05,
    tuning: Tuning | None = None,
    runner: RunnerFactory | None = None,
) -> Repaired | None:
    """Repair one model of a fleet, by offsets or by a fine-tuning, and audit both on samples that took no part.

    Args:
        under: key of the series whose worst class is to rise; by default that of the first gate that can say it, else
            the first attack's.
        rounds: at most; a round audits up to three candidates.
        most_loss: how much of the mean may be given up on the samples of the fit.
        tuning: what to train; None fits offsets.

    Returns:
        None where nothing did better on the samples of the fit: nothing was audited then.

    Raises:
        ConfigError: no such model, no such series, or one that offsets must not be fitted to.
        ClasswiseError: as `run_audit`.
    """
    own, measure, series = target(fleet, model, under)
    trying = Trying(own, measure, series, most_loss, reporter, runner)
    remedy = _offsets(trying, rounds) if tuning is None else tuned(trying, tuning)
    if remedy is None:
        return None
    use = use_of_reserve(fleet.config, digest_of("repair", model, series.key, *remedy.identity))
    level = use.level if fleet.config.samples.reserve is not None else fleet.config.intervals.delta / 2**use.number
    before, after = (_fresh(own, entry, level) for entry in (trying.entry, remedy.entry))
    first = run_audit(before, reporter, runner=runner, publishing=True)
    publish(before, first, reporter)
    second = run_audit(after, reporter, runner=runner, publishing=True)
    then, now = Kept(first.result, first.folder), Kept(second.result, second.folder)
    comparison = compare(then, now, level=level)
    known = Repair(**_record(remedy, series, then, now, own, level), use=use.number, level=level)
    REPAIR_FILE.write(known, second.folder)
    return Repaired(known, publish(after, second, reporter), comparison, remedies(own, known))


def remedies(fleet: Fleet, repair: Repair) -> tuple[Repair, ...]:
    """All repairs of a model under the same series that the same fresh samples showed, the first made first."""
    repairs = []
    for folder in list_bundles(fleet.config.storage, _of_fresh(fleet)):
        known = REPAIR_FILE.read(folder)
        if known and (known.model, known.series, known.content) == (repair.model, repair.series, repair.content):
            repairs.append(known)
    latest = {(each.remedy, each.offsets, each.uri): each for each in sorted(repairs, key=lambda each: each.use)}
    return tuple(latest.values())


def _offsets(trying: Trying, rounds: int) -> Remedy | None:
    """The best offsets; None where none did better than those of the model."""
    fit = fit_offsets(trying, rounds)
    if fit.best is fit.start:
        return None
    entry, offsets = with_offsets(trying, fit.best.offsets), fit.best.offsets
    return Remedy("offsets", entry, fit, fit.best, identity=(offsets,), facts={"offsets": offsets})


def target(fleet: Fleet, model: str, under: str) -> tuple[Fleet, Measure, Series]:
    """The fleet of the model alone, and the series that is to improve, with its measure.

    Raises:
        ConfigError: as `repair`.
    """
    own = _fleet_of(fleet, model)
    return own, *_chosen(own, under)


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


def _of_fresh(fleet: Fleet) -> str:
    """Name of the fleet of the audits that show it."""
    return f"{fleet.config.fleet}-repair"[-100:]


def _fresh(fleet: Fleet, entry: Entry, level: float) -> Fleet:
    """The candidate, on the samples that were kept apart."""
    data: dict[str, Any] = fleet.config.model_dump(mode="json")
    data["fleet"], data["models"] = _of_fresh(fleet), [entry]
    data["samples"]["part"] = "reserve"
    data["intervals"]["delta"] = level
    data["measures"] = fleet.config.measures
    return validate_fleet(data, source="repair")


def _record(remedy: Remedy, series: Series, then: Kept, now: Kept, fleet: Fleet, level: float) -> dict[str, Any]:
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
    weakest = (int(np.nanargmin(remedy.fit.start.scores)), int(np.nanargmin(remedy.best.scores)))
    worst = change_of_the_worst(before, after, labels, classes, binary=series.binary, weakest=weakest, **shared)
    of_class = [labels == k for k in np.unique(labels)]
    return {
        "model": now.result.models[0].spec.name,
        "series": series.key,
        "remedy": remedy.name,
        "offsets": (),
        **remedy.facts,
        "fitted": remedy.fit.samples,
        "tried": tuple((each.worst, each.mean) for each in front(remedy.fit.tried)),
        "content": now.result.samples.digest,
        "mean_before": float(before.mean()),
        "before": then.result.audit_id,
        "after": now.result.audit_id,
        "samples": len(labels),
        "worst_before": min(float(before[mine].mean()) for mine in of_class),
        "worst_after": min(float(after[mine].mean()) for mine in of_class),
        "worst": worst,
        "mean": mean_difference(before, after, **shared),
    }
