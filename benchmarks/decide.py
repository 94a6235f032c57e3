"""Decide early by simulation: how often a verdict is wrong, and what share of the samples it takes.

``python -m benchmarks.decide [--runs 200] [--write FILE]``. Each run is one model whose class means are known, measured
in rounds as `jobs.audit.early` does it and judged by `jobs.audit.judging.verdict.gate_result` after each: for every
metric, side, number of classes, 0/1 scores and others, with the truth on the threshold, slightly beyond it, and far. A
pass is wrong where the truth does not meet the gate, a fail where it does. Beside it the verdicts of a full audit with
limits for one look. Fails when a gate errs more often than delta by more than the simulation's own error.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.coverage.judge import Cell, broken
from jobs.audit.early.interim import look_at
from jobs.audit.early.order import Order, counts_at, first_level, next_level
from jobs.audit.judging.assemble import Grouping, series_result
from jobs.audit.judging.verdict import Case, gate_result
from jobs.fleetfile.gates import GateConfig
from jobs.fleetfile.reading import validate_fleet
from jobs.fleetfile.tree import FleetConfig
from services.measures.clean import Clean
from services.numerics.disparity import disparity
from services.numerics.intervals.disparity import weakest_mean
from services.records import Evidence, Outcome, Series

DELTA, PENALTY = 0.05, 0.5
METRICS = ("wcr", "aggregate", "rdi", "nrgc", "fp", "p10")
SIZES = {2: 1000, 10: 1000, 100: 200, 1000: 50}
"""Samples of each class, by the number of classes."""
PLACES = {"on the threshold": 0.0, "slightly beyond": 0.01, "far": 0.15}
"""How far the threshold lies from the truth, on the side where the gate must not do what it is tested for."""


@dataclass(frozen=True, eq=False)
class Setting:
    """A gate on models whose truth is known.

    Attributes:
        metric, place: of the gate, and of its threshold.
        means: (K,) of the classes; in [0, 1].
        size: samples of each class.
        gate: what is asked.
        wrong: the outcome that is an error.
    """

    metric: str
    place: str
    means: np.ndarray
    binary: bool
    size: int
    gate: GateConfig
    wrong: Outcome

    @property
    def right(self) -> Outcome:
        return Outcome.PASS if self.wrong is Outcome.FAIL else Outcome.FAIL

    @property
    def title(self) -> str:
        kind = "0 or 1" if self.binary else "in [0, 1]"
        return f"{self.gate.metric}, {self.means.size} classes, {kind}, {self.place}, {self.wrong.value} is wrong"


@dataclass(frozen=True)
class Run:
    """What became of one model: the early verdict, the share of the samples it took, and the full audit's verdict.

    The full audit is run for every fourth model alone: its verdicts are for comparison.
    """

    early: Outcome
    share: float
    full: Outcome | None


def truth(metric: str, means: np.ndarray) -> float:
    """The metric of known class means, all classes of one size."""
    spread = disparity(means, np.ones(means.size, dtype=bool), penalty=PENALTY)
    tenth = max(1, int(np.ceil(0.1 * means.size - 1e-9)))
    values = {
        "wcr": means.min(),
        "aggregate": means.mean(),
        "p10": weakest_mean(means, tenth),
        "rdi": spread.rdi.value,
        "nrgc": spread.nrgc.value,
        "fp": spread.fp.value,
    }
    return float(values[metric] or 0.0)


def settings(classes: int) -> Iterator[Setting]:
    """Every metric, side, kind of scores, and place of the threshold: where a pass is wrong, and where a fail is."""
    means = np.linspace(0.7, 0.95, classes).round(4)
    for metric in METRICS:
        for binary in (True, False):
            for place, gap in PLACES.items():
                for side in ("at_least", "at_most"):
                    for met in (False, True):
                        if (setting := _setting(metric, means, binary, place, gap, side, met)) is not None:
                            yield setting


def _setting(
    metric: str, means: np.ndarray, binary: bool, place: str, gap: float, side: str, met: bool
) -> Setting | None:
    """The truth meets the gate by `gap`, or misses it by that and a hair; None where no such threshold exists."""
    away = -gap if met else gap + 1e-9
    threshold = truth(metric, means) + (away if side == "at_least" else -away)
    if not 0.0 <= threshold <= 1.0:
        return None
    limit: dict[str, Any] = {side: threshold}
    gate = GateConfig(measure="clean", metric=metric, **limit)
    wrong, size = (Outcome.FAIL if met else Outcome.PASS), SIZES[means.size]
    return Setting(metric, place, means, binary, size, gate, wrong)


def simulate(setting: Setting, config: FleetConfig, rng: np.random.Generator, *, full: bool) -> Run:
    """One model: drawn, measured in rounds, judged."""
    labels = np.repeat(np.arange(setting.means.size), setting.size)
    p = setting.means[labels]
    scores = (rng.random(labels.size) < p).astype(float) if setting.binary else rng.beta(6 * p, 6 * (1 - p))
    classes = Grouping("class", labels, tuple(map(str, range(setting.means.size))))
    series = Series("clean", "accuracy", 1.0, binary=setting.binary, evidence=Evidence.OUTCOME, family="clean")
    order, level = Order.of(labels, setting.means.size, int(rng.integers(2**31))), first_level(setting.means.size)
    counts, wanted, whole = np.zeros_like(order.sizes), np.ones(order.sizes.size, dtype=bool), True
    while True:
        now = counts_at(level, counts, order.sizes, wanted, in_proportion=whole)
        if not (now > counts).any():
            break
        counts, rows = now, order.prefix(now)
        case = _case(series, scores, classes, config, rows)
        seen = look_at([setting.gate], case, rows, Clean(), config)
        wanted, whole, level = seen.wanted, seen.in_proportion, next_level(level)
        if seen.settled:
            break
    early = gate_result(setting.gate, case, config)
    other = gate_result(setting.gate, _case(series, scores, classes, config, None), config).outcome if full else None
    return Run(early.outcome, counts.sum() / labels.size, other)


def _case(series: Series, scores: np.ndarray, classes: Grouping, config: FleetConfig, rows: np.ndarray | None) -> Case:
    result = series_result(series, scores, {}, classes, config, rows=rows)
    nothing: Any = SimpleNamespace(skipped={}, tables=())
    return Case(nothing, {"clean": scores}, (result,), (), (), (), (classes,), nothing, {})


def fleet_config(delta: float = DELTA) -> FleetConfig:
    """A fleet file that decides early at level delta."""
    data = {
        "fleet": "simulated",
        "models": [{"name": "m", "uri": "logits:none.npz"}],
        "samples": {"uri": "npz:none.npz"},
        "measures": ["clean"],
        "decide": "early",
        "fp_lambda": PENALTY,
        "intervals": {"delta": delta},
    }
    return validate_fleet(data).config


def runs_of(classes: int, runs: int) -> dict[Setting, list[Run]]:
    """All settings of a number of classes."""
    config, results = fleet_config(), {}
    for index, setting in enumerate(settings(classes)):
        rng = np.random.default_rng([40, classes, index])
        results[setting] = [simulate(setting, config, rng, full=run % 4 == 0) for run in range(runs)]
    return results


def cells(results: dict[Setting, list[Run]]) -> list[Cell]:
    """How often each setting ended in the wrong verdict."""
    return [
        Cell("early", setting.title, DELTA, sum(_early(runs, setting.wrong)), len(runs))
        for setting, runs in results.items()
    ]


def table(results: dict[Setting, list[Run]]) -> list[list[str]]:
    """A row a metric and number of classes."""
    lines = []
    for metric, classes in dict.fromkeys((setting.metric, setting.means.size) for setting in results):
        mine = {s: runs for s, runs in results.items() if (s.metric, s.means.size) == (metric, classes)}
        placed = [[cell for s, cell in zip(mine, cells(mine), strict=True) if s.place == place] for place in PLACES]
        wrong = [Cell("", "", DELTA, sum(c.misses for c in each), sum(c.runs for c in each)) for each in placed]
        both = sum(_contradicts(run) for runs in mine.values() for run in runs)
        lines.append(
            [
                metric,
                f"{classes:,} x {SIZES[classes]:,}",
                *(str(cell) if cell.runs else "–" for cell in wrong[:2]),
                *_decided(mine),
                str(both),
            ]
        )
    return lines


def _contradicts(run: Run) -> bool:
    return {run.early, run.full} == {Outcome.PASS, Outcome.FAIL}


def _decided(mine: dict[Setting, list[Run]]) -> Iterator[str]:
    """Of each place: share decided rightly by the early and by the full audit, and the early one's samples."""
    for place in list(PLACES)[1:]:
        for right in (Outcome.PASS, Outcome.FAIL):
            runs = [run for s, each in mine.items() if (s.place, s.right) == (place, right) for run in each]
            if not runs:
                yield "–"
                continue
            early, full = (100 * float(np.mean(decided)) for decided in (_early(runs, right), _full(runs, right)))
            yield f"{early:.0f} ({full:.0f}), {100 * np.mean([run.share for run in runs]):.1f}"


def _early(runs: list[Run], outcome: Outcome) -> list[bool]:
    return [run.early is outcome for run in runs]


def _full(runs: list[Run], outcome: Outcome) -> list[bool]:
    return [run.full is outcome for run in runs if run.full is not None]


HEAD = [
    "metric",
    "classes x samples",
    "wrong on the threshold, %",
    "slightly beyond it, %",
    "slightly beyond: pass",
    "fail",
    "far: pass",
    "fail",
    "contradictions",
]


def main() -> int:
    """Simulate, print, and say whether the promise was kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200, help="models a setting, fewer of many classes")
    parser.add_argument("--classes", type=int, nargs="*", default=[*SIZES], choices=[*SIZES])
    parser.add_argument("--write", type=Path, help="where to write the table, as Markdown")
    options = parser.parse_args()
    results: dict[Setting, list[Run]] = {}
    for classes in options.classes:
        start = time.process_time()
        results |= runs_of(classes, max(1, options.runs * 10 // max(10, classes)))
        print(f"{classes} classes: {time.process_time() - start:.0f} s", flush=True)
    lines = [HEAD, ["---"] * len(HEAD), *table(results)]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    wrong = broken(cells(results))
    print(text, *(f"{cell.setting}: {cell}" for cell in wrong), f"broken: {len(wrong)}", sep="\n")
    if options.write:
        options.write.write_text(text + "\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
