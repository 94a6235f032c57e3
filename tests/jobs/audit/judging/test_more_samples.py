"""What would decide an undecided gate: that many samples more do, if the estimates stay; and where nothing would."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jobs.audit.audit import run_audit
from jobs.audit.judging.assemble import Grouping, series_result
from jobs.audit.judging.gates import judge
from jobs.audit.judging.more_samples import NOTHING, Seen, further_samples, more_words
from jobs.fleetfile.gates import GateConfig
from jobs.fleetfile.reading import validate_fleet
from jobs.fleetfile.tree import FleetConfig
from jobs.terminal.progress import Quiet
from services.records import Outcome, Series

NAMES = ("a", "b", "c", "d")


def config(**changed: Any) -> FleetConfig:
    data = {
        "fleet": "f",
        "models": [{"name": "m", "uri": "logits:none.npz"}],
        "samples": {"uri": "npz:none.npz"},
        "intervals": {"anytime": True},
    }
    return validate_fleet({**data, **changed}).config


def seen(means: list[float], count: int, *, binary: bool, times: np.ndarray | None = None) -> Seen:
    """Scores whose class means are these; each class a number of times."""
    each = np.full(len(means), count) if times is None else times
    labels = np.repeat(np.arange(len(means)), each)
    place = np.concatenate([np.arange(n) / n for n in each])
    ones = (place < np.array(means)[labels]).astype(float)
    scores = ones if binary else 0.2 + 0.8 * (0.7 * ones + 0.3 * (1 - ones))
    series = Series("s", "s", 1.0, binary=binary)
    return Seen(series, scores, Grouping("class", labels, NAMES[: len(means)]), None, None, 0.01)


def outcome(gate: GateConfig, of: Seen) -> Outcome:
    result = series_result(of.series, of.scores, {}, of.grouping, config())
    return judge(gate, result.metric(gate.metric)).outcome


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("metric", ["wcr", "aggregate", "rdi", "nrgc", "fp", "p10"])
@pytest.mark.parametrize("side", ["at_least", "at_most"])
def test_that_many_more_of_the_same_decide(metric: str, side: str, binary: bool) -> None:
    means = [0.725, 0.8, 0.85, 0.9]
    small = seen(means, 40, binary=binary)
    value = series_result(small.series, small.scores, {}, small.grouping, config()).metric(metric).value
    assert value is not None
    for shift in (-0.06, 0.06):
        threshold = min(1.0, max(0.0, value + shift * {"nrgc": 0.5, "rdi": 1.5}.get(metric, 1.0)))
        gate = GateConfig(measure="s", metric=metric, **{side: threshold})
        if outcome(gate, small) is not Outcome.UNDECIDED:
            continue
        wanted = further_samples(gate, small, config())
        assert wanted is not None and wanted.sum() > 0
        more = seen(means, 0, binary=binary, times=np.ceil(1.05 * (40 + wanted)).astype(int))
        assert outcome(gate, more) in (Outcome.PASS, Outcome.FAIL)
        if wanted.max() > 40:
            fewer = seen(means, 0, binary=binary, times=np.maximum(1, (40 + 0.6 * wanted).astype(int)))
            assert outcome(gate, fewer) is Outcome.UNDECIDED


def test_only_the_classes_that_are_not_cleared_get_samples() -> None:
    gate = GateConfig(measure="s", metric="wcr", at_least=0.7)
    wanted = further_samples(gate, seen([0.8, 0.99, 0.99, 0.99], 60, binary=True), config())
    assert wanted is not None and wanted[0] > 20 and wanted[1:].tolist() == [0, 0, 0]
    worst = further_samples(gate, seen([0.6, 0.72, 0.9, 0.9], 60, binary=True), config())
    assert worst is not None and worst[0] > 20 and worst[1:].tolist() == [0, 0, 0]


@pytest.mark.parametrize("metric", ["wcr", "aggregate", "rdi"])
def test_on_the_threshold_no_number_would(metric: str) -> None:
    of = seen([0.75, 0.75, 0.75, 0.75] if metric != "rdi" else [0.5, 0.75, 0.75, 0.75], 40, binary=True)
    value = series_result(of.series, of.scores, {}, of.grouping, config()).metric(metric).value
    gate = GateConfig(measure="s", metric=metric, at_least=value)
    assert further_samples(gate, of, config()) is None
    assert more_words(gate, of, (), config(), None) == ""


def test_the_sentence_says_which_what_it_costs_and_where_they_are() -> None:
    gate, of = GateConfig(measure="s", metric="wcr", at_least=0.7), seen([0.8, 0.99, 0.99, 0.99], 60, binary=True)
    said = more_words(gate, of, (1000, 60, 60, 60), config(), 3600.0)
    assert said.startswith("if the estimates stay, about ") and " of a)" in said
    assert "of a worker, " in said and "raise limit" in said
    assert "add samples" in more_words(gate, of, (61, 60, 60, 60), config(), None)
    numbered = replace(of, grouping=replace(of.grouping, names=("1", "2", "3", "4")))
    assert " of class 1)" in more_words(gate, numbered, (), config(), None), "a name that is a number is no amount"


GATE = {"measure": "clean", "metric": "wcr", "at_least": 0.85}


@pytest.mark.parametrize("anytime", [True, False])
def test_an_audit_says_it_only_where_limits_hold_at_every_look(digits_fleet: dict[str, Any], anytime: bool) -> None:
    """Limits for one look would pass by chance, obeyed often enough."""
    samples = {"uri": "sklearn:digits?split=test", "per_class": 20}
    fleet = {**digits_fleet, "measures": ["clean"], "gates": [GATE], "samples": samples}
    done = run_audit(validate_fleet({**fleet, "intervals": {"anytime": anytime}}), Quiet()).result
    undecided = [model.gates[0] for model in done.models if model.gates[0].outcome is Outcome.UNDECIDED]
    assert undecided
    for gate in undecided:
        assert ("would decide it" in gate.reason) is anytime
        assert ("of a worker" in gate.reason or NOTHING in gate.reason) is anytime
