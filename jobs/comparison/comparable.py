"""Whether a model's scores in two audits can be compared, and which rows belong together: one answer for all.

Gates `not_worse_than`, `classwise compare`, the record in the bundle, the dashboard and notifications ask here, so that
no gate passes on numbers that the comparison refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from jobs.comparison.drift import DECLARED
from services.errors import MeasureError, Problem
from services.records import AuditResult, ModelSpec, Series
from tracking.bundle.scores import Scores

OTHER_SAMPLES = "the samples have changed"
"""The one reason that leaves something to compare: means of independent samples."""


@dataclass(frozen=True)
class Measured:
    """What decides whether one model's scores in an audit can be compared with those of another audit.

    Attributes:
        audit: its id, or how to speak of it.
        content, classes: of the data that the samples were drawn from.
        selection: digest of the samples drawn.
        spec, weights: the model as declared, and the digest of its weights and code.
        series: what was measured, by key.
        parts: keys of the series that were measured until a gate was decided: fixed-n tests do not hold for them.
    """

    audit: str
    content: str
    classes: tuple[str, ...]
    selection: str
    spec: ModelSpec
    weights: str
    series: Mapping[str, Series]
    parts: frozenset[str] = frozenset()


def measured(result: AuditResult, index: int) -> Measured:
    """The model at `index` of a finished audit."""
    model, samples = result.models[index], result.samples
    series = {part.series.key: part.series for part in model.series if part.grouping == "class"}
    return Measured(
        audit=result.audit_id,
        content=samples.content,
        classes=samples.classes,
        selection=samples.digest,
        spec=model.spec,
        weights=model.digest,
        series=series,
        parts=frozenset(part.series.key for part in model.series if part.measured not in (None, samples.count)),
    )


def incomparable(accepted: Measured, now: Measured, key: str) -> str:
    """Why a series of the one says nothing about that of the other; "" when it does.

    Ids may be row numbers, and a file may have been replaced: only the content says that samples are the same.
    """
    old, new = accepted.series.get(key), now.series.get(key)
    if old is None or new is None:
        return f"not measured by audit {(accepted if old is None else now).audit}"
    if early := [each.audit for each in (accepted, now) if key in each.parts]:
        return f"decided early on part of the samples by audit {' and '.join(early)}"
    if old.version != new.version:
        return "another version of the measure"
    if reason := _measured_otherwise(old, new):
        return reason
    if accepted.content != now.content or not now.content:
        return OTHER_SAMPLES
    return "" if accepted.classes == now.classes else "the classes have changed"


def _measured_otherwise(old: Series, new: Series) -> str:
    if replace(old, definition="") != replace(new, definition=""):
        return f"measured otherwise: {old.title}, now {new.title}"
    both = old.definition and new.definition
    return f"measured with other parameters: {old.title}" if both and old.definition != new.definition else ""


def unpaired(accepted: Measured, now: Measured, key: str) -> bool:
    """Whether nothing but the samples is in the way of comparing a series: then its means can be compared unpaired."""
    known = bool(accepted.content and now.content) and accepted.classes == now.classes
    return known and incomparable(accepted, now, key) == OTHER_SAMPLES


def unchanged(accepted: Measured, now: Measured, key: str) -> bool:
    """Whether weights, declarations, samples and measure are known and unchanged: nothing can have got worse."""
    same = accepted.weights == now.weights and accepted.selection == now.selection
    known = bool(now.weights and now.selection and key in now.series and now.series[key].version)
    declared = all(getattr(accepted.spec, name) == getattr(now.spec, name) for name in DECLARED)
    return same and known and declared and not incomparable(accepted, now, key)


def paired_rows(accepted: Scores, now: Scores) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of the accepted audit and of the later one that are of one sample, in one order.

    Raises:
        MeasureError: a sample has another label in the later audit, so it is another sample.
    """
    _, new, old = np.intersect1d(now["id"], accepted["id"], return_indices=True)
    if wrong := int((now["label"][new] != accepted["label"][old]).sum()):
        problem = Problem("samples", "the same label for each id in both audits", f"{wrong} of {new.size} others")
        raise MeasureError(problem)
    return old, new
