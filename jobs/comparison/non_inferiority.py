"""An earlier audit to compare with: found by name, paired by sample id."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from jobs.comparison.accepted import read_accepted
from jobs.comparison.comparable import Measured, incomparable, measured, paired_rows, unchanged
from jobs.comparison.compare import Kept
from jobs.fleetfile.gates import GateConfig, gate_text
from jobs.fleetfile.reading import Fleet
from jobs.fleetfile.tree import FleetConfig
from services.errors import MeasureError, StorageError
from services.numerics.change import worst_change
from services.numerics.paired import mean_difference
from services.records import Estimate, SampleFacts
from tracking.bundle.bundle import fleet_folder, folder_of, list_bundles, read_bundle
from tracking.bundle.scores import CLUSTER, Scores, read_kept_scores

LAST, ACCEPTED, FIRST = "last", "accepted", "first"
"""`first` is the first audit that was accepted: against the last alone, small losses add up."""


def earlier_audits(config: FleetConfig) -> dict[str, Kept | None]:
    """The audits that the fleet's gates compare with, by the name the gate gives; None when there is none."""
    wanted = {gate.not_worse_than for gate in config.gates if gate.not_worse_than is not None}
    return {name: _find(config, name) for name in sorted(wanted)}


def accepted_audit(config: FleetConfig) -> Kept | None:
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
        if name in (LAST, ACCEPTED, FIRST):
            raise
        return None


def _folder(config: FleetConfig, name: str) -> str | None:
    """Where the audit lies that a name stands for; None when it stands for none."""
    if name == LAST:
        folders = list_bundles(config.storage, config.fleet)
        return folders[-1] if folders else None
    if name in (ACCEPTED, FIRST):
        accepted = read_accepted(fleet_folder(config.storage, config.fleet))
        if accepted is None:
            return None
        chosen = accepted.history[0] if name == FIRST else accepted.history[-1]
        return folder_of(config.storage, config.fleet, chosen.audit_id)
    return folder_of(config.storage, config.fleet, name)


@dataclass(frozen=True)
class Change:
    """A model's series against the accepted audit, for a gate `not_worse_than`.

    Attributes:
        difference: mean now minus the accepted mean with its limits, of the samples in both; undefined with a reason.
        vanished: classes with samples in an audit and none in both.
        unchanged: why nothing can have got worse; "" where something may have.
    """

    difference: Estimate
    vanished: tuple[str, ...] = ()
    unchanged: str = ""


def change_since(gate: GateConfig, now: Measured, scores: Scores, earlier: Kept | None, config: FleetConfig) -> Change:
    """What a gate `not_worse_than` is judged on; for the metric `classes` the class that lost most.

    All samples in both count, those of a conditional series with 0 when misclassified: else a model could hold its
    score by losing the hard ones. What `jobs.comparison.comparable` refuses is undefined here, too.
    """
    if earlier is None:
        return _undefined(f"there is no audit {gate.not_worse_than!r} to compare with")
    result = earlier.result
    index = next((i for i, model in enumerate(result.models) if model.spec.name == now.spec.name), None)
    if index is None or not result.models[index].series:
        return _undefined(f"audit {result.audit_id} has no scores of {now.spec.name}")
    accepted = measured(result, index)
    if reason := incomparable(accepted, now, gate.measure):
        return _undefined(f"not comparable with audit {result.audit_id}: {reason}")
    kept = read_kept_scores(earlier.folder, index, result.models[index].spec, ["id", "label", gate.measure])
    try:
        rows = paired_rows(kept, scores)
    except MeasureError as error:
        return _undefined(f"not comparable with audit {result.audit_id}: {error}")
    if not rows[0].size:
        return _undefined(f"no samples in common with audit {result.audit_id}")
    difference = _difference(gate, kept[gate.measure][rows[0]], scores, rows[1], now, config)
    gone = _without_pairs(kept["label"], scores["label"], scores["label"][rows[1]])
    same = f"the same weights, samples and measure as in audit {result.audit_id}"
    return Change(
        difference, tuple(now.classes[k] for k in gone), same if unchanged(accepted, now, gate.measure) else ""
    )


def _undefined(reason: str) -> Change:
    return Change(Estimate(None, reason=reason))


def _difference(
    gate: GateConfig, before: NDArray[Any], scores: Scores, rows: NDArray[np.int64], now: Measured, config: FleetConfig
) -> Estimate:
    series, after, labels = now.series[gate.measure], scores[gate.measure][rows], scores["label"][rows]
    clusters = scores[CLUSTER][rows] if CLUSTER in scores else None
    how: _Options = {
        "bound": series.bound,
        "alpha": config.intervals.delta,
        "clusters": clusters,
        "seed": config.seed,
    }
    if gate.metric == "classes":
        return worst_change(before, after, labels, len(now.classes), **how)
    return mean_difference(before, after, **how)


def _without_pairs(accepted: NDArray[np.int64], now: NDArray[np.int64], both: NDArray[np.int64]) -> list[int]:
    """Labels of either audit that no common sample has."""
    return sorted({*accepted.tolist(), *now.tolist()} - {*both.tolist()})


def smallest_margins(fleet: Fleet, facts: SampleFacts) -> Iterator[str]:
    """For each gate `not_worse_than` the margin that so many samples can decide, as a sentence.

    It is the margin that a model whose scores are all the same as before just passes: one that differs needs more.
    """
    config, series = fleet.config, fleet.series()
    for gate in config.gates:
        if gate.not_worse_than is None or not facts.count:
            continue
        of_class, in_all = facts.intake.clusters_of or facts.counts, facts.intake.clusters or facts.count
        counts = of_class if gate.metric == "classes" else (in_all,)
        fewest = min(count for count in counts if count)
        same, bound = np.zeros(fewest), series[gate.measure].bound
        overall = mean_difference(same, same, bound=bound, alpha=config.intervals.delta)
        needed = -(overall.low or 0.0)
        short = "; below that only an unchanged model passes" if gate.margin < needed else ""
        unit = "clusters" if facts.intake.clusters else "samples"
        what = f"{fewest} {unit}" + (" of the smallest class" if gate.metric == "classes" else "")
        yield f"{gate_text(gate)}: {what} can decide margins from {needed:.2g}{short}"


class _Options(TypedDict):
    """What both comparisons have in common."""

    bound: float
    alpha: float
    clusters: NDArray[np.int64] | None
    seed: int
