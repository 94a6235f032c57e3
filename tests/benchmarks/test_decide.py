"""The simulation of early decisions: a short run, and what it would say of a wrong one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import decide
from benchmarks.coverage.judge import broken
from services.records import Outcome


@pytest.mark.parametrize("metric", decide.METRICS)
def test_a_gate_far_from_the_truth_is_decided_rightly_from_part_of_the_samples(metric: str) -> None:
    far = [each for each in decide.settings(2) if each.metric == metric and each.place == "far" and each.binary]
    for index, setting in enumerate(far):
        run = decide.simulate(setting, decide.fleet_config(), np.random.default_rng(index), full=False)
        assert run.early is setting.right and run.share < 1.0, (setting.title, run)


@pytest.mark.long
def test_gates_on_the_threshold_are_seldom_decided_wrongly() -> None:
    at = [each for each in decide.settings(2) if each.place == "on the threshold" and each.binary][::2]
    runs = {
        setting: [decide.simulate(setting, decide.fleet_config(), np.random.default_rng([9, k]), full=False)]
        for k, setting in enumerate(at)
    }
    cells = decide.cells(runs)
    assert sum(cell.misses for cell in cells) <= 2 and not broken(cells)
    assert broken([replace(cells[0], misses=30, runs=40)])


def test_the_table_counts_contradictions() -> None:
    setting = next(each for each in decide.settings(2) if each.metric == "wcr" and each.place == "far")
    runs = {setting: [decide.Run(Outcome.PASS, 0.1, Outcome.FAIL), decide.Run(Outcome.PASS, 0.1, None)]}
    assert decide.table(runs)[0][-1] == "1"
