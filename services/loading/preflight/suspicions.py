"""What a network's answers say against its samples: images that lie on their side, labels that are wrong.

Both look like a network that is weak. They are notes and never errors: the samples may be what the network has to face.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from services.loading.preflight.judgement import LEVEL, note
from services.loading.preflight.passes import run
from services.loading.protocols import LoadedModel
from services.numerics.tails import at_least, gained_by_chance

if TYPE_CHECKING:
    from services.loading.preflight.probe import Facts, Probe

TURNS = {1: "a quarter turn to the left", 2: "half a turn", 3: "a quarter turn to the right"}
ALERT = 0.25
"""Level at which a small probe asks for a larger one."""
SURE_ERRORS = 0.1
"""Share of its errors that a sound network makes with a margin above the median of its right answers."""
SURE_FROM = 0.75
"""Accuracy from which sure errors tell of labels: a weak or robust network is wrong with large margins as well."""

Right = NDArray[np.bool_]


class Answers:
    """How a network answers a probe as it is, and turned.

    Attributes:
        right: (n,) whether the answer is the label.
        sure: (n,) whether the margin to the second class is at least the median margin of right answers.
    """

    def __init__(self, network: Any, probe: Probe, logits: NDArray[np.float32], device: str, chunk: int) -> None:
        self.right: Right = logits.argmax(axis=1) == probe.labels
        second, first = np.partition(logits, -2, axis=1)[:, -2:].T
        margin = first - second
        self.sure: Right = margin >= (np.median(margin[self.right]) if self.right.any() else np.inf)
        self._turned: Callable[[int], NDArray[np.float32]] = lambda turn: run(
            network, np.ascontiguousarray(np.rot90(probe.images, turn, (2, 3))), device, chunk
        )
        self._labels, self._square = probe.labels, probe.images.shape[2] == probe.images.shape[3]

    @cached_property
    def best_turn(self) -> tuple[int, Right, float]:
        """The turn that explains errors best: its number, who is right under it, and the p-value of the better test.

        Fisher's exact test: wrong answers become right more often than right ones stay so, as where some images lie on
        their side. McNemar's: more answers are right than before, as where all do. Both one-sided; three turns.
        """
        tried = []
        for turn in TURNS if self._square else (2,):
            there: Right = self._turned(turn).argmax(axis=1) == self._labels
            tried.append((_turn_p_value(self.right, there), turn, there))
        p, turn, there = min(tried, key=lambda trial: trial[0])
        return turn, there, min(1.0, 2 * len(tried) * p)

    @property
    def sure_errors(self) -> tuple[int, float]:
        """How many errors are sure ones, and the p-value against a share of `SURE_ERRORS`, one-sided."""
        wrong = ~self.right
        count = int((wrong & self.sure).sum())
        return count, float(at_least(count, int(wrong.sum()), SURE_ERRORS))


def _turn_p_value(right: Right, there: Right) -> float:
    saved, wrong = int((there & ~right).sum()), int((~right).sum())
    lost, kept = int((right & ~there).sum()), int((right & there).sum())
    from scipy.stats import hypergeom  # half a second of a worker's start

    some = float(hypergeom.sf(saved - 1, len(right), saved + kept, wrong))
    return min(some, gained_by_chance(saved, lost))


def note_suspicions(
    loaded: LoadedModel,
    probe: Probe,
    logits: NDArray[np.float32],
    facts: Facts,
    device: str,
    chunk: int,
    wider: Callable[[], Probe] | None = None,
) -> None:
    """Add a note of images that the network knows when they are turned, and one of labels that it surely denies.

    Args:
        logits: (n, K) of the probe, one column a class.
        wider: a larger probe; asked for only where the first one makes one of the two likely.
    """
    answers = Answers(loaded.network, probe, logits, device, chunk)
    if answers.right.all():
        return
    suspected = answers.best_turn[2] < ALERT or answers.sure_errors[1] < ALERT
    if suspected and wider is not None:
        probe = wider()
        answers = Answers(loaded.network, probe, run(loaded.network, probe.images, device, chunk), device, chunk)
    turn, there, p = answers.best_turn
    wrong = int((~answers.right).sum())
    if p < LEVEL:
        saved = int((there & ~answers.right).sum())
        found = f"{saved} of {wrong} wrong answers are right after {TURNS[turn]}"
        note(facts, f"{found} of the image, on {len(probe.labels)} samples: some images may lie on their side")
    count, p = answers.sure_errors
    if p < LEVEL and answers.right.mean() >= SURE_FROM:
        found = f"{count} of {wrong} wrong answers are as sure as the median right one"
        note(facts, f"{found}, on {len(probe.labels)} samples: some labels may be wrong")
