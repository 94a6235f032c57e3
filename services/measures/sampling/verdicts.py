"""Sequential verdicts for a batch of samples: draw, look after every draw, drop the decided, pack the rest.

Each sample goes its own way: how many draws it takes next and when it stops depend on its own counts alone, so verdicts
do not change with the batch. Passes are filled with the pairs of all undecided samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.measures.sampling.passes import Ints, pairs
from services.numerics.intervals.sequential import Boundary

Failed = Callable[[Ints, Ints], NDArray[np.bool_]]
"""Maps pairs (rows, draws) to whether each failed."""

LARGEST_BLOCK = 1024
"""Draws a sample takes between looks, at most: keeps memory flat in the number of draws."""


@dataclass(frozen=True)
class Verdicts:
    """What came of each sample (n,).

    Attributes:
        verdict: 1 the failure probability is certified below kappa, -1 above, 0 undecided after the horizon.
        draws, failures: when the verdict fell; what it rests on.
        passes: images passed through the network, those of a block after its verdict included.
    """

    verdict: NDArray[np.int8]
    draws: Ints
    failures: Ints
    passes: Ints


def sequential_verdicts(failed: Failed, count: int, boundary: Boundary) -> Verdicts:
    """Monitor `count` samples after every draw until each is decided or has `boundary.horizon` draws."""
    draws, failures, passes = (np.zeros(count, dtype=np.int64) for _ in range(3))
    state = Verdicts(np.zeros(count, dtype=np.int8), draws, failures, passes)
    active = np.arange(count)
    while len(active):
        blocks = np.minimum(boundary.next_block(state.draws[active], state.failures[active]), LARGEST_BLOCK)
        _absorb(state, active, blocks, failed(*pairs(active, state.draws[active], blocks)), boundary)
        active = active[(state.verdict[active] == 0) & (state.draws[active] < boundary.horizon)]
    return state


def _absorb(state: Verdicts, active: Ints, blocks: Ints, flags: NDArray[np.bool_], boundary: Boundary) -> None:
    """Walk through each sample's block draw by draw and stop it at its first verdict."""
    ends = np.cumsum(blocks)
    starts = ends - blocks
    running = np.cumsum(flags) - np.repeat(np.cumsum(flags)[starts] - flags[starts], blocks)
    position = np.arange(len(flags)) - np.repeat(starts, blocks) + 1
    failures = np.repeat(state.failures[active], blocks) + running
    draws = np.repeat(state.draws[active], blocks) + position
    verdict = boundary.decide(draws, failures)
    stops = np.where(verdict != 0, np.arange(len(flags)), len(flags))
    last = np.minimum(np.minimum.reduceat(stops, starts), ends - 1)
    state.verdict[active] = verdict[last]
    state.draws[active] = draws[last]
    state.failures[active] = failures[last]
    state.passes[active] += blocks
