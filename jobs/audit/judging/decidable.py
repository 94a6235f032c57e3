"""Which gates so few samples cannot clear, whatever the scores: said before an audit, and in its notes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import partial

import numpy as np

from jobs.audit.judging.assemble import options_of
from jobs.fleetfile.gates import GateConfig, gate_text
from jobs.fleetfile.reading import Fleet
from services.numerics.intervals.means import Sample, limits, method_for
from services.records import SampleFacts, Series

SHOWN = 5


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
