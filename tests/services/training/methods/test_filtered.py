"""TRADES on the samples that are not safe."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from services.training.losses.pairs import filtered_terms
from services.training.methods import method_from
from services.training.step import Batch, Budget
from tests.services.training.methods.linear_case import BUDGET, Case, K, N


@pytest.mark.parametrize("by", ["loss", "lead"])
def test_filtered_trades_leaves_out_safe_samples_and_only_those(by: str) -> None:
    case = Case()
    at = case.attacked("kl", steps=1)
    probed, own = case.p(at), np.eye(K, dtype=bool)[case.y]
    ahead = probed[own] - np.where(own, 0, probed).max(1) >= 0.5
    open_rows = ~ahead if by == "lead" else case.ce(at) >= case.ce(case.x)
    assert 0 < open_rows.sum() < N
    want = np.mean(case.ce(case.x) + 6 * open_rows * case.kl(case.attacked("kl")))
    method = method_from({"name": "filtered-trades", "base": {"budget": BUDGET}, "by": by, "probe": 1})
    assert float(method.step(case.network, case.batch()).loss.detach()) == pytest.approx(want, rel=1e-6)


def test_filtered_trades_goes_on_with_a_single_sample_before_maps_of_one_pixel() -> None:
    """0.1.0: "Expected more than 1 value per channel when training"."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 2), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4, 2)
    )
    images = torch.rand(4, 1, 2, 2)
    budget = Budget(epsilon=0.1, step=0.05, steps=3)
    batch = Batch(images, torch.tensor([0, 1, 0, 1]), 2, torch.Generator().manual_seed(0))

    def only_the_third(clean: torch.Tensor, probed: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return torch.tensor([False, False, True, False])

    loss, clean = filtered_terms(network, batch, budget, 6.0, 1, only_the_third)
    plain = torch.nn.functional.cross_entropy(clean, batch.labels, reduction="none")
    assert (loss == plain).tolist() == [True, True, False, True] and loss[2] > plain[2]
