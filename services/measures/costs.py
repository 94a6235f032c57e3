"""What a measure costs before it was run, in forward passes a sample: by which the cheap ones come first."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from services.measures.measure import Measure

BACKWARD = 3.0
"""Forward passes that one and the backward pass through it are worth."""
PACKAGED = {"apgd-ce": 100 * BACKWARD, "apgd-t": 900 * BACKWARD, "fab-t": 900 * BACKWARD, "square": 5000.0}
"""AutoAttack's own numbers of steps, for a sample that stands to the end."""


def most_passes(measure: Measure) -> float:
    """Forward passes for a sample that no attack breaks: the most; 1 for a measure of logits.

    A sample that breaks earlier costs less, so what an audit takes lies below it.
    """
    if measure.needs == "logits":
        return 1.0
    fields: dict[str, Any] = measure.model_dump()
    return float(_COSTS.get(measure.name, _unknown)(fields))


def _ascent(fields: dict[str, Any]) -> float:
    losses = fields.get("losses", ("ce",))
    runs = sum(fields.get("targets", 1) if loss.endswith("-t") else 1 for loss in losses)
    return float(BACKWARD * fields["steps"] * fields["restarts"] * runs)


def _minimal(fields: dict[str, Any]) -> float:
    steps = {
        "deepfool": fields["deepfool_steps"],
        "fmn": fields["fmn_steps"],
        "cw": fields["cw_searches"] * fields["cw_steps"],
        "fab": fields["fab_targets"] * fields["fab_steps"],
    }
    return float(BACKWARD * sum(steps[name] for name in fields["attacks"]))


def _until_sure(fields: dict[str, Any]) -> float:
    return float(fields.get("max_draws") or 100.0 / (fields.get("rho") or fields.get("kappa") or 0.05))


def _rare(fields: dict[str, Any]) -> float:
    levels = math.log(1.0 / fields["kappa"]) / math.log(2.0)
    return float(fields["replicates"] * fields["particles"] * (1 + fields["moves"] * levels))


def _unknown(fields: dict[str, Any]) -> float:
    return float(fields.get("steps", 100) * BACKWARD)


_COSTS: dict[str, Callable[[dict[str, Any]], float]] = {
    "pgd": _ascent,
    "cw": _ascent,
    "apgd": _ascent,
    "square": lambda fields: float(fields["queries"]),
    "autoattack": lambda fields: sum(PACKAGED[name] for name in fields["attacks"]),
    "minimal": _minimal,
    "pr": lambda fields: float(fields["draws"]),
    "probacc": _until_sure,
    "binomial": _until_sure,
    "radius": lambda fields: float(fields["select"] + fields["draws"]),
    "rare": _rare,
}
