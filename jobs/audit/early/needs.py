"""Which measures the gates of a fleet need, on which samples, and in which order they are measured."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.fleetfile.gates import GateConfig
from jobs.fleetfile.reading import Fleet
from services.measures.measure import Measure
from services.measures.minimal import Minimal
from services.metrics import METRICS
from services.records import Evidence


@dataclass(frozen=True)
class Need:
    """What gates need of one measure that runs the network.

    Attributes:
        early: gates on it whose limits hold at every look: they may be decided on a part of the samples.
        complete: a gate that is judged once, on all samples, needs it.
    """

    measure: Measure
    early: tuple[GateConfig, ...]
    complete: bool

    @property
    def needed(self) -> bool:
        return self.complete or bool(self.early)


def decides_early(gate: GateConfig) -> bool:
    """Whether a gate's limits hold at every look: metrics over the classes and the mean over all samples.

    Gates by an attribute, of decisions, of claims and of pairs of audits have limits for one look only.
    """
    by_class = gate.grouping == "class" and METRICS[gate.metric].estimate is not None
    return by_class and gate.not_worse_than is None


def needs_of(fleet: Fleet, measures: tuple[Measure, ...]) -> list[Need]:
    """Of each measure that runs the network what the gates need, the cheapest first."""
    runs = sorted(
        (measure for measure in measures if measure.needs == "model"), key=lambda measure: measure.most_passes
    )
    return [_need(measure, fleet) for measure in runs]


def prerequisites(gate: GateConfig, fleet: Fleet) -> tuple[Measure, ...]:
    """The measures besides its own that a gate rests on, on all samples.

    A claim may pass only while attacks refute few of it: it is held against `minimal` where the fleet has that. The
    refuted share itself rests on all attacks.
    """
    series = fleet.series().get(gate.measure)
    refuted = METRICS[gate.metric].needs == "claim"
    if not refuted and (series is None or series.evidence is not Evidence.CLAIM):
        return ()
    return tuple(
        measure
        for measure in fleet.measures
        if isinstance(measure, Minimal) or (refuted and any(each.attack for each in measure.series()))
    )


def _need(measure: Measure, fleet: Fleet) -> Need:
    keys = {series.key for series in measure.series()}
    own = [gate for gate in fleet.config.gates if gate.measure in keys]
    early = () if measure.pictures else tuple(gate for gate in own if decides_early(gate))
    others = [gate for gate in own if gate not in early]
    behind = any(measure == other for gate in fleet.config.gates for other in prerequisites(gate, fleet))
    return Need(measure, early, bool(others) or behind)
