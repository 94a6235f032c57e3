"""What a network returns against what was declared of it: logits, probabilities, percentages, sigmoids."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.errors import Problem
from services.numerics.rounding import Rounding, explains_sums, rounding
from services.records import ModelSpec, Outputs

Logits = NDArray[np.floating[Any]]
"""Scores (n, K) as a network returned them."""

LIKELY: tuple[Outputs, ...] = ("probabilities", "percentages", "sigmoid", "logits")
"""What outputs may be instead, the most particular first."""
SUM_TOLERANCE = 1e-3
REPEAT_TOLERANCE = 1e-5
"""Largest accepted difference of two identical passes, relative to the largest absolute logit (at least 1)."""
PERCENTS, CODES = 100.0, 255.0
WHOLES = (1.0, PERCENTS, CODES)
"""What probabilities, percentages and codes of 8 bits are shares of."""
FEWEST = 8
"""Rows of which one sum is no chance."""
PERCENT = 50.0
"""Numbers without a sign that reach beyond this and not beyond 100 are taken for percentages."""
PROBABILITY_FLOOR = 1e-30
"""Probabilities below this are raised to it before the logarithm (about -69), so that logits stay finite."""
SIGMOID_CEILING = 1 - 2.0**-24
"""Sigmoids above this are lowered to it before the inverse (about 16.6): float32 has no number between it and 1."""


def undeclared_output(spec: ModelSpec, logits: Logits, *, guesses: bool = False) -> list[Problem]:
    """Declared logits that are shares of a whole or lie in [0, 1] or [0, 100]: soft-max would be applied twice.

    Rows that are all the same say nothing of what they are: such a network predicts one class.

    Args:
        guesses: the network is no better than guessing, so that its numbers may be small for lack of training.
    """
    one_answer = len(logits) > 1 and not np.ptp(logits, axis=0).any()
    if spec.outputs != "logits" or one_answer or (top := _top(logits)) is None:
        return []
    values = logits / top
    known = rounding(values)
    actual, remedy = f"values in [0, {top:g}]", _remedy(values, top)
    if explains_sums(values, None, SUM_TOLERANCE):
        actual = f"rows in [0, {top:g}] that sum to {top:g}"
    elif explains_sums(values, known, SUM_TOLERANCE) and known is not None:
        actual = f"rows in [0, {top:g}], rounded to {_coarse(known, top)}, that sum to {top:g} but for the rounding"
    elif guesses:
        actual += " of a network that guesses"
        remedy = f"check weights and normalisation: an untrained network looks like that. If it is trained, {remedy}"
    return [Problem(f"{spec.name} (outputs)", "logits as declared", actual, remedy)]


def declared_output_problems(spec: ModelSpec, scores: Logits) -> list[Problem]:
    """Whether outputs are what they are declared to be; rounding may explain sums of rows that are not 1."""
    if spec.outputs == "logits" or _is(spec.outputs, scores):
        return []
    sums = scores.sum(axis=1)
    shown = f"values from {scores.min():.4g} to {scores.max():.4g} whose rows sum to {sums.min():.4g}..{sums.max():.4g}"
    fits = next(kind for kind in LIKELY if _is(kind, scores))
    return [Problem(f"{spec.name} (outputs)", f"{spec.outputs} as declared", shown, f"declare outputs: {fits}")]


def rounding_facts(outputs: Outputs, scores: Logits) -> dict[str, Any]:
    """How coarse declared probabilities, percentages or sigmoids are, as a fact of preflight and a note.

    `output_rounding` is the form in words, absent for full precision and for logits.
    """
    if outputs in ("logits", "log-probabilities"):
        return {}
    top = PERCENTS if outputs == "percentages" else 1.0
    known = rounding(scores / top)
    if known is None:
        return {}
    words = _coarse(known, top)
    sentence = f"outputs are rounded to {words}: margins below {known.step * top:.2g} are lost"
    if not known.relative:
        sentence += ", and attacks by gradient have nothing to follow"
    return {"output_rounding": words, "notes": [sentence]}


def _coarse(known: Rounding, top: float) -> str:
    """How coarse numbers are, in their own unit: two decimals of a share are whole percentages."""
    return f"steps of {known.step * top:g}" if top == PERCENTS and "decimal" in known.words else known.words


def other_width(where: str, width: int, offsets: int) -> Problem:
    """Of offsets that are not one a class."""
    return Problem(f"{where} (offsets)", f"{width} numbers, one a class", str(offsets), "give one for each logit")


def _is(outputs: Outputs, scores: Logits) -> bool:
    if outputs == "logits":
        return True
    if outputs == "log-probabilities":
        values = np.exp(np.minimum(scores, 1.0))
        return _inside(values, 1.0) and explains_sums(values, None, SUM_TOLERANCE)
    values = scores / 100 if outputs == "percentages" else scores
    if not _inside(values, 1.0):
        return False
    if outputs == "sigmoid":
        return not explains_sums(values, None, SUM_TOLERANCE)
    return explains_sums(values, rounding(values), SUM_TOLERANCE) and (outputs == "probabilities" or scores.max() > 1)


def _top(logits: Logits) -> float | None:
    """The whole of which numbers are shares; 1 or 100 where all lie in [0, 1] or, as percentages, in [0, 100]; or None.

    Shares are counts of votes or 8-bit codes as well as probabilities: not negative, with rows of one sum.
    """
    sums = np.asarray(logits, dtype=np.float64).sum(axis=1)
    whole, alike = float(sums.mean()), np.ptp(sums) <= SUM_TOLERANCE * sums.min()
    if logits.min() >= 0 and whole > 0 and alike and len(logits) >= FEWEST:
        return next((top for top in WHOLES if abs(whole - top) <= SUM_TOLERANCE * top), whole)
    if _inside(logits, 1.0):
        return 1.0
    for top in WHOLES[1:]:
        shares = logits / top
        percent = top == PERCENTS and logits.max() > PERCENT
        if _inside(logits, top) and (percent or explains_sums(shares, rounding(shares), SUM_TOLERANCE)):
            return top
    return None


def _inside(values: Logits, top: float) -> bool:
    return bool(values.min() >= -SUM_TOLERANCE * top and values.max() <= top * (1 + SUM_TOLERANCE))


def _remedy(values: Logits, top: float) -> str:
    if not explains_sums(values, rounding(values), SUM_TOLERANCE):
        return "declare outputs: sigmoid, or return the logits" if top == 1 else "return logits, or numbers in [0, 1]"
    if top not in (1, PERCENTS):
        return f"return the logits; or divide by {top:g} and declare outputs: probabilities"
    return f"declare outputs: {'probabilities' if top == 1 else 'percentages'}, or remove the soft-max from the network"
