"""Sampling under the smoothing noise: class selection, counts of a class, and certification that stops early.

Looks are taken at fixed sample sizes that grow by a quarter, so that where a sample stops depends on its own draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.measures.sampling.passes import Ints, Passes, pairs
from services.numerics.intervals.radius import probability_at, sequential_radius
from services.numerics.intervals.sequential import log_evidence_above, log_evidence_below

FIRST_LOOK = 32
LARGEST_CHUNK = 1024


def selected_classes(passes: Passes, sigma: float, count: int) -> Ints:
    """(n,) the most frequent class of draws 0..count-1, the lowest on a tie; -1 when no draw gave finite logits."""
    total = len(passes.ids)
    chunk, classes = max(1, passes.size // max(total, 1)), []
    rows = np.arange(total)
    for first in range(0, count if total else 0, chunk):
        size = min(chunk, count - first)
        which, draws = pairs(rows, np.full(total, first), np.full(total, size))
        classes.append(passes.smoothed_classes(sigma, which, draws).reshape(total, size))
    return np.array([_mode(row) for row in np.concatenate(classes, axis=1)]) if classes else rows


def _mode(classes: Ints) -> int:
    valid = classes[classes >= 0]
    return int(np.bincount(valid).argmax()) if len(valid) else -1


def successes(passes: Passes, sigma: float, rows: Ints, first: Ints, counts: Ints, selected: Ints) -> Ints:
    """(len(rows),) how many of draws first[i] .. first[i] + counts[i] - 1 give the selected class of rows[i]."""
    which, draws = pairs(rows, first, counts)
    hits = passes.smoothed_classes(sigma, which, draws) == selected[which]
    return np.add.reduceat(hits.astype(np.int64), np.cumsum(counts) - counts) if len(rows) else np.zeros(0, np.int64)


@dataclass(frozen=True)
class SmoothingRule:
    """When a sample's certificate is settled; see `services.measures.radius.Radius`."""

    sigma: float
    alpha: float
    at: tuple[float, ...]
    width: float | None
    horizon: int

    def settled(self, hits: Ints, draws: Ints) -> NDArray[np.bool_]:
        """(n,) whether nothing is left to find out."""
        if self.width is None:
            accepted, refused = self.decisions(hits, draws)
            return np.asarray((accepted | refused).all(1))
        low, high = sequential_radius(hits, draws, sigma=self.sigma, alpha=self.alpha)
        return np.asarray(high - low <= self.width * high)

    def decisions(self, hits: Ints, draws: Ints) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """(n, len(at)) "radius >= r" certified, and refuted, each wrongly with probability at most alpha at any n."""
        kappa = 1.0 - probability_at(np.asarray(self.at), self.sigma)
        n, k = draws[:, None], (draws - hits)[:, None]
        bar = -np.log(self.alpha)
        return log_evidence_below(n, k, kappa) >= bar, log_evidence_above(n, k, kappa) >= bar


def certify(
    passes: Passes, rule: SmoothingRule, rows: Ints, selected: Ints, *, first: int
) -> tuple[NDArray[np.float64], Ints]:
    """Radius (n,) and draws (n,) of the given rows, from draw `first` on; 0 and 0 for the others.

    The radius is the lower end of the confidence sequence at the last look, or the largest r of `rule.at` certified at
    any look when that is larger. All of them follow from one confidence sequence, so the radius exceeds the true one
    with probability at most alpha.
    """
    hits, draws = np.zeros(len(selected), dtype=np.int64), np.zeros(len(selected), dtype=np.int64)
    radius, active = np.zeros(len(selected)), rows
    while len(active):
        target = np.where(draws[active] == 0, FIRST_LOOK, draws[active] + np.clip(draws[active] // 4, 1, LARGEST_CHUNK))
        counts = np.minimum(target, rule.horizon) - draws[active]
        hits[active] += successes(passes, rule.sigma, active, first + draws[active], counts, selected)
        draws[active] += counts
        accepted, _ = rule.decisions(hits[active], draws[active])
        radius[active] = np.maximum(radius[active], (accepted * np.asarray(rule.at)).max(1))
        done = rule.settled(hits[active], draws[active]) | (draws[active] >= rule.horizon)
        active = active[~done]
    low, _ = sequential_radius(hits[rows], draws[rows], sigma=rule.sigma, alpha=rule.alpha)
    radius[rows] = np.maximum(radius[rows], low)
    return radius, draws
