"""Rounds of one measure over many models: every model on as many samples as its gates still need.

All models that are undecided are in each round, so that few samples of each fill the workers. After a round its gates
are judged as at the end of the audit, but for the adequacy of attacks, which is looked at once and on what was taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from jobs.audit import plan
from jobs.audit.early.interim import Look, falls_short, look_at
from jobs.audit.early.order import Bools, Ints, Order, counts_at, first_level, next_level
from jobs.audit.judging.assemble import Grouping, extras_of, series_result
from jobs.audit.judging.verdict import Case
from jobs.audit.scores import read_scores
from jobs.audit.session import Session
from jobs.fleetfile.gates import GateConfig, gate_text
from jobs.fleetfile.tree import FleetConfig
from services.errors import StorageError
from services.loading.protocols import Samples
from services.measures.measure import Measure
from services.records import GateResult, SeriesResult, ShardTask
from services.storage.picks import known_rows
from tracking.bundle.scores import Scores

READS = 3
"""How often a table may be deleted under a round."""


@dataclass(frozen=True)
class Fleetwide:
    """What all rounds of an audit have in common."""

    config: FleetConfig
    samples: Samples
    context: plan.Context
    classes: Grouping
    order: Order
    session: Session


@dataclass
class Front:
    """How far a model is with one measure.

    Attributes:
        counts: (K,) samples taken of each class.
        known: (N,) rows of the table that are there.
        seen: after the last round; None before the first.
        level: samples a class after the last round.
        spare: by gate, what a probe of the attack broke and the attack left: the lower limit has to clear the threshold
            by that.
    """

    item: plan.ModelPlan
    table: plan.Table
    measure: Measure
    gates: tuple[GateConfig, ...]
    counts: Ints
    known: Bools
    seen: Look | None = None
    level: int = 0
    spare: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, item: plan.ModelPlan, measure: Measure, gates: tuple[GateConfig, ...], fleet: Fleetwide) -> Front:
        table = next(table for table in item.tables if table.measure == measure)
        none = np.zeros(fleet.order.sizes.size, dtype=np.int64)
        return cls(item, table, measure, gates, none, known_rows(table.folder, fleet.context.count))

    def advance(self, fleet: Fleetwide) -> bool:
        """Plan the next round; False where there is no further sample that a gate needs."""
        sizes = fleet.order.sizes
        need = self.seen or Look({}, np.ones(sizes.size, dtype=bool), in_proportion=True)
        while self.level < sizes.max():
            self.level = next_level(self.level) if self.level else first_level(sizes.size)
            counts = counts_at(self.level, self.counts, sizes, need.wanted, in_proportion=need.in_proportion)
            if (counts > self.counts).any():
                self.counts = counts
                return True
        return False

    @property
    def results(self) -> dict[str, GateResult]:
        """Its gates after the last round, by text."""
        return self.seen.results if self.seen is not None else {}

    def taken(self, fleet: Fleetwide, *, failed: bool) -> plan.Taken:
        """What it rests on."""
        return plan.Taken.of(fleet.order.prefix(self.counts), fleet.context.count, failed=failed)

    def short_of(self, shares: Mapping[str, float], fleet: Fleetwide) -> bool:
        """Whether passes do not clear their thresholds by the shares that a probe broke: later rounds ask for that."""
        passed = [(gate, self.results[text]) for gate in self.gates if (text := gate_text(gate)) in self.results]
        broken = ((gate, judged, shares.get(judged.text, 0.0)) for gate, judged in passed)
        short = {judged.text: share for gate, judged, share in broken if falls_short(gate, judged, share)}
        self.spare |= short
        if short:
            self.look(fleet)
        return bool(short)

    def tasks(self, fleet: Fleetwide) -> list[ShardTask]:
        """What has to be measured for it."""
        rows = fleet.order.prefix(self.counts)
        missing = rows[~self.known[rows]]
        return plan.pick_tasks(self.table, self.item.digest, missing, fleet.context)

    def look(self, fleet: Fleetwide) -> None:
        """Judge the gates on what was taken.

        Raises:
            StorageError: a shard is gone.
        """
        rows = fleet.order.prefix(self.counts)
        self.known[rows] = True
        case = case_of(self.item, self.table, rows, fleet)
        self.seen = look_at(self.gates, case, rows, self.measure, fleet.config, self.spare)


def case_of(item: plan.ModelPlan, table: plan.Table, rows: Ints, fleet: Fleetwide) -> Case:
    """A model of which one table was measured on these rows."""
    taken = {table.key: plan.Taken(rows)}
    alone = replace(item, tables=(table,))
    scores = read_scores(alone, fleet.samples, replace(fleet.context, taken=taken))
    series = tuple(_series(table, scores, rows, fleet))
    return Case(alone, scores, series, (), (), (), (fleet.classes,), fleet.samples, {}, taken)


def _series(table: plan.Table, scores: Scores, rows: Ints, fleet: Fleetwide) -> list[SeriesResult]:
    if table.measure is None:
        return []
    extras, keys = extras_of(scores, table.measure), {gate.measure for gate in fleet.config.gates}
    return [
        series_result(series, scores[series.key], extras, fleet.classes, fleet.config, rows=rows)
        for series in table.measure.series()
        if series.key in keys
    ]


def run_rounds(fronts: Sequence[Front], fleet: Fleetwide, enough: Callable[[Front], bool]) -> None:
    """Measure until every model is decided, has had enough, or has no more samples.

    Args:
        enough: of a front that was just judged, whether to leave its other gates undecided.
    """
    todo = list(fronts)
    while todo := [front for front in todo if front.advance(fleet)]:
        _measure(todo, fleet)
        todo = [front for front in todo if fleet.session.alive(front.item.spec.name)]
        todo = [front for front in todo if not (_settled(front) or enough(front))]


def _settled(front: Front) -> bool:
    return front.seen is not None and front.seen.settled


def _measure(fronts: Sequence[Front], fleet: Fleetwide) -> None:
    """Measure what a round needs and judge it; shards that were deleted meanwhile are made again."""
    todo = list(fronts)
    for attempt in range(READS):
        tasks = [task for front in todo for task in front.tasks(fleet)]
        if tasks:
            fleet.session.run("rounds", tasks, rows=sum(int(front.counts.sum()) for front in todo))
        again = []
        for front in todo:
            if not fleet.session.alive(front.item.spec.name):
                continue
            try:
                front.look(fleet)
            except StorageError:
                if attempt + 1 == READS:
                    raise
                front.known = known_rows(front.table.folder, fleet.context.count)
                again.append(front)
        todo = again
        if not todo:
            return
