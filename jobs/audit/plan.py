"""What has to be done: the tables of an audit by their cache keys, and the shards of them that are missing.

A table holds the per-sample results of one model and one measure. Its key is made of everything the numbers depend on,
so a table found in the cache is the table that would be computed, and an audit of an unchanged fleet has no tasks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from services.measures.measure import Measure
from services.records import SCHEMA_VERSION, ModelSpec, SampleSpec, ShardTask, digest_of
from services.storage import files
from services.storage.picks import finished_picks, pick_name
from services.storage.shards import chain, finished_ranges, missing_ranges, shard_name

PREFLIGHT_VERSION = 3
"""Raised when preflight looks for more, so that models passed before are looked at again."""

PICTURE_VERSION = 1
"""Raised when pictures show something else."""

LOGITS_VERSION = 1
"""Raised when the logits of the same network on the same samples would come out differently."""


@dataclass(frozen=True)
class Taken:
    """The part of a table that an early decision rests on.

    Attributes:
        rows: (n,) of the samples, those of a class in the order in which they were taken.
        weight: how many times as much the whole table costs, where its probe is to have what that would buy; else 1.
    """

    rows: NDArray[np.int64]
    weight: float = 1.0

    @classmethod
    def of(cls, rows: NDArray[np.int64], count: int, *, failed: bool) -> Taken:
        """Of `count` samples; a model that failed needs no surer probe."""
        return cls(rows, 1.0 if failed else count / max(1, len(rows)))


@dataclass(frozen=True)
class Context:
    """What all tasks of an audit share.

    Attributes:
        gallery: how many samples of a model are shown at most.
        slices: weak groups that nobody named are looked for.
        early: the audit decides early, so measures that run the network may be measured in part.
        taken: what was measured of the tables that are not complete, by their key.
        classes: how many there are.
        once: rows of one sample of each cluster, for tests that count independent samples; None where all are.
    """

    samples: SampleSpec
    samples_digest: str
    count: int
    cache: str
    shard: int
    batch: int
    seed: int
    gallery: int = 0
    slices: bool = False
    early: bool = False
    taken: Mapping[str, Taken] = field(default_factory=dict)
    classes: int = 0
    once: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Table:
    """Per-sample results of one model and one measure; `measure` None stands for the logits themselves."""

    model: ModelSpec
    measure: Measure | None
    key: str
    folder: str


@dataclass(frozen=True)
class ModelPlan:
    """A model, its fingerprint, and its tables."""

    spec: ModelSpec
    digest: str
    logits: Table
    tables: tuple[Table, ...] = field(default=())


def is_whole(table: Table, context: Context) -> bool:
    """Whether all samples of a table were measured."""
    part = context.taken.get(table.key)
    return part is None or len(part.rows) == context.count


def plan_model(spec: ModelSpec, digest: str, measures: tuple[Measure, ...], context: Context) -> ModelPlan:
    """Lay out the tables of one model."""
    logits_key = _logits_key(digest, context.samples_digest)
    logits = Table(spec, None, logits_key, logits_folder(digest, context.samples_digest, context.cache))
    return ModelPlan(spec, digest, logits, tuple(_table(spec, measure, logits, context) for measure in measures))


def _logits_key(digest: str, samples_digest: str) -> str:
    return digest_of("logits", LOGITS_VERSION, SCHEMA_VERSION, digest, samples_digest)


def logits_folder(digest: str, samples_digest: str, cache: str) -> str:
    """Where the cache keeps the logits of a model on samples, by the digests of both."""
    key = _logits_key(digest, samples_digest)
    return files.join(cache, "logits", key[:2], key)


def _table(spec: ModelSpec, measure: Measure, logits: Table, context: Context) -> Table:
    """A measure of logits does not depend on the seed; one that runs the network may, and some on the batches too."""
    seed = context.seed if measure.needs == "model" else None
    sizes = [context.shard, context.batch, *(["early"] if context.early else [])]
    batches = (sizes,) if measure.batch_dependent else ()
    key = digest_of("scores", SCHEMA_VERSION, logits.key, measure.canonical(), seed, *batches)
    return Table(spec, measure, key, _folder(context, "scores", key))


def _folder(context: Context, kind: str, key: str) -> str:
    return files.join(context.cache, kind, key[:2], key)


def preflight_path(spec: ModelSpec, digest: str, context: Context) -> str:
    """Where the facts of a passed preflight are kept."""
    key = digest_of("preflight", PREFLIGHT_VERSION, SCHEMA_VERSION, spec, digest, context.samples_digest)
    return files.join(context.cache, "preflight", key[:2], f"{key}.json")


def preflight_task(plan: ModelPlan, context: Context) -> ShardTask:
    """The one-batch check of a model."""
    return ShardTask("preflight", plan.spec, context.samples, 0, 0, context.seed, context.batch, digest=plan.digest)


def logits_tasks(plan: ModelPlan, context: Context) -> list[ShardTask]:
    """Forward passes that are not in the cache."""
    return [
        ShardTask(
            "logits",
            plan.spec,
            context.samples,
            start,
            stop,
            context.seed,
            context.batch,
            target=files.join(plan.logits.folder, shard_name(start, stop)),
            digest=plan.digest,
        )
        for start, stop in missing_ranges(context.count, context.shard, finished_ranges(plan.logits.folder))
    ]


def measure_tasks(plan: ModelPlan, context: Context) -> list[ShardTask]:
    """Score shards that are not in the cache: functions of the logits, and measures that run the network."""
    tasks: list[ShardTask] = []
    for table in plan.tables:
        if table.measure is not None and table.key not in context.taken:
            derive = table.measure.needs == "logits"
            tasks += (_derive_tasks if derive else _network_tasks)(table, table.measure, plan, context)
    return tasks


def _derive_tasks(table: Table, measure: Measure, plan: ModelPlan, context: Context) -> list[ShardTask]:
    """One task a logits shard; score shards keep the ranges of the logits they come from."""
    finished = finished_ranges(table.folder)
    wanted = chain(context.count, finished_ranges(plan.logits.folder))
    if sum(stop - start for start, stop in chain(context.count, finished)) == context.count:
        return []
    text = measure.canonical()
    return [
        replace(
            _score_task("derive", table, text, pair, context),
            source=files.join(plan.logits.folder, shard_name(*pair)),
        )
        for pair in wanted
        if pair not in finished
    ]


def _network_tasks(table: Table, measure: Measure, plan: ModelPlan, context: Context) -> list[ShardTask]:
    missing = missing_ranges(context.count, context.shard, finished_ranges(table.folder))
    text, kept = measure.canonical(), finished_picks(table.folder) if missing else []
    payload = json.dumps({"kept": kept}) if kept else ""
    return [
        replace(_score_task("measure", table, text, pair, context), digest=plan.digest, payload=payload)
        for pair in missing
    ]


def pick_tasks(table: Table, digest: str, rows: NDArray[np.int64], context: Context) -> list[ShardTask]:
    """Tasks that measure these rows of a table, a batch each: so a round of few samples still fills the workers."""
    if table.measure is None or not len(rows):
        return []
    text = table.measure.canonical()
    parts = [rows[at : at + context.batch].tolist() for at in range(0, len(rows), context.batch)]
    return [
        replace(
            _score_task("measure", table, text, (0, len(part)), context),
            target=files.join(table.folder, pick_name(part)),
            payload=json.dumps({"rows": part}),
            digest=digest,
        )
        for part in parts
    ]


def _score_task(kind: str, table: Table, measure: str, rows: tuple[int, int], context: Context) -> ShardTask:
    return ShardTask(
        "derive" if kind == "derive" else "measure",
        table.model,
        context.samples,
        *rows,
        context.seed,
        context.batch,
        measure=measure,
        target=files.join(table.folder, shard_name(*rows)),
    )


def picture_path(table: Table, context: Context) -> str:
    """Where a measure's picture of a model is kept; its content is that of the table and of what draws it."""
    key = digest_of("picture", PICTURE_VERSION, table.key)
    return files.join(context.cache, "pictures", key[:2], key)


def picture_tasks(plan: ModelPlan, context: Context) -> list[ShardTask]:
    """Pictures that are not in the cache."""
    tables = [table for table in plan.tables if table.measure is not None and table.measure.pictures]
    paths = {table.key: picture_path(table, context) for table in tables}
    return [
        replace(
            _score_task("measure", table, table.measure.canonical(), (0, 0), context),
            kind="picture",
            target=paths[table.key],
            digest=plan.digest,
        )
        for table in tables
        if table.measure is not None and not files.exists(paths[table.key])
    ]


def calibration_tasks(plan: ModelPlan, context: Context, payload: str) -> list[ShardTask]:
    """Per-class sums over temperatures, one task a logits shard."""
    folder = plan.logits.folder
    return [
        ShardTask(
            "calibrate",
            plan.spec,
            context.samples,
            start,
            stop,
            context.seed,
            context.batch,
            source=files.join(folder, shard_name(start, stop)),
            payload=payload,
        )
        for start, stop in chain(context.count, finished_ranges(folder))
    ]
