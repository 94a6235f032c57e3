"""How a fleet's predictions of the same samples agree: what all models get wrong, and on what they are of one mind."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from services.numerics.arguments import Floats, Ints, fault


@dataclass(frozen=True)
class Agreement:
    """Counts over M models, each (N,).

    Attributes:
        wrong: models that predict another class than the label.
        votes: models that predict `consensus`.
        consensus: the class that most models predict, the smallest of those that tie; -1 counts as no vote.
    """

    wrong: Ints
    votes: Ints
    consensus: Ints


def agreement(predicted: Ints, labels: Ints) -> Agreement:
    """Of predictions (M, N), -1 where there is none, and labels (N,).

    Raises:
        MeasureError: other shapes, or no model.
    """
    if predicted.ndim != 2 or predicted.shape[1:] != labels.shape or not len(predicted):
        raise fault("predicted", f"one row of {len(labels)} predictions a model", f"shape {predicted.shape}")
    ordered = np.sort(predicted, axis=0)
    votes, consensus = np.zeros(len(labels), dtype=np.int64), np.full(len(labels), -1)
    run = np.zeros(len(labels), dtype=np.int64)
    for place, row in enumerate(ordered):
        run = np.where(ordered[place - 1] == row, run + 1, 1) if place else run + 1
        better = (run > votes) & (row >= 0)
        votes, consensus = np.where(better, run, votes), np.where(better, row, consensus)
    return Agreement((predicted != labels).sum(axis=0), votes, consensus)


def hardest_first(voted: Agreement, broken: Ints, nearest: Floats, labels: Ints) -> Ints:
    """(N,) the samples in order: most models wrong, then most votes for one other class, most broken, nearest."""
    astray = np.where(voted.consensus != labels, voted.votes, 0)
    distance = np.where(np.isnan(nearest), np.inf, nearest)
    return np.lexsort((np.arange(len(labels)), distance, -broken, -astray, -voted.wrong))
