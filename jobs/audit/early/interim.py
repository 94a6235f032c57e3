"""One look at a model between rounds: which gates its bounds decide, and which classes the others still need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from jobs.audit.early.order import Bools, Ints
from jobs.audit.judging.assemble import extras_of, over_all_samples
from jobs.audit.judging.verdict import Case, by_bounds
from jobs.fleetfile.gates import GateConfig
from jobs.fleetfile.tree import FleetConfig
from services.measures.measure import Measure
from services.metrics import METRICS
from services.numerics.intervals.means import Sample, limits
from services.records import GateResult, Outcome

SETTLED = (Outcome.PASS, Outcome.FAIL)


@dataclass(frozen=True)
class Look:
    """What was seen.

    Attributes:
        results: the gates by text, judged by their bounds.
        wanted: (K,) the classes that an undecided gate on groups needs more of.
        in_proportion: an undecided gate needs more samples of all classes by their share.
    """

    results: dict[str, GateResult]
    wanted: Bools
    in_proportion: bool

    @property
    def settled(self) -> bool:
        """All gates are decided."""
        return all(judged.outcome in SETTLED for judged in self.results.values())


def look_at(
    gates: Sequence[GateConfig],
    case: Case,
    rows: Ints,
    measure: Measure,
    config: FleetConfig,
    spare: Mapping[str, float] | None = None,
) -> Look:
    """Judge gates on one measure of which `rows` were taken; the case has its series by class, on these rows.

    Args:
        spare: by gate, how far beyond the threshold a lower limit has to lie.
    """
    (classes,) = case.groupings
    results, wanted, in_proportion = {}, np.zeros(len(classes.names), dtype=bool), False
    for gate in gates:
        judged = by_bounds(gate, case, config)
        results[judged.text] = judged
        beyond = (spare or {}).get(judged.text, 0.0)
        if judged.outcome in SETTLED and not falls_short(gate, judged, beyond):
            continue
        if judged.outcome is Outcome.PASS:
            results[judged.text] = replace(judged, outcome=Outcome.UNDECIDED)
        if METRICS[gate.metric].needs == "samples":
            in_proportion = True
        elif gate.metric == "wcr":
            wanted |= ~_cleared(gate, case, rows, measure, config, beyond)
        else:
            wanted[:] = True
    return Look(results, wanted, in_proportion)


def falls_short(gate: GateConfig, judged: GateResult, spare: float) -> bool:
    """Whether a pass does not clear its threshold by that much."""
    low = judged.estimate.low
    return gate.at_least is not None and judged.outcome is Outcome.PASS and (low or 0.0) - spare < gate.at_least


def _cleared(gate: GateConfig, case: Case, rows: Ints, measure: Measure, config: FleetConfig, spare: float) -> Bools:
    """(K,) the classes whose own lower limit reaches the threshold: more samples of them decide nothing.

    The worst class is at least t when every class passes its own test at level delta (intersection-union), and it is
    below t only because of a class that is not cleared.
    """
    (classes,) = case.groupings
    series = next(each.series for each in case.series if each.series.key == gate.measure)
    threshold = gate.at_least if gate.at_least is not None else gate.at_most
    sample = Sample.of(
        _over_all(gate, case, measure)[rows], classes.codes[rows], len(classes.names), bound=series.bound, seed=None
    )
    low, _ = limits(sample, config.intervals.delta, "anytime")
    return np.asarray(low * series.bound - spare >= (threshold or 0.0))


def _over_all(gate: GateConfig, case: Case, measure: Measure) -> NDArray[np.float64]:
    series = next(each.series for each in case.series if each.series.key == gate.measure)
    values = case.scores[gate.measure]
    if series.conditional:
        _, values = over_all_samples(series, values, extras_of(case.scores, measure))
    return values
