"""Workers that share batches: each row once, counts that add up, one worker undisturbed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from services.training.counts import ClassCounts
from services.training.data.batches import Epoch, Images
from services.training.epochs.peers import Alone, added


@pytest.mark.parametrize(("count", "batch", "workers"), [(64, 16, 2), (67, 16, 3), (33, 16, 2), (35, 16, 2)])
def test_the_parts_of_a_batch_are_the_batch_of_one_worker(count: int, batch: int, workers: int) -> None:
    rng = np.random.default_rng(0)
    data = Images(rng.random((count, 1, 4, 4)).astype(np.float32), np.arange(count) % 3, torch.device("cpu"))
    options = {"batch": batch, "seed": 5, "epoch": 2, "crop": 1, "flip": True}
    parts = [list(Epoch(data, **options, part=(rank, workers))) for rank in range(workers)]  # type: ignore[arg-type]
    sizes = [len(labels) for part in parts for _, labels in part]
    assert min(sizes) >= 2 and sum(sizes) == count
    whole = Epoch(data, **options)  # type: ignore[arg-type]
    joined = [torch.cat([part[step][0] for part in parts]) for step in range(len(parts[0]))]
    assert torch.equal(torch.cat(joined), torch.cat([images for images, _ in whole]))
    if count % batch == 0 or count % batch >= 2 * workers:
        assert [len(images) for images in joined] == [len(images) for images, _ in whole]


def test_counts_of_workers_are_added_and_unknown_stays_unknown() -> None:
    first = ClassCounts((2, 3), (1, 2), None, (0.5, 0.25), (1.5, 0.5, 1.0, 2.0))
    two = ClassCounts((1, 0), (1, 0), (0, 0), (0.5, 0.0), (0.25, 0.75, 0.0, 0.0))
    assert added([first, two]) == ClassCounts((3, 3), (2, 2), None, (1.0, 0.25), (1.75, 1.25, 1.0, 2.0))
    assert added([first]) is first


def test_one_worker_averages_with_nobody() -> None:
    tensor = torch.ones(3)
    Alone().average([tensor], 0.5)
    assert torch.equal(tensor, torch.ones(3))
    assert (Alone().gather("x"), Alone().agree("x")) == (["x"], "x")
