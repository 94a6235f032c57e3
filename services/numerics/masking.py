"""Signs of masked gradients: robustness that is the attack's failure and not the network's strength.

The signs are those of Athalye, Carlini & Wagner 2018 (arXiv 1802.00420, section 3.1). A finding is a number and a
sentence for the reader; it is never folded into a score.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from services.errors import MeasureError, Problem


class Sign(StrEnum):
    """What was seen."""

    ZERO_GRADIENT = "zero-gradient"
    NOISE = "weaker-than-noise"
    BLACK_BOX = "weaker-than-black-box"
    SHORTER = "weaker-than-shorter"
    UNBOUNDED = "survives-unbounded"


@dataclass(frozen=True, slots=True)
class Finding:
    """One sign of masked gradients.

    Attributes:
        sign: which.
        samples: how many of the correctly classified samples show it.
        share: `samples` over all correctly classified ones, in [0, 1].
        sentence: for people.
    """

    sign: Sign
    samples: int
    share: float
    sentence: str


@dataclass(frozen=True)
class Observations:
    """Columns of score tables of one model on the same n samples; what was not measured is None.

    Survival is 1 or 0; for noise, the share of draws survived in [0, 1]. All of it within one ball, but `unbounded`.

    Attributes:
        correct: correctly classified.
        attack: survival of the gradient attack under scrutiny.
        zero_gradient: its share of exactly zero input gradients.
        noise: survival of random noise in the same ball.
        black_box: survival of an attack that sees scores only, in the same ball.
        shorter: survival of the same attack with fewer steps.
        unbounded: survival of the gradient attack in a ball that holds a constant grey image (Linf 0.5 or more), which
            no classifier can survive for every class.
    """

    correct: ArrayLike
    attack: ArrayLike
    zero_gradient: ArrayLike | None = None
    noise: ArrayLike | None = None
    black_box: ArrayLike | None = None
    shorter: ArrayLike | None = None
    unbounded: ArrayLike | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Shares of the correctly classified samples above which a sign is reported.

    An attack that draws its starts may miss a few samples that a weaker one breaks; 0.2 % is what AutoAttack's own
    check allows Square to gain. One zero gradient means little, so `zero` samples need half of theirs to be zero.
    """

    zero: float = 0.01
    weaker: float = 0.002
    unbounded: float = 0.0


def find_masking(observed: Observations, limits: Limits | None = None) -> tuple[Finding, ...]:
    """All signs of masked gradients above their limits; empty when there are none, or nothing to look at.

    A sample is a sign when it is correctly classified and: at least half of its input gradients are exactly zero; it
    survives the attack but not all noise, not the black-box attack, or not the same attack with fewer steps; it
    survives the attack without bound.

    Raises:
        MeasureError: columns of different lengths.
    """
    bounds, correct = limits or Limits(), _column(observed.correct, None) > 0
    if not correct.any():
        return ()
    return tuple(
        Finding(sign, int(shown.sum()), float(shown.sum() / correct.sum()), _sentence(sign, shown, correct))
        for sign, shown, limit in _signs(observed, correct, bounds)
        if shown.sum() / correct.sum() > limit
    )


def _signs(
    observed: Observations, correct: NDArray[np.bool_], limits: Limits
) -> Iterator[tuple[Sign, NDArray[np.bool_], float]]:
    n = len(correct)
    stands = correct & (_column(observed.attack, n) >= 1)
    if observed.zero_gradient is not None:
        yield Sign.ZERO_GRADIENT, correct & (_column(observed.zero_gradient, n) >= 0.5), limits.zero
    weaker = ((Sign.NOISE, observed.noise), (Sign.BLACK_BOX, observed.black_box), (Sign.SHORTER, observed.shorter))
    for sign, survival in weaker:
        if survival is not None:
            yield sign, stands & (_column(survival, n) < 1), limits.weaker
    if observed.unbounded is not None:
        yield Sign.UNBOUNDED, correct & (_column(observed.unbounded, n) >= 1), limits.unbounded


_WORDS = {
    Sign.ZERO_GRADIENT: "at least half of the input gradients were exactly zero, so a gradient attack could not move",
    Sign.NOISE: "the gradient attack failed where random noise in the same ball succeeded",
    Sign.BLACK_BOX: "the gradient attack failed where a black-box attack in the same ball succeeded",
    Sign.SHORTER: "the attack failed where the same attack with fewer steps succeeded",
    Sign.UNBOUNDED: "the attack failed in a ball large enough to hold any image",
}


def _sentence(sign: Sign, shown: NDArray[np.bool_], correct: NDArray[np.bool_]) -> str:
    share = shown.sum() / correct.sum()
    return f"For {shown.sum()} of {correct.sum()} correctly classified samples ({share:.1%}) {_WORDS[sign]}."


def _column(values: ArrayLike, n: int | None) -> NDArray[Any]:
    column = np.asarray(values)
    if column.ndim != 1 or (n is not None and len(column) != n):
        raise MeasureError(Problem("gradient masking", f"columns of {n} samples", f"one of shape {column.shape}"))
    return column
