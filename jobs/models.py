"""The result of one model: its scores joined and kept, profiled by every grouping, judged by every gate."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.assemble import Grouping, series_results
from jobs.baseline import Baseline, non_inferiority
from jobs.config import GateConfig
from jobs.fleetfile import Fleet
from jobs.gates import judge, worst
from jobs.plan import Context, ModelPlan
from jobs.scores import Scores, read_scores, write_scores
from services.loading.protocols import Samples
from services.records import Estimate, GateResult, ModelResult, Outcome, SeriesResult

METRICS = ("aggregate", "wcr", "rdi", "nrgc", "fp")


@dataclass(frozen=True)
class Judge:
    """What all models of an audit are judged with."""

    fleet: Fleet
    samples: Samples
    context: Context
    groupings: tuple[Grouping, ...]
    baselines: dict[str, Baseline | None]
    folder: str


def model_result(item: ModelPlan, index: int, judge_with: Judge) -> ModelResult:
    """Read a model's tables, keep its scores in the bundle, and judge it."""
    scores = read_scores(item, judge_with.samples, judge_with.context)
    write_scores(judge_with.folder, index, item.spec, scores)
    series = tuple(series_results(item, scores, judge_with.groupings, judge_with.fleet.config))
    gates = tuple(_gate(gate, item, series, scores, judge_with) for gate in judge_with.fleet.config.gates)
    return ModelResult(
        spec=item.spec,
        digest=item.digest,
        outcome=worst(gate.outcome for gate in gates),
        reasons=tuple(_reasons(gates)),
        gates=gates,
        series=series,
        notes=tuple(dict.fromkeys(note for result in series if result.grouping == "class" for note in result.notes)),
    )


def _gate(
    gate: GateConfig, item: ModelPlan, series: tuple[SeriesResult, ...], scores: Scores, judge_with: Judge
) -> GateResult:
    result = next(r for r in series if r.series.key == gate.measure and r.grouping == gate.grouping)
    if gate.not_worse_than is None:
        return judge(gate, metric(result, gate.metric))
    baseline = judge_with.baselines[gate.not_worse_than]
    config = judge_with.fleet.config
    return judge(gate, non_inferiority(gate, result.series, item.spec.name, scores, baseline, config))


def metric(result: SeriesResult, name: str) -> Estimate:
    """A metric of a series by its name in the fleet file."""
    if name in METRICS:
        found: Estimate = getattr(result, name)
        return found
    return Estimate(None, reason=f"{name} needs a GREAT score and a minimal perturbation")


def _reasons(gates: tuple[GateResult, ...]) -> list[str]:
    """The sentences behind the verdict: of the gates that decided it."""
    if not gates:
        return ["no gates were set: measured, not judged"]
    deciding = worst(gate.outcome for gate in gates)
    if deciding is Outcome.PASS:
        return [f"all {len(gates)} gates passed" if len(gates) > 1 else f"{gates[0].text}: {gates[0].reason}"]
    return [f"{gate.text}: {gate.reason}" for gate in gates if gate.outcome is not Outcome.PASS]
