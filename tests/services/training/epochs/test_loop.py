"""The loop: it learns, it is a function of its seed, it resumes bit for bit, it stops when it must."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import nn

from services.errors import ConfigError, SourceError, StorageError
from services.training.counts import EpochRecord
from services.training.epochs import checkpoints
from services.training.methods import METHODS, method_from
from services.training.methods.method import Method
from services.training.recipe import Recipe
from services.training.step import Batch, StepResult
from tests.services.training.epochs.small_runs import network, run, same, samples, weights

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize("name", METHODS.names())
def test_every_method_learns(name: str) -> None:
    net = network()
    report = run(net, method=method_from(name), epochs=4, batch=30, validation=samples(60, seed=1))
    held = report.records[-1].validation
    assert held is not None and held.clean is not None
    assert sum(held.clean) / sum(held.total) > 0.8
    assert report.records[-1].loss_sum < report.records[0].loss_sum or name in {"faal", "wat", "cfa"}
    assert not net.training


def test_adversarial_training_buys_robustness() -> None:
    budget = {"epsilon": 0.15, "step": 0.05, "steps": 5}
    robust = {}
    for name in ("erm", "pgd"):
        method = method_from(name if name == "erm" else {"name": name, "budget": budget})
        report = run(network(), method=method, epochs=6, validation=samples(80, 1), attack=budget)
        held = report.records[-1].validation
        assert held is not None
        robust[name] = held.accuracy("robust")
    assert robust["pgd"] > robust["erm"] + 0.1


def test_counts_are_whole_and_sums_match_the_data() -> None:
    record = run(network(), method=method_from("trades"), validation=samples(40, 1)).records[0]
    assert record.samples == 120 and record.train.total == (30,) * 4
    assert record.train.clean is not None and record.train.robust is not None
    assert all(r <= n for r, n in zip(record.train.robust, record.train.total, strict=True))
    held = record.validation
    assert held is not None and held.total == (10,) * 4 and held.clean is not None and held.robust is not None
    assert all(r <= c <= n for r, c, n in zip(held.robust, held.clean, held.total, strict=True))


def test_the_same_seed_gives_the_same_weights_and_another_does_not() -> None:
    nets = [network(norm=True) for _ in range(3)]
    for net, seed in zip(nets, (7, 7, 8), strict=True):
        run(net, seed=seed, epochs=2, crop=1, flip=True)
    assert same(weights(nets[0]), weights(nets[1]))
    assert not same(weights(nets[0]), weights(nets[2]))


def test_training_leaves_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    run(network(norm=True), epochs=1)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_uint8_images_train_like_their_floats() -> None:
    x, y = samples()
    pixels = np.rint(x * 255).astype(np.uint8)
    nets = [network(), network()]
    run(nets[0], data=(pixels, y), epochs=1)
    run(nets[1], data=(pixels.astype(np.float32) / np.float32(255), y), epochs=1)
    assert same(weights(nets[0]), weights(nets[1]))


class Stop(Exception):
    """Raised in a test between two epochs."""


@pytest.mark.parametrize(
    ("name", "averaging"),
    [
        ("pgd", None),
        ("cfa", None),
        ("wat", None),
        ("wat", {"kind": "ema", "start": 0}),
        ("pgd", {"kind": "fair-ema", "start": 0, "threshold": 0.3}),
        ("erm", {"kind": "step-ema", "start": 0, "decay": 0.9}),
    ],
)
def test_a_run_stopped_between_epochs_goes_on_to_the_same_weights(name: str, averaging: Any, tmp_path: Path) -> None:
    options: dict[str, Any] = {"method": method_from(name), "validation": samples(40, 1), "crop": 1, "select": "robust"}
    options["averaging"] = averaging
    options |= {"optimizer": "adamw", "lr": 0.01} if name == "erm" else {}
    whole, halves = network(norm=True), network(norm=True)
    expected = run(whole, **options)

    def stop(record: EpochRecord) -> None:
        if record.epoch == 0:
            raise Stop

    with pytest.raises(Stop):
        run(halves, storage=str(tmp_path), on_epoch=stop, **options)
    report = run(network(norm=True), storage=str(tmp_path), **options)
    resumed = network(norm=True)
    again = run(resumed, storage=str(tmp_path), **options)
    assert report.resumed_at == 1 and again.resumed_at == 3
    assert same(weights(whole), weights(resumed))
    assert same(checkpoints.load_weights(str(tmp_path / checkpoints.MODEL)), weights(whole))
    for a, b in zip(report.records, expected.records, strict=True):
        assert replace(a, seconds=0, judging=0) == replace(b, seconds=0, judging=0)
    assert report.selected == expected.selected == again.selected


def test_what_steers_by_confidence_has_it_once_and_keeps_none(tmp_path: Path) -> None:
    report = run(network(), method=method_from({"name": "dafa", "warmup": 0.4}), storage=str(tmp_path))
    progress = checkpoints.load_progress(str(tmp_path))
    assert progress is not None and len(set(progress.state["weights"])) == 4
    assert {record.train.confidence for record in report.records} == {None}


CHILD = """
import sys, time
sys.path.insert(0, {root!r})
import importlib.util
spec = importlib.util.spec_from_file_location("loop_case", {file!r})
case = importlib.util.module_from_spec(spec); spec.loader.exec_module(case)
import torch
torch.set_num_threads(1)
class Slow(torch.nn.Module):
    def __init__(self, inner): super().__init__(); self.inner, self.calls = inner, 0
    def forward(self, x):
        self.calls += 1
        if self.calls > 160: time.sleep(0.2)
        return self.inner(x)
net = Slow(case.network(norm=True))
case.run(net, storage={storage!r}, epochs=4, on_epoch=lambda r: print("epoch", r.epoch, flush=True))
"""


def test_a_run_killed_in_the_middle_of_an_epoch_ends_in_the_same_weights(tmp_path: Path) -> None:
    runs = str(Path(__file__).with_name("small_runs.py"))  # in a child `tests` is a package of robustbench
    code = CHILD.format(root=str(ROOT), file=runs, storage=str(tmp_path))
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "epoch 0\n"
    time.sleep(0.5)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert child.returncode == -signal.SIGKILL

    class Wrapped(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.inner(x)
            return logits

    torch_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        resumed, whole = Wrapped(network(norm=True)), Wrapped(network(norm=True))
        report = run(resumed, storage=str(tmp_path), epochs=4)
        run(whole, epochs=4)
    finally:
        torch.set_num_threads(torch_threads)
    assert 1 <= report.resumed_at < 4
    assert same(weights(resumed), weights(whole))


class Diverging(Method):
    """ERM whose loss becomes NaN in the second epoch of 8 steps."""

    name: Literal["diverging"] = "diverging"

    def step(self, network: nn.Module, batch: Batch) -> StepResult:
        loss = network(batch.images).square().mean()
        calls.append(0)
        return StepResult(loss * float("nan") if len(calls) > 12 else loss)


calls: list[int] = []


def test_a_loss_that_is_not_finite_stops_with_the_last_good_epoch(tmp_path: Path) -> None:
    calls.clear()
    net = network()
    report = run(net, method=Diverging(), storage=str(tmp_path))
    assert (report.stopped, len(report.records), report.selected) == ("diverged", 1, 0)
    assert "epoch 1" in report.reason
    assert all(torch.isfinite(value).all() for value in weights(net).values())
    assert same(checkpoints.load_weights(str(tmp_path / checkpoints.MODEL)), weights(net))
    assert not same(weights(net), weights(network()))
    again = run(network(), method=Diverging(), storage=str(tmp_path))
    assert (again.stopped, again.reason) == (report.stopped, report.reason)


def test_divergence_in_the_first_epoch_leaves_the_weights_as_they_were() -> None:
    net = network()
    report = run(net, method=method_from("erm"), lr=1e30)
    assert (report.stopped, report.selected, report.records) == ("diverged", None, ())
    assert same(weights(net), weights(network()))


def test_the_selected_epoch_is_the_best_on_the_held_out_split() -> None:
    report = run(network(), lr=0.3, epochs=5, holdout=0.3, select="worst-class", method=method_from("erm"))
    scores = [record.validation.accuracy("worst-class") for record in report.records if record.validation]
    assert report.selected == scores.index(max(scores))
    assert sum(report.records[0].train.total) == 84


@pytest.mark.parametrize(("method", "by"), [("erm", "clean"), ("pgd", "robust")])
def test_with_a_held_out_split_the_best_epoch_is_kept_unless_told_otherwise(method: str, by: str) -> None:
    quick = {"attack": {"epsilon": 0.1, "step": 0.1, "steps": 1}, "batch": 40}
    chosen = method_from(method if method == "erm" else {"name": method, "budget": quick["attack"]})
    options: dict[str, Any] = {"method": chosen, "lr": 1.0, "epochs": 4, "validation": samples(40, 1), **quick}
    report = run(network(), **options)
    scores = [record.validation.accuracy(by) for record in report.records if record.validation]
    assert report.selected == scores.index(max(scores)) != 3
    assert run(network(), recipe=Recipe(select="last"), **options).selected == 3
    assert f'"select": "{by}"' in report.recipe


def test_adamw_has_no_nesterov() -> None:
    with pytest.raises(ConfigError, match=r"no nesterov with adamw; leave it out, or take sgd"):
        Recipe().changed(optimizer="adamw", nesterov=True)
    assert "optimizer" not in Recipe().canonical() and "adamw" in Recipe(optimizer="adamw").canonical()


def test_patience_stops_early() -> None:
    report = run(network(), epochs=20, lr=1e-9, holdout=0.3, select="clean", patience=2)
    assert report.stopped == "early-stop" and len(report.records) == 3 and report.selected == 0
    assert "2 epochs" in report.reason


@pytest.mark.parametrize(
    "knobs", [{"select": "robust"}, {"patience": 1}, {"method": method_from("wat")}, {"averaging": "fair-ema"}]
)
def test_what_needs_a_held_out_split_says_so_before_training(knobs: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="held-out split"):
        run(network(), **knobs)


def test_another_run_in_the_same_storage_is_refused(tmp_path: Path) -> None:
    run(network(), epochs=1, storage=str(tmp_path))
    for change in ({"lr": 0.2}, {"method": method_from("erm")}, {"data": samples(seed=5)}):
        with pytest.raises(ConfigError, match="this very run"):
            run(network(), **{"epochs": 1, "storage": str(tmp_path), **change})


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    run(network(), epochs=1, storage=str(tmp_path))
    path = tmp_path / checkpoints.PROGRESS
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(StorageError, match="complete safetensors file"):
        run(network(), epochs=1, storage=str(tmp_path))


def test_selected_weights_that_cannot_be_read_just_now_cost_no_progress(tmp_path: Path) -> None:
    run(network(), epochs=1, storage=str(tmp_path))
    path = tmp_path / checkpoints.MODEL
    kept = path.rename(tmp_path / "kept")
    path.symlink_to(path)  # root reads whatever the permissions; nobody opens a link to itself
    with pytest.raises(StorageError, match="a readable file") as output:
        run(network(), epochs=1, storage=str(tmp_path))
    assert not output.value.problems[0].remedy
    kept.replace(path)
    assert run(network(), epochs=1, storage=str(tmp_path)).resumed_at == 1


def test_a_foreign_file_in_the_place_of_a_checkpoint_is_named(tmp_path: Path) -> None:
    checkpoints.save_weights(str(tmp_path / checkpoints.PROGRESS), network().state_dict())
    with pytest.raises(StorageError, match="the progress of a training run, found one without identity"):
        run(network(), epochs=1, storage=str(tmp_path))


def test_unknown_knobs_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"recipe\.leraning_rate"):
        run(network(), leraning_rate=1)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda x, y: (x * 255, y), "divide by 255"),
        (lambda x, y: (x[:, 0], y), "channels second"),
        (lambda x, y: (x, y[:-1]), "one label an image"),
        (lambda x, y: (x, np.where(y == 2, 3, y)), "none of class"),
        (lambda x, y: (x, y - 1), "outside"),
        (lambda x, y: (x, y + 0.5), "whole numbers"),
        (lambda x, y: (np.where(x > 0.5, np.nan, x), y), "in \\[0, 1\\]"),
    ],
)
def test_malformed_data_is_named_before_training(change: Any, match: str) -> None:
    with pytest.raises(SourceError, match=match):
        run(network(), data=change(*samples()))


def test_bfloat16_and_channels_last_train_close_to_plain() -> None:
    knobs: list[dict[str, Any]] = [{}, {"precision": "bfloat16"}, {"channels_last": True}]
    losses = [run(network(), epochs=1, **each).records[0].loss_sum for each in knobs]
    assert losses[1] == pytest.approx(losses[0], rel=0.05) and losses[1] != losses[0]
    assert losses[2] == pytest.approx(losses[0], rel=1e-3)


def test_normalisation_stays_out_of_the_weights() -> None:
    x, y = samples()
    plain, normal = network(), network()
    run(plain, data=((x - 0.4) / 2 + 0.4, y), epochs=1, method=method_from("erm"))
    run(normal, data=(x, y), epochs=1, method=method_from("erm"), mean=(-0.4,), std=(2.0,))
    assert normal.state_dict().keys() == plain.state_dict().keys()
    expected = network()
    run(expected, data=((x + 0.4) / 2, y), epochs=1, method=method_from("erm"))
    for name, value in weights(expected).items():
        assert weights(normal)[name] == pytest.approx(value, abs=1e-5)


def test_the_default_schedule_is_that_of_the_paper() -> None:
    recipe = Recipe()
    rates = [recipe.rate(epoch) for epoch in (0, 74, 75, 89, 90, 99)]
    assert rates == pytest.approx([0.01, 0.01, 0.001, 0.001, 0.0001, 0.0001])
    assert (recipe.momentum, recipe.weight_decay, recipe.epochs) == (0.9, 3.5e-3, 100)


def test_other_schedules() -> None:
    assert Recipe(schedule="cosine", epochs=10, lr=1).rate(5) == pytest.approx(0.5)
    assert Recipe(schedule="constant", epochs=10).rate(9) == 0.01
    assert [Recipe(warmup=4, lr=1).rate(epoch) for epoch in range(5)] == pytest.approx([0.25, 0.5, 0.75, 1, 1])
    assert [Recipe(ramp=2).strength(epoch, step, 4) for epoch, step in ((0, 0), (1, 3), (5, 0))] == [0.125, 1, 1]


def test_equal_weights_are_equal_files(tmp_path: Path) -> None:
    weights = network().state_dict()
    for name in "abcdefgh":
        checkpoints.save_weights(str(tmp_path / name), weights, {"epoch": 1})
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1
