"""What only a real GPU shows: the same verdicts as on the CPU, memory that runs out, training that moves between both.

`pytest -m gpu`; needs neither Ray nor MLflow.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from services.loading.samples.source import open_samples
from services.measures.pgd import Pgd
from services.measures.probabilistic import Pr
from services.measures.radius import Radius
from services.records import ModelSpec, SampleSpec, ShardTask
from services.running.workers import Worker
from services.storage.shards import read_shard
from services.training.architectures import small_cnn
from services.training.epochs.loop import train
from services.training.methods import method_from

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"),
]
DIGITS = SampleSpec("sklearn:digits?split=train")


class Hungry(nn.Module):
    """Needs a GiB an image for a moment."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        waste = torch.zeros(len(x), 1 << 28, device=x.device)
        return x.flatten(1)[:, :10] + waste[:, :10]


def hungry() -> Hungry:
    return Hungry()


def fitted(device: str, **knobs: Any) -> tuple[nn.Module, Any]:
    samples = open_samples(DIGITS)
    torch.manual_seed(0)
    network = small_cnn(width=8)
    method = method_from({"name": "pgd", "budget": {"epsilon": 0.1, "step": 0.03, "steps": 5}})
    options = {"epochs": 15, "batch": 64, "lr": 0.1, "weight_decay": 1e-4, **knobs}
    images = samples.images(0, len(samples))
    return network, train(network, images, samples.labels, method=method, device=device, **options)


def test_attacks_and_draws_on_the_gpu_end_as_on_the_cpu() -> None:
    network, _ = fitted("cuda")
    samples = open_samples(SampleSpec("sklearn:digits?split=test"))
    images, labels = torch.from_numpy(samples.images(0, 300)), torch.from_numpy(samples.labels[:300])
    for measure in (Pgd(epsilons=(0.05, 0.1)), Pr(radii=(0.2,), draws=50), Radius(draws=500)):
        results = []
        for device in ("cuda", "cpu"):
            moved = network.to(device)
            results.append(measure.from_model(moved, images.to(device), labels.to(device), np.arange(300), seed=0))
        for series in measure.series():
            gpu, cpu = (columns[series.key].astype(float) for columns in results)
            assert (np.abs(gpu - cpu) > 0.03 * series.bound).mean() <= 0.02, series.key
            assert 0 < cpu.mean() < series.bound


def test_a_batch_too_large_for_the_card_is_halved(tmp_path: Path) -> None:
    free = torch.cuda.mem_get_info()[0] >> 30
    model, target = ModelSpec("hungry", f"factory:{__name__}:hungry"), str(tmp_path / "logits.parquet")
    task = ShardTask("logits", model, DIGITS, 0, 4 * free, 0, 4 * free, target=target)
    Worker("cuda", 1, (__name__,)).run(task)
    assert read_shard(target)["logits"].shape == (4 * free, 10)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_training_on_the_gpu_learns_and_goes_on_where_it_was(precision: str, tmp_path: Path) -> None:
    knobs = {"precision": precision, "channels_last": True}
    _, whole = fitted("cuda", storage=str(tmp_path / "whole"), **knobs)
    losses = [record.loss_sum / record.samples for record in whole.records]
    assert losses[-1] < 0.8 * losses[0]
    with pytest.raises(KeyboardInterrupt):
        fitted("cuda", storage=str(tmp_path / "cut"), on_epoch=stop_after_three, **knobs)
    _, resumed = fitted("cpu" if precision == "float32" else "cuda", storage=str(tmp_path / "cut"), **knobs)
    assert resumed.resumed_at == 3
    last = resumed.records[-1].loss_sum / resumed.records[-1].samples
    assert last == pytest.approx(losses[-1], rel=0.25)


def stop_after_three(record: Any) -> None:
    if record.epoch == 2:
        raise KeyboardInterrupt
