"""CVaR and EVaR of the loss over random perturbations."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from services.training.losses.pairs import draw_losses
from services.training.methods import method_from
from services.training.step import Batch
from tests.services.training.methods.linear_case import Case, cvar


def test_cvar_has_the_gradient_of_all_draws() -> None:
    case, method = Case(), method_from({"name": "cvar", "radius": 0.2})
    method.step(case.network, case.batch()).loss.backward()  # type: ignore[no-untyped-call]
    weight = case.network[1].weight
    assert isinstance(weight, torch.Tensor) and weight.grad is not None
    h = 1e-6
    for k, d in ((0, 0), (2, 5)):
        values = []
        for sign in (1, -1):
            case.w[k, d] += sign * h
            values.append(cvar(case))
            case.w[k, d] -= sign * h
        assert (values[0] - values[1]) / (2 * h) == pytest.approx(float(weight.grad[k, d]), rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("layer", [torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.Identity()], ids=repr)
def test_cvar_is_that_of_all_draws_in_training_mode(layer: torch.nn.Module) -> None:
    """Ranked in evaluation mode, other draws were the worst ones and the gradient was another (cosine .30 to .93)."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), layer, nn.ReLU(), nn.Linear(8, 3))
    network.train()
    images, labels = torch.rand(6, 3, 2, 2), torch.tensor([0, 1, 2, 0, 1, 2])
    method = method_from({"name": "cvar", "radius": 0.3, "draws": 10, "tail": 0.2})

    def batch() -> Batch:
        return Batch(images, labels, 3, torch.Generator().manual_seed(5))

    def gradient(loss: torch.Tensor) -> torch.Tensor:
        network.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        return torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])

    torch.manual_seed(1)
    ours = gradient(method.step(network, batch()).loss)
    torch.manual_seed(1)
    every = draw_losses(network, batch(), "uniform", 0.3, 10)
    worst = gradient(every.topk(2, dim=1).values.mean())
    torch.testing.assert_close(ours, worst, rtol=1e-4, atol=1e-6)
