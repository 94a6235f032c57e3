"""What the samples at hand can decide: gates that they cannot clear, and the smallest gap that each gate needs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from jobs.audit.judging.assemble import Grouping, options_of, series_result
from jobs.audit.judging.gates import judge
from jobs.fleetfile.gates import GateConfig, gate_text
from jobs.fleetfile.reading import Fleet
from services.metrics import METRICS
from services.numerics.intervals.means import Sample, limits, method_for
from services.records import Outcome, SampleFacts, Series

SHOWN = 5
STEPS = 8
"""Halvings of the range in which a gap is looked for."""
SETTLED = (Outcome.PASS, Outcome.FAIL)


def too_few(fleet: Fleet, facts: SampleFacts) -> Iterator[str]:
    """A sentence for each gate on the worst class that classes bar from a pass by their number of samples alone.

    The worst class is cleared by a lower limit of every class's own mean at level delta, the bound of the score its
    best case. Where that does not reach the threshold with every sample at the bound, no scores can pass the gate.
    """
    series = fleet.series()
    for gate in fleet.config.gates:
        if gate.metric != "wcr" or gate.grouping != "class" or gate.at_least is None:
            continue
        best = partial(_best_limit, series[gate.measure], fleet)
        counts = facts.intake.clusters_of or facts.counts
        sizes = sorted({count for count in counts if count})
        enough = bisect_left(sizes, gate.at_least, key=best)  # the limit grows with the number of samples
        if short := [k for k, count in enumerate(counts) if count in sizes[:enough]]:
            yield _sentence(gate, facts, short, best(sizes[0]))


def _sentence(gate: GateConfig, facts: SampleFacts, short: list[int], best: float) -> str:
    clusters = facts.intake.clusters_of
    counts, available = clusters or facts.counts, clusters or facts.intake.available or facts.counts
    named = ", ".join(f"{facts.classes[k]} ({counts[k]} of {available[k]})" for k in short[:SHOWN])
    more = f" and {len(short) - SHOWN} more" if len(short) > SHOWN else ""
    drawn = any(available[k] > facts.counts[k] for k in short)
    unit = "clusters" if clusters else "samples"
    remedy = "raise limit, or draw by per_class" if drawn else f"add {unit}"
    return (
        f"{gate_text(gate)}: cannot pass, for too few {unit} of {named}{more}: with every score at its best the lower "
        f"limit is {best:.2g}; {remedy}."
    )


def _best_limit(series: Series, fleet: Fleet, count: int) -> float:
    """The lower limit of a mean when all of `count` samples score the bound."""
    config = fleet.config
    scores, group = np.full(count, series.bound), np.zeros(count, dtype=np.int64)
    sample = Sample.of(scores, group, 1, bound=series.bound, seed=config.seed)
    how = options_of(series, config, clustered=config.samples.cluster is not None)
    method = method_for(how["method"], binary=how["binary"])
    return float(limits(sample, config.intervals.delta, method)[0][0]) * series.bound


# --- the smallest gap ---------------------------------------------------------------------------------------------


def smallest_gaps(fleet: Fleet, facts: SampleFacts) -> Iterator[str]:
    """For each gate on the classes or all samples how far an estimate must lie from its threshold to be decided.

    Of profiles that make it hardest: scores of 0 and the bound alone, all classes alike, or half of them high and half
    low where the metric is a disparity.
    """
    series = fleet.series()
    for gate in fleet.config.gates:
        threshold = gate.at_least if gate.at_least is not None else gate.at_most
        if threshold is None or gate.grouping != "class" or METRICS[gate.metric].estimate is None:
            continue
        gaps = {outcome: _gap(gate, threshold, outcome, series[gate.measure], fleet, facts) for outcome in SETTLED}
        sides = [f"{outcome} from {gap:.2g} away" for outcome, gap in gaps.items() if gap is not None]
        yield f"{gate_text(gate)}: these samples decide {' and '.join(sides) or 'nothing'}"


def _gap(
    gate: GateConfig, threshold: float, outcome: Outcome, series: Series, fleet: Fleet, facts: SampleFacts
) -> float | None:
    """The least distance at which the gate ends so; None where none in the metric's range does."""
    up = (outcome is Outcome.PASS) == (gate.at_least is not None)
    most = (0.5 if gate.metric == "nrgc" else series.bound) - threshold
    low, high = 0.0, most if up else threshold
    if not _ends(gate, threshold + (high if up else -high), outcome, series, fleet, facts):
        return None
    for _ in range(STEPS):
        middle = 0.5 * (low + high)
        ends = _ends(gate, threshold + (middle if up else -middle), outcome, series, fleet, facts)
        low, high = (low, middle) if ends else (middle, high)
    return high


def _ends(gate: GateConfig, value: float, outcome: Outcome, series: Series, fleet: Fleet, facts: SampleFacts) -> bool:
    counts = np.array(facts.intake.clusters_of or facts.counts)
    labels = np.repeat(np.arange(counts.size), counts)
    means = _means(gate.metric, value if gate.metric == "nrgc" else value / series.bound, counts.size)
    ones = np.rint(means * counts).astype(np.int64)
    place = np.arange(labels.size) - np.repeat(np.cumsum(counts) - counts, counts)
    scores = np.where(place < ones[labels], series.bound, 0.0)
    plain = replace(series, conditional=False)
    classes, rows = Grouping("class", labels, facts.classes), np.arange(labels.size)
    taken = rows if _early(gate, fleet) else None
    clusters = rows if facts.intake.clusters else None
    result = series_result(plain, scores, {}, classes, fleet.config, rows=taken, clusters=clusters)
    return judge(gate, result.metric(gate.metric)).outcome is outcome


def _early(gate: GateConfig, fleet: Fleet) -> bool:
    """Whether the gate is looked at in rounds."""
    measure = next(each for each in fleet.measures if gate.measure in {series.key for series in each.series()})
    return fleet.config.decide == "early" and measure.needs == "model"


def _means(metric: str, value: float, classes: int) -> NDArray[np.float64]:
    """(K,) class means in [0, 1] of which the metric is about `value`, in units of the bound."""
    spread = {"rdi": value, "nrgc": 2.0 * value}.get(metric, 0.0)
    middle = value if metric not in ("rdi", "nrgc") else 0.5
    high = np.arange(classes) % 2 == 0
    return np.clip(np.where(high, middle + spread / 2, middle - spread / 2), 0.0, 1.0)
