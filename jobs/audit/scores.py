"""Per-sample scores of one model: joined from its tables, kept in the bundle, read back by a later audit."""

from __future__ import annotations

import numpy as np

from jobs.audit.plan import Context, ModelPlan
from services.errors import Problem, StorageError
from services.loading.protocols import Samples
from services.storage.shards import read_table
from tracking.bundle.scores import Scores, beside


def read_scores(item: ModelPlan, samples: Samples, context: Context) -> Scores:
    """Join the columns of all tables of a model, one row a sample.

    A series keeps its key as the column name; a measure's extras are prefixed with the measure's first series key. The
    column `key` names each image in its source, where images have names.

    Raises:
        StorageError: a table is incomplete or belongs to other samples.
    """
    scores: Scores = {"id": samples.ids, "label": samples.labels}
    if samples.keys is not None:
        scores["key"] = samples.keys
    for table in item.tables:
        if table.measure is None:
            continue
        keys = [series.key for series in table.measure.series()]
        for name, values in read_table(table.folder, context.count).items():
            if name == "id" and not np.array_equal(values, samples.ids):
                raise StorageError(Problem(table.folder, "the ids of these samples", "others", "delete the folder"))
            if name not in ("id", "label"):
                scores[name if name in keys else beside(keys[0], name)] = values
    return scores
