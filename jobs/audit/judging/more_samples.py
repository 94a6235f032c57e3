"""What would decide a gate that its samples leave undecided: how many more, of which classes, if the estimates stay.

Said only where the limits hold at every look (`decide: early`, `intervals: {anytime: true}`): limits for one look would
pass in 17 to 24 % of audits by chance when samples are added until they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jobs.audit.judging.assemble import Grouping, series_result
from jobs.audit.judging.gates import judge
from jobs.fleetfile.gates import GateConfig
from jobs.fleetfile.tree import FleetConfig
from jobs.terminal.progress import clock
from services.metrics import METRICS
from services.numerics.arguments import Floats, Ints
from services.numerics.intervals.planning import samples_to_exceed, samples_to_stay_below
from services.records import Outcome, Series
from tracking.bundle.reasons.why import class_words

MOST_TIMES = 50
"""Times the samples at hand beyond which no number is given: then the estimate lies within about half a standard error
of the threshold, and the data cannot even say on which side."""
SHOWN = 3
NOTHING = "no number of samples would decide it while the estimate lies on the threshold"


@dataclass(frozen=True)
class Seen:
    """What a gate was judged on: scores (n,) over all samples that were measured, by class (n,).

    Attributes:
        series: of the scores; not conditional.
        rows: that an early decision rests on, of `grouping`; None in a full audit.
        clusters: of these; None where samples are independent.
        seconds: of a worker for one more sample; None where not known.
    """

    series: Series
    scores: Floats
    grouping: Grouping
    rows: Ints | None
    clusters: Ints | None
    seconds: float | None = None


def further_samples(gate: GateConfig, seen: Seen, config: FleetConfig) -> Ints | None:
    """(K,) samples of each class that would decide, besides those at hand; None where no number does."""
    codes = seen.grouping.codes if seen.rows is None else seen.grouping.codes[seen.rows]
    scores = seen.scores if seen.rows is None else seen.scores[seen.rows]
    have = np.bincount(codes, minlength=len(seen.grouping.names))
    if gate.metric == "wcr":
        wanted = _of_worst(gate, scores / seen.series.bound, codes, have, seen.series.bound, config.intervals.delta)
    else:
        wanted = _of_all(gate, seen, have, config)
    return None if wanted is None or wanted.sum() > MOST_TIMES * have.sum() else wanted


def _of_worst(gate: GateConfig, scores: Floats, codes: Ints, have: Ints, bound: float, delta: float) -> Ints | None:
    """A class below the threshold is refuted at level delta / K; else every class is cleared at level delta."""
    threshold = (gate.at_least if gate.at_least is not None else gate.at_most or 0.0) / bound
    of_class = [scores[codes == k] for k in range(have.size)]
    there = np.flatnonzero(have)
    means = np.array([of_class[k].mean() if have[k] else np.inf for k in range(have.size)])
    wanted = np.zeros_like(have)
    if means.min() < threshold:
        k = int(means.argmin())
        needed = samples_to_stay_below(of_class[k], threshold, delta / there.size)
        if needed is None:
            return None
        wanted[k] = max(1, needed - have[k])
        return wanted
    for k in there.tolist():
        needed = samples_to_exceed(of_class[k], threshold, delta)
        if needed is None:
            return None
        wanted[k] = max(0, needed - have[k])
    return wanted if wanted.any() else None


def _of_all(gate: GateConfig, seen: Seen, have: Ints, config: FleetConfig) -> Ints | None:
    """All classes by the same factor: the least at which the limits, as if each sample stood for so many, decide."""

    def decided(times: float) -> bool:
        result = series_result(
            seen.series,
            seen.scores,
            {},
            seen.grouping,
            config,
            rows=seen.rows,
            clusters=seen.clusters,
            times=times,
        )
        return judge(gate, result.metric(gate.metric)).outcome in (Outcome.PASS, Outcome.FAIL)

    low, high = 1.0, 2.0
    while not decided(high):
        if high > MOST_TIMES:
            return None
        low, high = high, 2.0 * high
    for _ in range(3):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if decided(middle) else (middle, high)
    more: Ints = np.maximum(1, np.ceil((high - 1.0) * have)).astype(np.int64) * (have > 0)
    return more


def more_words(gate: GateConfig, seen: Seen, available: Sequence[int], config: FleetConfig, price: float | None) -> str:
    """A sentence for the reason of an undecided gate; "" where no number of samples would decide it.

    Args:
        available: samples of each class in the source.
        price: of an hour of a worker.
    """
    wanted = further_samples(gate, seen, config)
    if wanted is None:
        return ""
    unit = "samples" if seen.clusters is None else "clusters"
    text = f"if the estimates stay, about {_rounded(int(wanted.sum())):,} more {unit} would decide it"
    if METRICS[gate.metric].needs == "groups":
        text += f" ({_classes(wanted, seen.grouping.names)})"
    if seen.seconds is not None:
        seconds = float(wanted.sum()) * seen.seconds
        money = "" if price is None else f", {seconds * price / 3600:,.2f} in money"
        text += f", at most {clock(seconds)} of a worker{money}"
    if seen.clusters is None and available:
        text += f"; {_where_from(wanted, seen, np.array(available))}"
    return text


def _where_from(wanted: Ints, seen: Seen, available: NDArray[np.int64]) -> str:
    whole = np.bincount(seen.grouping.codes, minlength=wanted.size)
    have = whole if seen.rows is None else np.bincount(seen.grouping.codes[seen.rows], minlength=wanted.size)
    if (have + wanted <= whole).all():
        return "they are at hand: early: {complete: true} goes on"
    if (have + wanted <= available).all():
        return "the source has them: raise limit or per_class"
    return "the source has too few: add samples"


def _classes(wanted: Ints, names: tuple[str, ...]) -> str:
    order = [k for k in np.argsort(-wanted, kind="stable").tolist() if wanted[k]]
    listed = [f"{_rounded(int(wanted[k])):,} of {class_words(names, k)}" for k in order[:SHOWN]]
    more = [f"{len(order) - SHOWN} more classes"] if len(order) > SHOWN else []
    return " and ".join([", ".join(listed), *more])


def _rounded(count: int) -> int:
    """Two digits that count: more would promise what estimates cannot."""
    digits = max(0, len(str(count)) - 2)
    return int(-(-count // 10**digits) * 10**digits)
