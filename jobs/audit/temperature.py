"""The temperature of the GREAT score: a map over logits shards on the workers, a search in the driver.

Workers return per-class sums at a few temperatures, some kilobytes a shard; the driver interpolates. A model's merged
sums are kept in the cache, so an unchanged model is not read again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jobs.audit import plan, tables
from jobs.audit.judging.fleet_checks import references
from jobs.audit.session import Session
from jobs.fleetfile.tree import TemperatureConfig
from services.errors import StorageError
from services.loading.protocols import Samples
from services.measures.great import Great
from services.measures.measure import Measure
from services.numerics import calibration
from services.numerics.great import Activation
from services.numerics.temperature import GroupedCurve, TemperatureNodes
from services.records import CalibrationResult, ShardTask, digest_of
from services.storage import files
from services.storage.shards import read_shard, write_shard

GROUPS, MOST_RESAMPLED = 20, 100
"""Groups that a model's samples are drawn again by; classes up to which they are."""


def calibrate(
    config: TemperatureConfig,
    plans: Sequence[plan.ModelPlan],
    measures: Sequence[Measure],
    samples: Samples,
    context: plan.Context,
    session: Session,
) -> CalibrationResult:
    """Choose the temperature by the fleet's policy; falls back to `config.value`, with the reason, when undefined."""
    activation = _activation(measures)
    if activation is None:
        own = [m.temperature for m in measures if isinstance(m, Great)]
        return CalibrationResult("fixed", own[0] if own else None, reason="" if own else "no GREAT score is measured")
    if config.policy == "fixed":
        return CalibrationResult("fixed", config.value)
    grid = calibration.Grid(config.low, config.high, config.step, config.fine_step)
    nodes = grid.nodes(activation, also=config.value)
    curves = _curves(plans, nodes, activation, len(samples.classes), context, session)
    alive = [item for item in plans if item.spec.name in curves]
    grouped = [curves[item.spec.name] for item in alive]
    calibrated = calibration.calibrate(
        config.policy,
        [curve.whole for curve in grouped],
        grid=grid,
        reference=references([item.spec for item in alive]),
        temperature=config.value,
    )
    if calibrated.temperature is not None:
        return replace(calibrated, resampled=calibration.resampled_range(config.policy, grouped, grid=grid))
    note = f"No temperature could be chosen ({calibrated.reason}); scores are at T = {config.value:g}."
    return replace(calibrated, temperature=config.value, notes=(*calibrated.notes, note))


def _activation(measures: Sequence[Measure]) -> Activation | None:
    """Of the first GREAT measure whose temperature the audit chooses."""
    free = (m for m in measures if isinstance(m, Great) and "temperature" not in m.model_fields_set)
    return next((measure.activation for measure in free), None)


def _curves(
    plans: Sequence[plan.ModelPlan],
    nodes: TemperatureNodes,
    activation: Activation,
    n_classes: int,
    context: plan.Context,
    session: Session,
) -> dict[str, GroupedCurve]:
    paths = {item.spec.name: _path(item, nodes, activation, context) for item in plans}
    session.used |= set(paths.values())
    # Sums of groups that are drawn again; with many classes they would fill the driver.
    groups = GROUPS if n_classes <= MOST_RESAMPLED else 1
    kept = {name: _kept(path, nodes, groups) for name, path in paths.items()}
    curves = {name: curve for name, curve in kept.items() if curve is not None}
    shape = {"nodes": [nodes.low, nodes.octaves, nodes.order], "activation": activation, "k": n_classes}
    payload = json.dumps({**shape, "groups": groups})
    missing = [item for item in plans if item.spec.name not in curves]
    parts: dict[str, list[GroupedCurve]] = {}

    def tasks_of(item: plan.ModelPlan) -> list[ShardTask]:
        return plan.calibration_tasks(item, context, payload)

    receipts = tables.on_logits("calibration", tasks_of, missing, context, session, len(missing))
    # In row order, not in the order of completion: sums of floats depend on it in their last bits, and ties on those.
    for receipt in sorted(receipts, key=lambda receipt: receipt.task.start):
        part = GroupedCurve.from_arrays(receipt.arrays, nodes, groups)
        parts.setdefault(receipt.task.model.name, []).append(part)
    for name, shards in parts.items():
        if session.alive(name):
            curves[name] = GroupedCurve.merge(shards)
            _write(paths[name], curves[name])
    return curves


def _path(item: plan.ModelPlan, nodes: TemperatureNodes, activation: str, context: plan.Context) -> str:
    key = digest_of("grouped curve", item.logits.key, [nodes.low, nodes.octaves, nodes.order], activation)
    return files.join(context.cache, "curves", key[:2], f"{key}.parquet")


def _write(path: str, curve: GroupedCurve) -> None:
    arrays = curve.arrays()
    write_shard(path, {**arrays, "sums": np.ascontiguousarray(arrays["sums"].T)})


def _kept(path: str, nodes: TemperatureNodes, groups: int) -> GroupedCurve | None:
    """Of an earlier audit; damaged sums count as none, for they are soon made again."""
    if not files.exists(path):
        return None
    try:
        columns = read_shard(path)
    except StorageError:
        return None
    return GroupedCurve.from_arrays({**columns, "sums": columns["sums"].T}, nodes, groups)
