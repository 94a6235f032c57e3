"""A stop within an epoch: what is done is kept, and the run goes on behind it to the same bits."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from services.errors import Interrupted, StorageError
from services.training.data.images import checked
from services.training.epochs import checkpoints
from services.training.epochs.halfway import HALFWAY
from services.training.epochs.loop import epochs, prepared
from services.training.epochs.stopping import Stopping, never
from services.training.methods import method_from
from services.training.recipe import Recipe
from tests.services.training.epochs.small_runs import network, run, same, samples, weights


class Signalled(nn.Module):
    """A network that gets a signal in one of its forward passes, counted over training and judging."""

    def __init__(self, at: int, number: int = signal.SIGTERM) -> None:
        super().__init__()
        self.inner, self.at, self.number, self.calls = network(norm=True), at, number, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What the network gives."""
        self.calls += 1
        if self.calls == self.at:
            signal.raise_signal(self.number)
        logits: torch.Tensor = self.inner(x)
        return logits


class Gone(Exception):
    """What the handler of before raises."""


@pytest.fixture
def going() -> Iterator[None]:
    """SIGTERM and SIGINT raise, as the command line's handlers do."""

    def go(number: int, frame: Any) -> None:
        raise Gone

    before = [(number, signal.signal(number, go)) for number in (signal.SIGTERM, signal.SIGINT)]
    yield
    for number, handler in before:
        assert signal.getsignal(number) is go, "handlers are put back"
        signal.signal(number, handler)


STEERED: dict[str, Any] = {"method": method_from("pgd"), "epochs": 2, "batch": 16, "crop": 1, "lr": 0.02}
"""120 samples: eight steps an epoch of twelve forward passes each, then the judging."""


@pytest.mark.parametrize(
    ("at", "steps", "options"),
    [
        (40, 4, {"optimizer": "adamw", "averaging": {"kind": "step-ema", "start": 0, "decay": 0.9}}),
        (1, 1, {"averaging": {"kind": "ema", "start": 0}}),
        (90, 7, {"method": method_from({"name": "dafa", "warmup": 0.6}), "number": signal.SIGINT}),
        (100, 8, {"averaging": {"kind": "ema", "start": 0}}),
        (230, 8, {"averaging": {"kind": "swa", "start": 0}}),
    ],
    ids=["in a step", "in the first", "of classes", "while judged", "in the last judging"],
)
def test_a_signal_keeps_the_step_and_the_run_goes_on_to_the_same_bits(
    at: int, steps: int, options: dict[str, Any], going: None, tmp_path: Path
) -> None:
    number = options.pop("number", signal.SIGTERM)
    options = {**STEERED, "validation": samples(40, 1), "select": "robust", **options}
    whole, stopped, resumed = (Signalled(k, number) for k in (0, at, 0))
    expected = run(whole, **options)
    with pytest.raises(Gone):
        run(stopped, storage=str(tmp_path), **options)
    progress = checkpoints.load_progress(str(tmp_path))
    epoch = 0 if progress is None else len(progress.records)
    kept = checkpoints.load_tensors(str(tmp_path / HALFWAY))[1]
    assert (kept["epoch"], kept["steps"]) == (epoch, steps)
    report = run(resumed, storage=str(tmp_path), **options)
    assert resumed.calls < whole.calls and not (tmp_path / HALFWAY).exists()
    assert same(weights(resumed), weights(whole)) and report.selected == expected.selected
    for a, b in zip(report.records, expected.records, strict=True):
        assert replace(a, seconds=0, judging=0) == replace(b, seconds=0, judging=0)


def test_another_request_to_stop_keeps_the_step_too(tmp_path: Path) -> None:
    asked = iter([False] * 3 + [True] * 9)
    x, y = samples()
    data, recipe = checked(x, y, 4, "here"), Recipe(batch=16, epochs=1)
    ready = prepared(
        network(),
        data,
        None,
        method=method_from("erm"),
        recipe=recipe,
        storage=str(tmp_path),
        stopping=lambda: next(asked),
    )
    with pytest.raises(Interrupted, match=r"it goes on from the last step"):
        list(epochs(ready))
    assert checkpoints.load_tensors(str(tmp_path / HALFWAY))[1]["steps"] == 4


def test_steps_of_another_run_or_epoch_are_not_gone_on_from(going: None, tmp_path: Path) -> None:
    options = {**STEERED, "epochs": 1}
    with pytest.raises(Gone):
        run(Signalled(40), storage=str(tmp_path), **options)
    other, alone = (Signalled(0) for _ in range(2))
    run(other, storage=str(tmp_path), **{**options, "lr": 0.01})
    run(alone, **{**options, "lr": 0.01})
    assert same(weights(other), weights(alone)) and other.calls == alone.calls


def test_damaged_steps_are_an_error_with_advice(tmp_path: Path) -> None:
    (tmp_path / HALFWAY).write_bytes(b"half a file")
    with pytest.raises(StorageError, match=r"halfway.safetensors.*remove the file and train again"):
        run(network(), storage=str(tmp_path), epochs=1)
    checkpoints.save_weights(str(tmp_path / HALFWAY), {"a": torch.ones(1)})
    with pytest.raises(StorageError, match=r"expected the steps of an epoch, found a file without 'identity'"):
        run(network(), storage=str(tmp_path), epochs=1)


def test_a_signal_during_a_step_that_fails_is_delivered() -> None:
    """Else a sweep takes the trial for failed and begins the next one as if nobody had asked to stop."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), Stopping(never):
            signal.raise_signal(signal.SIGTERM)
            raise ValueError("a step that fails")
        assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGTERM, before)
