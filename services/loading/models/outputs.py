"""What a network returns against what was declared of it: logits, probabilities, log-probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.errors import Problem
from services.records import ModelSpec

Logits = NDArray[np.floating[Any]]
"""Scores (n, K) as a network returned them."""

SUM_TOLERANCE = 1e-3


def looks_like_probabilities(spec: ModelSpec, logits: Logits) -> Problem | None:
    """Declared logits whose rows are distributions: a soft-max at the end of the network would be applied twice."""
    if spec.outputs != "logits" or not is_distribution(logits):
        return None
    actual = "rows in [0, 1] that sum to 1"
    remedy = "declare outputs: probabilities, or remove the soft-max from the network"
    return Problem(f"{spec.name} (outputs)", "logits as declared", actual, remedy)


def declared_output_problems(spec: ModelSpec, scores: Logits) -> list[Problem]:
    """Declared probabilities must be distributions, declared log-probabilities must exponentiate to them."""
    if spec.outputs == "logits":
        return []
    values = scores if spec.outputs == "probabilities" else np.exp(np.minimum(scores, 1.0))
    if is_distribution(values):
        return []
    sums = values.sum(axis=1)
    shown = f"values from {scores.min():.4g} to {scores.max():.4g} whose rows sum to {sums.min():.4g}..{sums.max():.4g}"
    return [Problem(f"{spec.name} (outputs)", f"{spec.outputs} as declared", shown, "declare outputs: logits")]


def is_distribution(values: Logits) -> bool:
    """Rows lie in [0, 1] and sum to 1."""
    inside = values.min() >= -SUM_TOLERANCE and values.max() <= 1 + SUM_TOLERANCE
    return bool(inside and np.all(np.abs(values.sum(axis=1) - 1) <= SUM_TOLERANCE))
