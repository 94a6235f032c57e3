"""Per-sample scores of one model: joined from its tables, kept in the bundle, read back by a later audit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobs.audit.plan import Context, ModelPlan, Table, Taken
from services.errors import Problem, StorageError
from services.loading.protocols import Samples
from services.storage.picks import read_rows
from services.storage.shards import read_table
from tracking.bundle.scores import CLUSTER, Scores, beside


def read_scores(item: ModelPlan, samples: Samples, context: Context) -> Scores:
    """Join the columns of all tables of a model, one row a sample.

    A series keeps its key as the column name; a measure's extras are prefixed with the measure's first series key. The
    column `key` names each image in its source, where images have names. What an audit that decides early did not
    measure is NaN.

    Raises:
        StorageError: a table is incomplete or belongs to other samples.
    """
    scores: Scores = {"id": samples.ids, "label": samples.labels}
    if samples.keys is not None:
        scores["key"] = samples.keys
    if samples.clusters is not None:
        scores[CLUSTER] = samples.clusters
    for table in item.tables:
        if table.measure is None:
            continue
        keys = [series.key for series in table.measure.series()]
        for name, values in columns_of(table, context).items():
            if name == "id" and not np.array_equal(values, samples.ids[_rows(table, context)]):
                raise StorageError(Problem(table.folder, "the ids of these samples", "others", "delete the folder"))
            if name not in ("id", "label"):
                whole = values if table.key not in context.taken else _spread(values, context.taken[table.key], context)
                scores[name if name in keys else beside(keys[0], name)] = whole
    return scores


def columns_of(table: Table, context: Context) -> Scores:
    """Columns of a table: all rows, or of one that an early decision rests on the rows that were taken."""
    part = context.taken.get(table.key)
    return (
        read_table(table.folder, context.count) if part is None else read_rows(table.folder, context.count, part.rows)
    )


def _rows(table: Table, context: Context) -> NDArray[np.int64]:
    part = context.taken.get(table.key)
    return np.arange(context.count) if part is None else part.rows


def _spread(values: NDArray[Any], part: Taken, context: Context) -> NDArray[Any]:
    """(N,) the values of the rows taken, NaN elsewhere; unchanged where no row is missing."""
    full = len(part.rows) == context.count
    kind = values.dtype if full or values.dtype.kind == "f" else np.float64
    whole = np.full((context.count, *values.shape[1:]), 0 if full else np.nan, dtype=kind)
    whole[part.rows] = values
    return whole
