"""An earlier audit to compare with: found by name, paired by sample id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from jobs.comparison.accepted import read_accepted
from jobs.comparison.compare import Kept
from jobs.fleetfile.tree import FleetConfig, GateConfig
from services.errors import StorageError
from services.numerics.change import worst_change
from services.numerics.paired import paired
from services.records import AuditResult, Estimate, Series, SeriesResult
from tracking.bundle.bundle import fleet_folder, folder_of, list_bundles, read_bundle
from tracking.bundle.scores import Scores, read_kept_scores

LAST, ACCEPTED = "last", "accepted"


def find_baselines(config: FleetConfig) -> dict[str, Kept | None]:
    """The audits that the fleet's gates compare with, by the name the gate gives; None when there is none."""
    wanted = {gate.not_worse_than for gate in config.gates if gate.not_worse_than is not None}
    return {name: _find(config, name) for name in sorted(wanted)}


def accepted_baseline(config: FleetConfig) -> Kept | None:
    """The fleet's accepted audit; None when none was accepted.

    Raises:
        StorageError: it cannot be read.
    """
    return _find(config, ACCEPTED)


def _find(config: FleetConfig, name: str) -> Kept | None:
    folder = _folder(config, name)
    if folder is None:
        return None
    try:
        return Kept(read_bundle(folder), folder)
    except StorageError:
        if name in (LAST, ACCEPTED):
            raise
        return None


def _folder(config: FleetConfig, name: str) -> str | None:
    """Where the audit lies that a name stands for; None when it stands for none."""
    if name == LAST:
        folders = list_bundles(config.storage, config.fleet)
        return folders[-1] if folders else None
    if name == ACCEPTED:
        accepted = read_accepted(fleet_folder(config.storage, config.fleet))
        return folder_of(config.storage, config.fleet, accepted.audit_id) if accepted else None
    return folder_of(config.storage, config.fleet, name)


def non_inferiority(
    gate: GateConfig,
    series: Series,
    model: str,
    scores: Scores,
    content: str,
    baseline: Kept | None,
    config: FleetConfig,
) -> Estimate:
    """Mean difference now minus then of the samples in both audits, with its limits; undefined with a reason.

    For the metric `classes` that of the class that lost most.

    All samples in both count, those of a conditional series with 0 when misclassified: else a model could hold its
    score by losing the hard ones. A series that was measured otherwise (another temperature) is not compared, nor are
    samples that are not the same: ids may be row numbers, and a file may have been replaced.
    """
    if baseline is None:
        return Estimate(None, reason=f"there is no audit {gate.not_worse_than!r} to compare with")
    then = baseline.result
    index = next((i for i, result in enumerate(then.models) if result.spec.name == model), None)
    earlier = then.models[index].series if index is not None else ()
    if then.samples.content != content:
        return Estimate(None, reason=f"the samples have changed since audit {then.audit_id}")
    reason = _not_comparable(then, earlier, series, model, config)
    if reason or index is None:
        return Estimate(None, reason=f"audit {then.audit_id} {reason}")
    kept = read_kept_scores(baseline.folder, index, then.models[index].spec)
    _, now_rows, then_rows = np.intersect1d(scores["id"], kept["id"], return_indices=True)
    if not now_rows.size:
        return Estimate(None, reason=f"no samples in common with audit {then.audit_id}")
    if not np.array_equal(scores["label"][now_rows], kept["label"][then_rows]):
        return Estimate(None, reason=f"samples of audit {then.audit_id} have the same ids and other labels")
    before, after = kept[series.key][then_rows], scores[series.key][now_rows]
    how: _Options = {"bound": series.bound, "alpha": config.intervals.delta, "seed": config.seed}
    if gate.metric == "classes":
        return worst_change(before, after, scores["label"][now_rows], len(then.samples.classes), **how)
    margin = min(gate.margin, series.bound * (1 - 1e-12))
    return paired(before, after, np.zeros(now_rows.size, dtype=np.int64), 1, margin=margin, **how).overall


class _Options(TypedDict):
    """What both comparisons have in common."""

    bound: float
    alpha: float
    seed: int


def _not_comparable(
    then: AuditResult, earlier: Sequence[SeriesResult], series: Series, model: str, config: FleetConfig
) -> str:
    """Why a model's series of then says nothing about now; "" when it does."""
    if not earlier:
        return f"has no scores of {model}"
    if then.samples.uri != config.samples.uri:
        return f"used other samples ({then.samples.uri})"
    before = next((result.series for result in earlier if result.series.key == series.key), None)
    if before is None:
        return f"has no series {series.key}"
    return "" if before == series else f"measured another {series.key}: {before.title}"
