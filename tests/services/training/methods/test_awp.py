"""Adversarial weight perturbation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from services.training.methods import method_from
from services.training.step import Batch
from tests.services.training.methods.linear_case import BUDGET, Case, K, N, raised


def awp_pgd(case: Case) -> float:
    at = case.attacked("ce")
    gradient = (case.p(at) - np.eye(K)[case.y]).T @ at / N
    return float(raised(case, 0.01, gradient).ce(at).mean())


def test_awp_around_pgd_has_the_gradient_at_the_raised_weights() -> None:
    case, method = Case(), method_from({"name": "awp", "base": "pgd", "budget": BUDGET})
    loss = method.step(case.network, case.batch()).loss
    loss.backward()  # type: ignore[no-untyped-call]
    at = case.attacked("ce")
    moved = raised(case, 0.01, (case.p(at) - np.eye(K)[case.y]).T @ at / N)
    assert float(loss.detach()) == pytest.approx(awp_pgd(case), rel=1e-6)
    weight = case.network[1].weight
    assert isinstance(weight, torch.Tensor) and weight.grad is not None
    assert weight.detach().numpy() == pytest.approx(case.w)
    assert weight.grad.numpy() == pytest.approx((moved.p(at) - np.eye(K)[case.y]).T @ at / N, rel=1e-6, abs=1e-9)


def test_awp_counts_one_pass_in_batch_norm() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 4, 2), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2)).train()
    batch = Batch(torch.rand(6, 1, 3, 3), torch.tensor([0, 1] * 3), 2, torch.Generator().manual_seed(0))
    method_from({"name": "awp", "base": "pgd"}).step(network, batch).loss.backward()  # type: ignore[no-untyped-call]
    assert network[1].num_batches_tracked == 1
