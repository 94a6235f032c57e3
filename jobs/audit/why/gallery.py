"""The gallery: a few samples of each model with the adversarial that an attack ended at.

Of the classes that an attack leaves weakest, those samples are shown that fall first and those in the middle. Workers
attack them once more, which gives the same adversarials, for all that an attack does to a sample is a function of the
network, the sample, its id and the seed (AutoAttack's package aside: what it does not break again is left out). The
file lies in the folder of the attack's table, and is kept and pruned with it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobs.audit.plan import Context, ModelPlan, Table
from services.errors import StorageError
from services.loading.protocols import Samples
from services.measures.measure import Columns, Measure
from services.records import Series, ShardTask, digest_of
from services.storage import files
from services.storage.shards import read_shard, read_table
from tracking.bundle.reasons.gallery import PICTURES, write_gallery

GALLERY_VERSION = 2
"""Raised when a gallery would show something else of the same table."""
MOST_BYTES = 8_000_000
"""Of the pictures of one model; what comes after in the order of choice is left out."""
BATCH = 32
"""Samples attacked together: always as many, so that the last bits of margins do not depend on the audit's batch."""


def gallery_tasks(item: ModelPlan, context: Context) -> list[ShardTask]:
    """The gallery of a model, where it is not in the cache."""
    shown = shown_attack(item, context)
    task = None if shown is None or files.exists(_path(shown[0], context)) else gallery_task(item, context)
    return [] if task is None else [task]


def gallery_task(item: ModelPlan, context: Context) -> ShardTask | None:
    """Shows the chosen samples; None where nothing is to be shown, and where the table was deleted meanwhile."""
    shown = shown_attack(item, context)
    if shown is None:
        return None
    table, measure = shown
    try:
        columns = read_table(table.folder, context.count)
    except StorageError:
        return None
    rows, ranks = chosen(columns, measure.series(), context.gallery)
    if not len(rows):
        return None
    known = {name: values[rows].tolist() for name, values in columns.items() if values.ndim == 1}
    kept = {"row": rows.tolist(), "rank": ranks[:, 0].tolist(), "of": ranks[:, 1].tolist()}
    payload = json.dumps({"rows": rows.tolist(), "kept": kept, "known": known})
    return ShardTask(
        "gallery",
        item.spec,
        context.samples,
        0,
        len(rows),
        context.seed,
        BATCH,
        measure=measure.canonical(),
        target=_path(table, context),
        payload=payload,
        digest=item.digest,
    )


def _path(table: Table, context: Context) -> str:
    """Where the gallery lies beside its table, of which it is a function."""
    name = digest_of("gallery", GALLERY_VERSION, context.seed, context.gallery)[:16]
    return files.join(table.folder, f"gallery-{name}.parquet")


def shown_attack(item: ModelPlan, context: Context) -> tuple[Table, Measure] | None:
    """The attack whose adversarials are shown: the nearest ones if they were looked for, else of the first attack.

    Of an attack that was measured until a gate was decided, none are. None where nothing is to be shown.
    """
    if not context.gallery:
        return None
    tables = (table for table in item.tables if table.key not in context.taken)
    able = [(table, table.measure) for table in tables if table.measure is not None and table.measure.shows]
    able.sort(key=lambda pair: (pair[1].series()[0].binary, pair[1].batch_dependent))
    return able[0] if able else None


def chosen(columns: Columns, series: Sequence[Series], most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows (n,) of at most `most` broken samples, and their ranks (n, 2): place among those of the class, of how many.

    The classes with the smallest mean score come first, each with the samples that fall first and as many from the
    middle of those that fall; at least two a class, so of many classes only the weakest are shown.
    """
    labels, (broken, order) = columns["label"], fallen(columns, series)
    scores = np.mean([columns[each.key] for each in series], axis=0)
    classes = np.unique(labels)
    means = [float(scores[labels == k].mean()) for k in classes]
    each = max(2, most // len(classes))
    picked: list[NDArray[Any]] = []
    for k in classes[np.argsort(means, kind="stable")][: max(1, most // each)]:
        rows = np.flatnonzero(broken & (labels == k))
        rows = rows[np.lexsort((columns["id"][rows], *(key[rows] for key in order)))]
        places = np.arange(len(rows))
        if len(rows) > each:
            first = each // 2
            middle = max(first, min(len(rows) // 2 - (each - first) // 2, len(rows) - (each - first)))
            places = np.concatenate([places[:first], places[middle : middle + each - first]])
        picked += [np.array([rows[place], place + 1, len(rows)]) for place in places[: most - len(picked)]]
    table = np.array(picked, dtype=np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1:]


def fallen(columns: Columns, series: Sequence[Series]) -> tuple[NDArray[np.bool_], tuple[NDArray[Any], ...]]:
    """Which correctly classified samples an attack broke (N,), and what they are put in order by, the last key first.

    That is the distance, or the smallest radius that broke them and then the queries it took.
    """
    correct = columns["correct"] > 0
    if not series[0].binary:
        return correct & (columns["censored"] == 0), (columns[series[0].key],)
    survived = np.sum([columns[each.key] > 0 for each in series], axis=0)
    return correct & (survived < len(series)), (columns["queries"], survived)


def keep_gallery(item: ModelPlan, index: int, samples: Samples, context: Context, folder: str) -> None:
    """Copy a model's gallery from the cache into the bundle, with names, within `MOST_BYTES`.

    Raises:
        StorageError: it was deleted meanwhile.
    """
    shown = shown_attack(item, context)
    if shown is None:
        return
    path = _path(shown[0], context)
    if not files.exists(path) and gallery_task(item, context) is None:
        return
    columns = read_shard(path)
    sizes = np.sum([[len(picture) for picture in columns[name]] for name in PICTURES], axis=0)
    kept = (columns["after"] != columns["label"]) & (np.cumsum(sizes) <= MOST_BYTES)
    rows = np.flatnonzero(kept)
    if len(rows):
        named = {"key": samples.keys[columns["row"][rows]]} if samples.keys is not None else {}
        classes = np.array([*samples.classes, ""], dtype=object)
        names = {f"{name}_name": classes[columns[name][rows]] for name in ("label", "before", "after")}
        title = np.array([shown[1].series()[0].title] * len(rows), dtype=object)
        shown_columns = {name: column[rows] for name, column in columns.items() if name != "row"}
        write_gallery(folder, index, item.spec, {**shown_columns, "attack": title, **named, **names})
