"""Generalisation error: a mean on training samples minus the same mean on test samples (PRB F.2)."""

from __future__ import annotations

from services.records import Estimate


def gap(train: Estimate, test: Estimate, *, bound: float) -> Estimate:
    """`train - test`, in [-bound, bound].

    With each side's interval at level delta / 2, the interval ``[train.low - test.high, train.high - test.low]`` holds
    with probability at least 1 - delta, whether the two samples are independent or not (union bound).

    Returns:
        value None with a reason where a side is undefined.
    """
    if train.value is None or test.value is None:
        side, name = (train, "training") if train.value is None else (test, "test")
        return Estimate(None, reason=f"undefined on the {name} samples: {side.reason}")
    value = train.value - test.value
    if train.low is None or train.high is None or test.low is None or test.high is None:
        return Estimate(value, reason="no interval on one of the sides")
    low, high = train.low - test.high, train.high - test.low
    vacuous = low <= -bound and high >= bound
    return Estimate(value, low, high, "the interval covers the whole range" if vacuous else "", vacuous)
