"""What an audit will cost before it starts: passes, time, hours and money, of each model and measure.

From the speed that preflight measured and the passes that a sample takes which no attack breaks, so it is an upper
bound where attacks break samples. What is in the cache costs nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from jobs.audit import plan
from jobs.audit.early.needs import Need, needs_of
from jobs.audit.early.order import FIRST
from jobs.audit.speeds import Speed
from jobs.fleetfile.gates import GateConfig
from jobs.fleetfile.reading import Fleet
from jobs.fleetfile.tree import ResourcesConfig
from services.errors import StorageError
from services.measures.autoattack import AutoAttackSurvival
from services.measures.measure import Measure
from services.metrics import METRICS
from services.numerics.intervals.planning import gains_of_share, samples_until
from services.records import ModelSpec
from tracking.bundle.bundle import list_bundles, read_bundle

LOGITS, AUTOATTACK = "logits", "autoattack"
GAP = 0.1
"""How far estimates are supposed to lie from their thresholds, in units of the score's range."""
PROBE = 1.1
"""Times what an attack costs, with its probe."""
UNMEASURED = Speed()


@dataclass(frozen=True)
class Cost:
    """Of one measure on one model.

    Attributes:
        samples: that are not in the cache.
        passes: forward passes, or what costs as much, at most.
        seconds: of one worker, at most.
        share: of the samples that an early decision is expected to take; 1 where it needs all.
        usual: what the fleet's last audit took of a sample, as a share of the most; None where it did not measure that.
    """

    model: str
    measure: str
    samples: int
    passes: float
    seconds: float
    share: float = 1.0
    usual: float | None = None


@dataclass(frozen=True)
class Forecast:
    """Of an audit.

    Attributes:
        costs: what is left to do, model by model.
        autoattack: what AutoAttack would take on these samples, where it is not measured.
        workers, gpus: how many, and GPUs of each.
        price: of an hour of a GPU, or of a worker without one; None where not known.
        early: the audit decides early.
    """

    costs: tuple[Cost, ...]
    autoattack: tuple[Cost, ...]
    workers: int
    gpus: float
    price: float | None
    early: bool

    def hours(self, costs: Iterable[Cost], *, early: bool = False, usual: bool = False) -> float:
        """GPU-hours, or hours of a worker without one; at most, or as in the last audit where that is known."""
        seconds = 0.0
        for cost in costs:
            known = cost.usual if usual and cost.usual is not None else 1.0
            seconds += cost.seconds * known * (cost.share if early else 1.0)
        return seconds * (self.gpus or 1.0) / 3600

    def wall(self, costs: Iterable[Cost], *, early: bool = False, usual: bool = False) -> float:
        """Seconds on all workers."""
        return 3600 * self.hours(costs, early=early, usual=usual) / ((self.gpus or 1.0) * self.workers)

    def money(self, hours: float) -> float | None:
        """What hours cost."""
        return None if self.price is None else hours * self.price


def forecast(
    fleet: Fleet, plans: Sequence[plan.ModelPlan], context: plan.Context, speeds: Mapping[str, Speed]
) -> Forecast:
    """The costs of what is not in the cache."""
    shares = _shares(fleet, context)
    costs = [cost for item in plans for cost in costs_of(item, context, speeds.get(item.spec.name, Speed()), shares)]
    if costs:  # else the last audit's bundle need not be read
        usual = _usual(fleet)
        costs = [replace(cost, usual=usual.get((cost.model, cost.measure))) for cost in costs]
    measured = any(isinstance(measure, AutoAttackSurvival) for measure in fleet.measures)
    attack = () if measured else tuple(_autoattack(plans, context, speeds))
    resources = fleet.config.resources
    early = fleet.config.decide == "early"
    return Forecast(tuple(costs), attack, workers_of(resources), resources.gpus, resources.price, early)


def workers_of(resources: ResourcesConfig) -> int:
    """How many workers run at once; one where only a cluster knows."""
    if resources.runner == "local" or (resources.workers == "auto" and (resources.address or resources.gpus)):
        return 1
    if resources.workers == "auto":
        return max(1, int((os.cpu_count() or 1) / max(resources.cpus, 1e-9)))
    return int(resources.workers)


def costs_of(
    item: plan.ModelPlan,
    context: plan.Context,
    speed: Speed = UNMEASURED,
    shares: Mapping[str, float] = MappingProxyType({}),
) -> Iterator[Cost]:
    """Of one model, measure by measure, what is not in the cache."""
    name = item.spec.name
    if rows := sum(task.stop - task.start for task in plan.logits_tasks(item, context)):
        yield Cost(name, LOGITS, rows, rows, rows * speed.seconds(None))
    for table in item.tables:
        if table.measure is None or table.measure.needs == "logits":
            continue
        tasks = plan.measure_tasks(replace(item, tables=(table,)), context)
        if rows := sum(task.stop - task.start for task in tasks):
            label = table.measure.series()[0].label
            yield _cost(name, label, table.measure, rows, speed, shares.get(label, 1.0))


def _cost(model: str, label: str, measure: Measure, rows: int, speed: Speed, share: float = 1.0) -> Cost:
    times = PROBE if measure.series()[0].attack else 1.0
    return Cost(model, label, rows, rows * times * measure.most_passes, rows * times * speed.seconds(measure), share)


def _autoattack(plans: Sequence[plan.ModelPlan], context: plan.Context, speeds: Mapping[str, Speed]) -> Iterator[Cost]:
    for item in plans:
        speed = speeds.get(item.spec.name, Speed())
        if speed.gradient is not None:
            measure = _attack_of(item.spec)
            yield _cost(item.spec.name, AUTOATTACK, measure, context.count, speed)


def _attack_of(spec: ModelSpec) -> AutoAttackSurvival:
    threat = spec.threat_model
    if threat is None or threat.norm in ("L1", "corruptions"):
        return AutoAttackSurvival()
    return AutoAttackSurvival(norm=threat.norm, epsilons=(threat.epsilon,))


def _usual(fleet: Fleet) -> dict[tuple[str, str], float]:
    """By model and measure: passes that the last audit took of a sample, of those that it would take unbroken."""
    folders = list_bundles(fleet.config.storage, fleet.config.fleet)
    try:
        models = read_bundle(folders[-1]).models if folders else ()
    except StorageError:
        return {}
    measures = {measure.series()[0].key: measure for measure in fleet.measures if measure.needs == "model"}
    shares = {}
    for model in models:
        for result in model.series:
            measure, queries = measures.get(result.series.key), result.extras.get("queries")
            if measure is not None and queries is not None and result.grouping == "class":
                whole = measure.pass_cost * queries / measure.most_passes
                shares[model.spec.name, result.series.label] = min(1.0, whole)
    return shares


# --- early --------------------------------------------------------------------------------------------------------


def _shares(fleet: Fleet, context: plan.Context) -> dict[str, float]:
    """Of the samples, what the gates on each measure are expected to take."""
    if fleet.config.decide != "early":
        return {}
    needs = needs_of(fleet, fleet.measures)
    return {need.measure.series()[0].label: _share(need, fleet, context) for need in needs}


def _share(need: Need, fleet: Fleet, context: plan.Context) -> float:
    if need.complete or (not need.needed and fleet.config.early.only == "all"):
        return 1.0
    if not need.needed:
        return 0.0
    classes = max(1, context.classes)
    bounds = {series.key: series.bound for series in need.measure.series()}
    wanted = [_samples(gate, bounds[gate.measure], fleet.config.intervals.delta, classes) for gate in need.early]
    return min(1.0, max(FIRST, *wanted) / max(1, context.count))


def _samples(gate: GateConfig, bound: float, delta: float, classes: int) -> float:
    """In all classes, until a gate is decided whose estimate lies `GAP` beyond the threshold."""
    threshold = (gate.at_least if gate.at_least is not None else gate.at_most or 0.0) / bound
    if METRICS[gate.metric].needs == "samples":
        return _until(threshold, delta / 2)
    if gate.metric == "wcr":
        return classes * _until(threshold, delta)
    return classes * _until(0.5, delta / (2 * classes))


def _until(threshold: float, alpha: float) -> float:
    middle = min(max(threshold, 0.01), 0.99 - GAP)
    return samples_until(gains_of_share(middle + GAP, middle), alpha) or float("inf")
