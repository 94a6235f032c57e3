"""Probes of the attacks of an audit: which samples, what a tenth of an attack buys, and what was seen.

Three rounds of tasks for workers. A probe looks at the samples that the attack left, and at the gradients of some of
each class. A paired sign that these could make is then looked for on those that the attack broke, for the other side of
the pair, and gradients of the classes and parts of the input that are suspect on more samples. At last the adversarials
that the probes of other models ended at are tried on each model, at one forward pass a sample.

Files of a probe lie in the folder of the attack's table: they are kept, and pruned, with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from jobs.audit.plan import Context, ModelPlan, Table
from jobs.audit.session import Session
from services.measures.measure import Measure
from services.measures.probes.budget import (
    AGAIN,
    GRADIENT_COST,
    SAMPLES,
    SHARE,
    Guard,
    ProbePlan,
    looks_a_class,
    plan_probe,
    to_json,
)
from services.numerics.evidence.adequacy import Sign, SignCount
from services.numerics.evidence.signs import Columns, by_class, paired_count, probe_counts, suspects, unsettled
from services.records import Series, ShardTask, digest_of
from services.storage import files
from services.storage.picks import read_rows
from services.storage.shards import read_shard, read_table

PROBE_VERSION = 3
"""Raised when a probe would see something else for the same attack."""
ENOUGH = 16
"""The radius of a probe is the largest at which so many of its samples stand."""
DONORS = 4
"""At most so many other models' adversarials are tried on each."""
TRANSFER_SHARE = 0.03
"""Of the attack's cost, for trying them; one donor's are tried in any case."""


@dataclass(frozen=True)
class ProbeSeen:
    """What a probe saw: how many samples it looked at, and the counts of each sign."""

    samples: int
    counts: tuple[SignCount, ...] = ()


@dataclass(frozen=True)
class Survival:
    """What an attack left of N samples.

    Attributes:
        ids, correct: (N,).
        fell: (N,) the radius at which it broke each, infinite where it never did.
        radii: of its balls, smallest first.
        reach: the largest radius at which it looked.
    """

    ids: NDArray[np.int64]
    correct: NDArray[np.bool_]
    fell: NDArray[np.float64]
    radii: tuple[float, ...]
    reach: float

    def stands(self, radius: float) -> NDArray[np.bool_]:
        return self.correct & (self.fell > radius)


@dataclass(frozen=True)
class Probe:
    """The probe of one attack on one model: `rows` (n,) of the samples, what is guarded, and what is tried.

    `donors` are how many models' adversarials it can afford. `ranked` (m,) are the rows of all samples that may be
    looked at, evenly over the classes: the gradients of the first `wide` are, and more of those of suspect classes.
    """

    item: ModelPlan
    table: Table
    rows: NDArray[np.int64]
    guard: Guard
    plan: ProbePlan
    survival: Survival
    context: Context
    donors: int
    ranked: NDArray[np.int64]
    wide: int
    labels: NDArray[np.int64]

    @property
    def stands(self) -> NDArray[np.bool_]:
        """(n,) whether the attack left the sample."""
        return self.survival.stands(self.guard.epsilon)[self.rows]

    @cached_property
    def first(self) -> ShardTask:
        """Looks at the samples left, and at the gradients of all."""
        return self._looks(self.rows, self.stands, self.plan, gradients=bool(self.guard.losses), points=True)

    @property
    def of_classes(self) -> ShardTask | None:
        """Looks at the gradients of further samples, of classes of which the probe has few; None where it has none."""
        return self._gradients(np.setdiff1d(self.ranked[: self.wide], self.rows))

    def suspect_classes(self, labels: Sequence[int]) -> ShardTask | None:
        """Looks at the gradients of further samples of some classes."""
        rows = [self.ranked[self.labels[self.ranked] == label][:AGAIN] for label in labels]
        seen = np.concatenate([self.rows, self.ranked[: self.wide]])
        return self._gradients(np.setdiff1d(np.concatenate([[], *rows]).astype(np.int64), seen))

    def suspect_parts(self, parts: Sequence[str]) -> ShardTask | None:
        """Looks at the gradients of parts of the input on all samples of the probe."""
        if not parts:
            return None
        stands = np.ones(len(self.rows), dtype=bool)
        return self._looks(self.rows, stands, ProbePlan(), gradients=True, parts=list(parts))

    def _gradients(self, rows: NDArray[np.int64]) -> ShardTask | None:
        if not len(rows) or not self.guard.losses:
            return None
        return self._looks(rows, np.ones(len(rows), dtype=bool), ProbePlan(), gradients=True)

    def second(self, wanted: Mapping[str, int]) -> ShardTask | None:
        """Looks for some signs on the samples that the attack broke; None where there is nothing to look for.

        `wanted` is by column how many samples that a cheap attack leaves speak against its sign.
        """
        broken = self.rows[~self.stands]
        if not wanted or not len(broken):
            return None
        budget = {
            Sign.OTHER_LOSS: ("steps", "more"),
            Sign.NOISE: ("draws",),
            Sign.SHORTER: ("large",),
            Sign.BLACK_BOX: ("queries",),
        }
        names = [name for column in wanted for name in budget.get(Sign(column.partition(":")[0]), ())]
        plan = ProbePlan(**{name: getattr(self.plan, name) for name in names})
        return self._task("probe", len(broken), to_json(self.guard, plan, rows=broken.tolist(), most=dict(wanted)))

    def transfer(self, donors: Sequence[Probe]) -> ShardTask:
        """Tries the adversarials of other models."""
        listed = [[donor.first.target, donor.guard.epsilon] for donor in donors]
        return self._task("transfer", sum(len(donor.rows) for donor in donors), json.dumps({"donors": listed}))

    def _looks(
        self, rows: NDArray[np.int64], stands: NDArray[np.bool_], plan: ProbePlan, *, points: bool = False, **looks: Any
    ) -> ShardTask:
        left = stands.astype(int).tolist()
        payload = to_json(self.guard, plan, rows=rows.tolist(), stands=left, looks={"points": points, **looks})
        return self._task("probe", len(rows), payload)

    def _task(self, kind: Literal["probe", "transfer"], count: int, payload: str) -> ShardTask:
        name = digest_of(kind, PROBE_VERSION, self.context.seed, payload)[:16]
        return ShardTask(
            kind,
            self.item.spec,
            self.context.samples,
            0,
            count,
            self.context.seed,
            self.context.batch,
            target=files.join(self.table.folder, f"{kind}-{name}.parquet"),
            payload=payload,
            digest=self.item.digest,
        )


def fill_probes(plans: Sequence[ModelPlan], context: Context, session: Session, delta: float) -> dict[str, ProbeSeen]:
    """Run the probes that are not in the cache; what was seen, by the key of the attack's table.

    Raises:
        StorageError: a table or a probe was deleted meanwhile.
    """
    alive = [item for item in plans if session.alive(item.spec.name)]
    probes = [probe for item in alive for each in attacked(item) if (probe := probe_of(item, *each, context))]
    _run("probes", [task for probe in probes for task in (probe.first, probe.of_classes) if task], session)
    probes = [probe for probe in probes if session.alive(probe.item.spec.name)]
    again = [_Again.of(probe, delta) for probe in probes]
    _run("probes again", [task for each in again for task in each.tasks], session)
    donors = [donors_of(probe, probes) for probe in probes]
    tried = [probe.transfer(given) if given else None for probe, given in zip(probes, donors, strict=True)]
    _run("transfer", [task for task in tried if task is not None], session)
    return {
        each.probe.table.key: _seen(each, transfer)
        for each, transfer in zip(again, tried, strict=True)
        if session.alive(each.probe.item.spec.name)
    }


@dataclass(frozen=True)
class _Again:
    """What a probe saw at first, and what is looked at again for it."""

    probe: Probe
    first: Columns
    wide: tuple[Columns, ...]
    pairs: ShardTask | None
    parts: ShardTask | None
    classes: ShardTask | None

    @classmethod
    def of(cls, probe: Probe, delta: float) -> _Again:
        first, wide = read_shard(probe.first.target), tuple(_read(probe.of_classes))
        suspect = suspects(probe_counts(first, classes=wide))
        labels = sorted({count.label for count in suspect if count.label is not None})
        parts = [count.part for count in suspect if count.label is None]
        pairs = probe.second(unsettled(first, delta))
        return cls(probe, first, wide, pairs, probe.suspect_parts(parts), probe.suspect_classes(labels))

    @property
    def tasks(self) -> list[ShardTask]:
        return [task for task in (self.pairs, self.parts, self.classes) if task is not None]


def _read(*tasks: ShardTask | None) -> list[Columns]:
    return [read_shard(task.target) for task in tasks if task is not None]


def _run(stage: str, tasks: Sequence[ShardTask], session: Session) -> None:
    if todo := [task for task in tasks if not files.exists(task.target)]:
        session.run(stage, todo)


def _seen(again: _Again, tried: ShardTask | None) -> ProbeSeen:
    pairs, parts = (next(iter(_read(task)), None) for task in (again.pairs, again.parts))
    counts = list(probe_counts(again.first, pairs, parts, (*again.wide, *_read(again.classes))))
    for columns in _read(tried):
        counts += transfer_counts(again.probe.survival, columns, again.probe.labels)
    return ProbeSeen(len(again.probe.rows), tuple(counts))


# --- what is probed -----------------------------------------------------------------------------------------------


def attacked(item: ModelPlan) -> list[tuple[Table, Measure]]:
    """The tables of a model's attacks, with the measure of each."""
    measured = ((table, table.measure) for table in item.tables if table.measure is not None)
    return [(table, measure) for table, measure in measured if measure.series()[0].attack]


def probe_of(item: ModelPlan, table: Table, measure: Measure, context: Context) -> Probe | None:
    """The probe of an attack's table; None where there is nothing to look at.

    An attack that broke all samples of its probe is probed only where it cost enough to pay for more than gradients:
    then for the adversarials, which are tried on other models.
    """
    columns = _whole_columns(table, context)
    usable = columns["correct"] > 0
    if context.once is not None:
        usable &= np.isin(np.arange(context.count), context.once)
    ranked = ranked_rows(columns["label"], columns["id"], usable, context.seed)
    rows = np.sort(ranked[:SAMPLES])
    if not len(rows):
        return None
    survival = survival_of(measure.series(), columns, rows)
    threat = measure.series()[0].threat
    linf = threat is not None and threat.norm == "Linf"
    guard = Guard("Linf" if linf else "L2", radius_of(survival, rows), measure.ascents)
    weight = context.taken[table.key].weight if table.key in context.taken else 1.0
    cost = weight * measure.pass_cost * float(columns["queries"].sum())
    standing = float(survival.stands(guard.epsilon)[rows].mean())
    units, classes = SHARE * cost, len(np.unique(columns["label"][ranked]))
    wide = looks_a_class(units, classes, len(rows)) * classes if guard.losses else 0
    units -= GRADIENT_COST * max(0, min(wide, len(ranked)) - len(rows))
    plan = plan_probe(guard, units / len(rows), standing)
    if item.spec.stochastic:
        plan = replace(plan, parts=0)  # the network's own noise hides what a step in a part does
    if not standing and replace(plan, parts=0) == ProbePlan():
        return None
    afford = affordable(cost, len(rows))
    return Probe(item, table, rows, guard, plan, survival, context, afford, ranked, wide, columns["label"])


def _whole_columns(table: Table, context: Context) -> Columns:
    """(N,) columns of a table; of one that is not complete with 0 where nothing was measured: not correct, no cost.

    The id is -1 there, which no sample has.
    """
    part = context.taken.get(table.key)
    if part is None:
        return read_table(table.folder, context.count)
    columns = read_rows(table.folder, context.count, part.rows)
    whole = {name: np.zeros((context.count, *column.shape[1:]), column.dtype) for name, column in columns.items()}
    for name, column in columns.items():
        whole[name][part.rows] = column
    whole["id"] = np.full(context.count, -1, dtype=np.int64)
    whole["id"][part.rows] = columns["id"]
    return whole


def affordable(cost: float, rows: int) -> int:
    """How many donors' adversarials, a forward pass each, an attack of that cost pays for."""
    return max(1, min(DONORS, int(TRANSFER_SHARE * cost / rows)))


def probe_rows(
    labels: NDArray[np.int64], ids: NDArray[np.int64], correct: NDArray[np.bool_], seed: int
) -> NDArray[np.int64]:
    """Rows of `SAMPLES` correctly classified samples, or of all where there are fewer, evenly over the classes."""
    chosen: NDArray[np.int64] = np.sort(ranked_rows(labels, ids, correct, seed)[:SAMPLES])
    return chosen


def ranked_rows(
    labels: NDArray[np.int64], ids: NDArray[np.int64], correct: NDArray[np.bool_], seed: int
) -> NDArray[np.int64]:
    """Rows of the correctly classified samples, the first of each class before all second ones.

    Every class has an order of its own, fixed by seed and ids.
    """
    rows = np.flatnonzero(correct)
    rows = rows[np.argsort(_places(seed, ids.astype(np.int64).tobytes())[rows], kind="stable")]
    rank = np.zeros(len(rows), dtype=np.int64)
    for label in np.unique(labels[rows]):
        mine = labels[rows] == label
        rank[mine] = np.arange(mine.sum())
    ranked: NDArray[np.int64] = rows[np.argsort(rank, kind="stable")]
    return ranked


@lru_cache(maxsize=2)
def _places(seed: int, ids: bytes) -> NDArray[np.int64]:
    """A random number a sample: the same for every attack and model of an audit."""
    return np.array([int(digest_of(seed, each)[:12], 16) for each in np.frombuffer(ids, np.int64).tolist()], np.int64)


def survival_of(series: Sequence[Series], columns: Columns, rows: NDArray[np.int64]) -> Survival:
    """What an attack left, by radius. A search for the nearest looked at every radius up to its limit.

    Its probe has the ball in which the nearest adversarials of half of the probe's samples lie.
    """
    correct, first = columns["correct"] > 0, series[0]
    if not first.binary:
        distances = columns[first.key].astype(np.float64)
        middle = float(np.quantile(distances[rows], 0.5, method="lower")) * (1 - 1e-6)
        return Survival(
            columns["id"], correct, np.where(columns["censored"] > 0, np.inf, distances), (middle,), first.bound
        )
    radii = tuple(each.threat.epsilon for each in series if each.threat is not None)
    fell = np.full(len(correct), np.inf)
    for each, radius in zip(reversed(series), reversed(radii), strict=True):
        fell = np.where(columns[each.key] > 0, fell, radius)
    return Survival(columns["id"], correct, fell, radii, radii[-1])


def radius_of(survival: Survival, rows: NDArray[np.int64]) -> float:
    """The largest radius at which `ENOUGH` of the rows stand; the smallest where there is none."""
    enough = [radius for radius in survival.radii if survival.stands(radius)[rows].sum() >= ENOUGH]
    return enough[-1] if enough else survival.radii[0]


# --- transfer -----------------------------------------------------------------------------------------------------


def donors_of(probe: Probe, probes: Sequence[Probe]) -> list[Probe]:
    """The next models' probes of the same attack, as many as it affords, in balls in which it looked at this model."""
    same = [each for each in probes if each.table.measure == probe.table.measure]
    place = next(index for index, each in enumerate(same) if each is probe)
    others = [*same[place + 1 :], *same[:place]]
    reach = probe.survival.reach
    usable = [each for each in others if each.guard.epsilon <= reach and each.item.digest != probe.item.digest]
    return usable[: probe.donors]


def transfer_counts(survival: Survival, columns: Columns, labels: NDArray[np.int64] | None = None) -> list[SignCount]:
    """Whether any adversarial of another model breaks what the attack left; none where no sample is in question.

    With `labels` (N,) of the samples by class as well.

    Samples that were not measured on this model, as happens in an audit that decides early, say nothing of it.
    """
    known = np.isin(columns["id"], survival.ids)
    columns = {name: column[known] for name, column in columns.items()}
    ids, inverse = np.unique(columns["id"], return_inverse=True)
    radius, broken = np.zeros(len(ids)), np.zeros(len(ids), dtype=bool)
    np.maximum.at(radius, inverse, columns["radius"])
    np.logical_or.at(broken, inverse, columns["broken"] > 0)
    order = np.argsort(survival.ids, kind="stable")
    rows = order[np.searchsorted(survival.ids, ids, sorter=order)]
    stands = survival.fell[rows] > radius
    pairs = (survival.correct[rows], stands, ~broken)
    counts = [paired_count(Sign.TRANSFER, *pairs)]
    counts += [] if labels is None else by_class(Sign.TRANSFER, labels[rows], *pairs)
    return [replace(count, probe=True) for count in counts if count.counted]
