"""The confusion matrix of one model as a picture."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from services.records import ModelResult
from tracking.bundle.reasons.confusions import Cells
from tracking.bundle.reasons.why import headline_confusion
from tracking.figures.charts import Heatmap
from tracking.names import shorten

MOST_CLASSES = 30
"""Of a picture; of more classes the pairs are a table."""


def confusion_chart(model: ModelResult, matrices: Sequence[Cells], classes: Sequence[str]) -> Heatmap | None:
    """What the classes are taken for under the series that the verdict is about; None where that is not known."""
    record = headline_confusion(model)
    cells = next((part for part in matrices if record is not None and part.series == record.series), None)
    if record is None or cells is None or not 1 < len(classes) <= MOST_CLASSES:
        return None
    shares = np.zeros((len(classes), len(classes)))
    inside = cells.predicted >= 0
    shares[cells.labels[inside], cells.predicted[inside]] = (cells.counts / cells.totals)[inside]
    order = np.array(record.order or range(len(classes)))
    names = tuple(classes[k] for k in order)
    values = tuple(map(tuple, shares[np.ix_(order, order)].tolist()))
    note = "A row is a class, a column what its samples are taken for; lighter is more."
    title = f"{shorten(model.spec.name, 40)}: confusions {record.under}"
    return Heatmap(title, note, names, names, values, "share of the class", "class", "taken for")
