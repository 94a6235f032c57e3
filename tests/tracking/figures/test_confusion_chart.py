"""The picture of a confusion matrix."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from services.records import AuditResult, ConfusionResult
from tracking.bundle.reasons.confusions import Cells
from tracking.figures.confusion_chart import confusion_chart

NAMES = ("cat", "dog", "eel")


def cells() -> Cells:
    columns = [[0, 0, 1, 2, 2], [0, 1, 1, 2, -1], [6, 4, 10, 8, 2], [10, 10, 10, 10, 10]]
    labels, predicted, counts, totals = (np.array(column) for column in columns)
    limits = counts / totals
    return Cells("great", "GREAT", NAMES, labels, predicted, counts, totals, limits, limits, None)


def test_cells_are_shares_of_the_class_in_the_order_of_blocks(small_audit: AuditResult) -> None:
    record = ConfusionResult("great", "GREAT", True, "under PGD", (), 6, (2, 0, 1))
    model = replace(small_audit.models[0], confusions=(record,))
    chart = confusion_chart(model, [cells()], NAMES)
    assert chart is not None and chart.rows == chart.columns == ("eel", "cat", "dog")
    assert chart.values == ((0.8, 0.0, 0.0), (0.0, 0.6, 0.4), (0.0, 0.0, 1.0))
    assert "under PGD" in chart.title


def test_nothing_is_drawn_of_many_classes_or_unknown_predictions(small_audit: AuditResult) -> None:
    assert confusion_chart(small_audit.models[0], [cells()], NAMES) is None
    record = ConfusionResult("great", "GREAT", True, "under PGD", (), 6)
    model = replace(small_audit.models[0], confusions=(record,))
    assert confusion_chart(model, [], NAMES) is None
    assert confusion_chart(model, [cells()], [str(k) for k in range(31)]) is None
