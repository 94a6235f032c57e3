"""An earlier audit to compare with: found by name, paired by sample id."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jobs.config import FleetConfig, GateConfig
from jobs.scores import Scores, read_kept_scores
from services.errors import StorageError
from services.numerics.paired import paired
from services.records import AuditResult, Estimate, Series
from tracking.bundle import folder_of, list_bundles, read_bundle

LAST = "last"


@dataclass(frozen=True)
class Baseline:
    """An earlier audit and its folder."""

    result: AuditResult
    folder: str


def find_baselines(config: FleetConfig) -> dict[str, Baseline | None]:
    """The audits that the fleet's gates compare with, by the name the gate gives; None when there is none."""
    wanted = {gate.not_worse_than for gate in config.gates if gate.not_worse_than is not None}
    return {name: _find(config, name) for name in sorted(wanted)}


def _find(config: FleetConfig, name: str) -> Baseline | None:
    if name == LAST:
        folders = list_bundles(config.storage, config.fleet)
        folder = folders[-1] if folders else None
    else:
        folder = folder_of(config.storage, config.fleet, name)
    if folder is None:
        return None
    try:
        return Baseline(read_bundle(folder), folder)
    except StorageError:
        if name == LAST:
            raise
        return None


def non_inferiority(
    gate: GateConfig,
    series: Series,
    model: str,
    scores: Scores,
    content: str,
    baseline: Baseline | None,
    config: FleetConfig,
) -> Estimate:
    """Mean difference now minus then of the samples in both audits, with its limits; undefined with a reason.

    Samples are paired by id, which means something only while the source's `content` is the same.
    """
    if baseline is None:
        return Estimate(None, reason=f"there is no audit {gate.not_worse_than!r} to compare with")
    then = baseline.result
    index = next((i for i, result in enumerate(then.models) if result.spec.name == model), None)
    if index is None or not then.models[index].series:
        return Estimate(None, reason=f"audit {then.audit_id} has no scores of {model}")
    if then.samples.uri != config.samples.uri:
        return Estimate(None, reason=f"audit {then.audit_id} used other samples ({then.samples.uri})")
    if then.samples.content != content:
        return Estimate(None, reason=f"the samples have changed since audit {then.audit_id}")
    kept = read_kept_scores(baseline.folder, index, then.models[index].spec)
    if series.key not in kept:
        return Estimate(None, reason=f"audit {then.audit_id} has no series {series.key}")
    _, now_rows, then_rows = np.intersect1d(scores["id"], kept["id"], return_indices=True)
    if not now_rows.size:
        return Estimate(None, reason=f"no samples in common with audit {then.audit_id}")
    found = paired(
        kept[series.key][then_rows],
        scores[series.key][now_rows],
        np.zeros(now_rows.size, dtype=np.int64),
        1,
        bound=series.bound,
        alpha=config.intervals.delta,
        margin=min(gate.margin, series.bound * (1 - 1e-12)),
        seed=config.seed,
    )
    return found.overall
