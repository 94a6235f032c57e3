"""Undecided audits that obey: as many more samples as the sentence says, again and again; how often the gate errs.

``python -m benchmarks.obeyed [--runs 400] [--write FILE]``. Each run is one model of ten classes whose worst class or
mean lies on the wrong side of its threshold by a hair. Its audit begins with 100 samples a class. While it is
undecided, as many are added as `jobs.audit.judging.more_samples` says, or a tenth where the limits are for one look and
nothing is said (what a user does who adds samples until a gate is decided). Fails when the first errs in more than
delta.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.coverage.judge import Cell, broken
from benchmarks.decide import DELTA, Setting, fleet_config, settings
from jobs.audit.judging.assemble import Grouping, series_result
from jobs.audit.judging.gates import judge
from jobs.audit.judging.more_samples import Seen, further_samples
from jobs.fleetfile.tree import FleetConfig
from services.records import Outcome, Series

FIRST, LOOKS, MOST = 100, 20, 20_000
METRICS = ("wcr", "aggregate")


def obey(setting: Setting, config: FleetConfig, rng: np.random.Generator) -> tuple[Outcome, int]:
    """The last verdict, and how many samples it took."""
    counts = np.full(setting.means.size, FIRST)
    drawn = [_draw(setting, k, FIRST, rng) for k in range(counts.size)]
    series = Series("clean", "accuracy", 1.0, binary=setting.binary)
    for _ in range(LOOKS):
        labels, scores = np.repeat(np.arange(counts.size), counts), np.concatenate(drawn)
        classes = Grouping("class", labels, tuple(map(str, range(counts.size))))
        result = series_result(series, scores, {}, classes, config)
        outcome = judge(setting.gate, result.metric(setting.gate.metric)).outcome
        if outcome is not Outcome.UNDECIDED or counts.sum() > MOST:
            break
        more = -(-counts // 10)
        if config.intervals.anytime:
            wanted = further_samples(setting.gate, Seen(series, scores, classes, None, None), config)
            if wanted is None:
                break
            more = np.minimum(wanted, MOST)
        drawn = [np.concatenate([each, _draw(setting, k, int(more[k]), rng)]) for k, each in enumerate(drawn)]
        counts = counts + more
    return outcome, int(counts.sum())


def _draw(setting: Setting, k: int, count: int, rng: np.random.Generator) -> np.ndarray:
    p = setting.means[k]
    return (rng.random(count) < p).astype(float) if setting.binary else rng.beta(6 * p, 6 * (1 - p), count)


def cells(runs: int) -> Iterator[tuple[Setting, bool, Cell, float]]:
    """Wrong verdicts of each setting, with limits for every look and for one, and the mean number of samples."""
    configs = {anytime: anytime_config(anytime) for anytime in (True, False)}
    chosen = [
        each for each in settings(10) if each.metric in METRICS and each.place == "on the threshold" and each.binary
    ]
    for index, setting in enumerate(chosen):
        for anytime, config in configs.items():
            ran = [obey(setting, config, np.random.default_rng([71, index, run])) for run in range(runs)]
            wrong = sum(outcome is setting.wrong for outcome, _ in ran)
            mean = float(np.mean([count for _, count in ran]))
            yield setting, anytime, Cell("obeyed", setting.title, DELTA, wrong, runs, exact=anytime), mean


def anytime_config(anytime: bool = True) -> FleetConfig:
    """Limits that hold at every look, or for one."""
    config = fleet_config()
    return config.model_copy(update={"intervals": config.intervals.model_copy(update={"anytime": anytime})})


def table(found: list[tuple[Setting, bool, Cell, float]]) -> str:
    """A row a metric and kind of scores, the worst of its settings."""
    lines = [["metric", "scores", "limits at every look: wrong, %", "samples", "for one look: wrong, %", "samples"]]
    lines.append(["---"] * len(lines[0]))
    for metric, binary in dict.fromkeys((setting.metric, setting.binary) for setting, *_ in found):
        row = [metric, "0 or 1" if binary else "in [0, 1]"]
        for anytime in (True, False):
            mine = [each for each in found if (each[0].metric, each[0].binary, each[1]) == (metric, binary, anytime)]
            worst = max((each[2] for each in mine), key=lambda cell: cell.rate)
            row += [str(worst), f"{np.mean([each[3] for each in mine]):,.0f}"]
        lines.append(row)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> int:
    """Simulate, print, and say whether the promise was kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    found = list(cells(options.runs))
    wrong = broken([cell for _, _, cell, _ in found])
    print(table(found), *(f"{cell.setting}: {cell}" for cell in wrong), f"broken: {len(wrong)}", sep="\n")
    if options.write:
        options.write.write_text(table(found) + "\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
