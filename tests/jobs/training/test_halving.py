"""Halving: who stops is what a table by hand says, and who goes on is trained as if alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from jobs.training.halving import rungs, stopped
from jobs.training.progress import QuietTraining
from jobs.training.sweep_run import Trained, run_sweep
from jobs.training.sweep_tree import HalvingConfig
from jobs.training.sweepfile import Sweep
from services.errors import ConfigError, Interrupted
from services.records.trials import EpochPoint, Shares
from services.training.epochs.checkpoints import load_weights
from tracking.bundle.training_bundle import read_trial

from .helpers import sweep

RATES = (0.1, 1e-7, 0.03, 1e-6)
"""Of four methods: the first and the third learn."""
METHODS: list[Any] = [{"name": "erm", "label": f"m{k}", "recipe": {"lr": rate}} for k, rate in enumerate(RATES)]
HALVING = {"first": 1, "factor": 2, "by": "clean"}


def of(folder: Path, **changes: Any) -> Sweep:
    recipe = {"epochs": 4, "batch": 16, "weight_decay": 0.0}
    return sweep(folder, **{"methods": METHODS, "recipe": recipe, "halving": HALVING, **changes})


def points(*robust: float) -> list[EpochPoint]:
    return [EpochPoint(k, 1.0, 0.1, 1.0, Shares(), Shares(value, value, value / 2)) for k, value in enumerate(robust)]


def test_looks_grow_by_the_factor_and_end_below_the_longest(tmp_path: Path) -> None:
    trials = of(tmp_path, recipe={"epochs": 30}).networks
    assert rungs(HalvingConfig(first=3, factor=3), trials) == [3, 9, 27]
    assert rungs(HalvingConfig(first=30), trials) == [] == rungs(None, trials)


def test_combinations_are_compared_by_the_mean_of_their_seeds_on_each_data_set(tmp_path: Path) -> None:
    sets = [{"name": "digits", "label": label, "limit": 300, "holdout": 0.2} for label in ("a", "b")]
    trials = of(tmp_path, datasets=sets, seeds=[0, 1]).networks
    scores = {"m0": (0.2, 0.9), "m1": (0.5, 0.5), "m2": (0.6, 0.1), "m3": (0.6, 0.6)}  # means .55, .5, .35, .6
    known = {
        f"{method}-small_cnn-{label}-s{seed}": points(scores[method][seed], 0.1)
        for method in scores
        for seed in (0, 1)
        for label in "ab"
    }
    for seed in (0, 1):
        known[f"m1-small_cnn-b-s{seed}"] = points(0.7, 0.1)
    weaker = stopped(HalvingConfig(first=1, factor=2), 2, trials, known)
    assert set(weaker) == {
        *(f"{method}-small_cnn-a-s{seed}" for method in ("m1", "m2") for seed in (0, 1)),
        *(f"{method}-small_cnn-b-s{seed}" for method in ("m0", "m2") for seed in (0, 1)),
    }
    assert weaker["m1-small_cnn-a-s0"] == (
        "held-out robust accuracy 0.500 after 2 epochs is number 3 of 4, and 2 went on (halving)"
    )
    late = {name: points(0.1, 0.1, 0.95) if name.startswith("m2") else each for name, each in known.items()}
    assert set(stopped(HalvingConfig(first=1, factor=2), 2, trials, late)) == set(weaker), "later epochs do not count"
    assert len(stopped(HalvingConfig(first=1, factor=3), 2, trials, known)) == 8, "two of four go on"
    gone = {name: each for name, each in known.items() if not name.startswith("m3")}
    assert all(name in stopped(HalvingConfig(first=1, factor=2), 2, trials, gone) for name in known if name[:2] == "m3")


def states(done: Trained) -> dict[str, tuple[str, int]]:
    return {trial.name[:2]: (trial.state, trial.epochs) for trial in done.result.trials}


def test_the_weaker_stop_and_the_others_train_as_without(tmp_path: Path) -> None:
    done = run_sweep(of(tmp_path / "a"), QuietTraining())
    assert {name for name, (state, _) in states(done).items() if state == "finished"} < {"m0", "m2"}
    assert sorted(states(done).values()) == [("dropped", 1), ("dropped", 1), ("dropped", 2), ("finished", 4)]
    assert (done.result.outcome, done.result.exit_code) == ("finished", 0)
    best = next(trial for trial in done.result.trials if trial.state == "finished")
    alone = run_sweep(
        of(
            tmp_path / "b",
            halving=None,
            exclude=[{"method": f"m{k}"} for k in range(4) if not best.name.startswith(f"m{k}")],
        ),
        QuietTraining(),
    )
    (same,) = alone.result.trials
    first, second = load_weights(best.weights), load_weights(same.weights)
    assert best.key == same.key and all(torch.equal(first[name], second[name]) for name in first)
    again = run_sweep(of(tmp_path / "a"), QuietTraining())
    assert states(again) == states(done)
    whole = run_sweep(of(tmp_path / "a", halving=None), QuietTraining())
    assert set(states(whole).values()) == {("finished", 4)}, "what was dropped goes on where it was left"


def test_a_stop_in_a_round_changes_nothing_of_who_goes_on(tmp_path: Path) -> None:
    class Stops(QuietTraining):
        """At an epoch of the second round."""

        def epoch(self, name: str, point: EpochPoint) -> None:
            """Stop."""
            if point.epoch == 1:
                raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        run_sweep(of(tmp_path / "a"), Stops())
    kept = [read_trial(str(folder)) for folder in (tmp_path / "a").glob("training/small/m*")]
    assert sorted(trial.state for trial in kept if trial) == ["dropped", "dropped"]
    resumed, whole = (run_sweep(of(tmp_path / name), QuietTraining()) for name in "ab")
    assert states(resumed) == states(whole)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"datasets": [{"name": "digits", "limit": 300}]},
            r"datasets\[0\].holdout: expected a share above 0, for halving",
        ),
        ({"halving": {"first": 0}}, r"halving.first: expected"),
        ({"halving": {"first": 1, "factor": 1}}, r"halving.factor: expected"),
        ({"halving": {"first": 1, "by": "loss"}}, r"halving.by: expected 'clean', 'robust' or 'worst-class'"),
        ({"halving": {}}, r"halving.first: expected"),
    ],
)
def test_what_cannot_be_compared_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        of(tmp_path, **changes)
