"""Rounds of one measure over many models: every model on as many samples as its gates still need.

All models that are undecided are in each round, so that few samples of each fill the workers. After a round its gates
are judged as at the end of the audit, but for the adequacy of attacks, which is looked at once and on what was taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jobs.audit import plan
from jobs.audit.early.look import Look, look_at
from jobs.audit.early.order import Bools, Ints, Order, counts_at, first_level, next_level
from jobs.audit.judging.assemble import Grouping, extras_of, series_result
from jobs.audit.judging.verdict import Case
from jobs.audit.scores import read_scores
from jobs.audit.session import Session
from jobs.fleetfile.gates import GateConfig
from jobs.fleetfile.tree import FleetConfig
from services.errors import StorageError
from services.loading.protocols import Samples
from services.measures.measure import Measure
from services.records import SeriesResult, ShardTask
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
    """

    item: plan.ModelPlan
    table: plan.Table
    measure: Measure
    gates: tuple[GateConfig, ...]
    counts: Ints
    known: Bools
    seen: Look | None = None

    @classmethod
    def of(cls, item: plan.ModelPlan, measure: Measure, gates: tuple[GateConfig, ...], fleet: Fleetwide) -> Front:
        table = next(table for table in item.tables if table.measure == measure)
        none = np.zeros(fleet.order.sizes.size, dtype=np.int64)
        return cls(item, table, measure, gates, none, known_rows(table.folder, fleet.context.count))

    def advance(self, level: int, fleet: Fleetwide) -> bool:
        """Plan the next round; False where there is no further sample that a gate needs."""
        every = Look({}, np.ones(self.counts.size, dtype=bool), in_proportion=True)
        need, sizes = self.seen or every, fleet.order.sizes
        counts = counts_at(level, self.counts, sizes, need.wanted, in_proportion=need.in_proportion)
        moved = bool((counts > self.counts).any())
        self.counts = counts
        return moved

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
        self.seen = look_at(self.gates, case, rows, self.measure, fleet.config)


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
    level, open_fronts = first_level(fleet.order.sizes.size), list(fronts)
    while open_fronts:
        open_fronts = [front for front in open_fronts if front.advance(level, fleet)]
        _measure(open_fronts, fleet)
        open_fronts = [front for front in open_fronts if fleet.session.alive(front.item.spec.name)]
        open_fronts = [front for front in open_fronts if not (_settled(front) or enough(front))]
        level = next_level(level)


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
