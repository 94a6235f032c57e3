"""From images in [0, 1] to logits: order of operations, adapters, gradients."""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from services.errors import PreflightError
from services.loading.models.contract import ContractedNetwork, Graphable
from services.records import InputContract

IMAGES = torch.rand(4, 3, 6, 6, generator=torch.Generator().manual_seed(0))


class Sums(nn.Module):
    """Sums over pixels: a network whose output is easy to write down."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(dim=(2, 3))


def test_range_comes_before_normalisation() -> None:
    contract = InputContract(low=-1, high=3, mean=(0.1, 0.2, 0.3), std=(2.0, 3.0, 4.0))
    prepared = ContractedNetwork(Sums(), contract).prepare(IMAGES)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (contract.mean, contract.std))
    assert torch.allclose(prepared, (IMAGES * 4 - 1 - mean) / std)


def test_size_and_channels() -> None:
    grey = ContractedNetwork(Sums(), InputContract(size=(3, 4), channels=1)).prepare(IMAGES)
    assert grey.shape == (4, 1, 3, 4)
    colour = ContractedNetwork(Sums(), InputContract(channels=3)).prepare(IMAGES[:, :1])
    assert torch.equal(colour[:, 2], IMAGES[:, 0])


@pytest.mark.parametrize(
    ("returned", "output"),
    [
        (lambda z: (z * 0, z), 1),
        (lambda z: {"aux": z * 0, "logits": z}, "logits"),
        (lambda z: OrderedDict(logits=z), "logits"),
        (lambda z: SimpleNamespace(logits=z), "logits"),
    ],
)
def test_output_is_picked(returned: Any, output: str | int) -> None:
    network = ContractedNetwork(lambda x: returned(x.sum(dim=(2, 3))), InputContract(), "logits", output)
    assert torch.equal(network(IMAGES), IMAGES.sum(dim=(2, 3)))


@pytest.mark.parametrize(
    ("returned", "output", "message"),
    [
        (lambda z: (z, z), None, "one tensor of logits .* found a tuple of 2; set `output`"),
        (lambda z: {"a": z}, None, "found a dict with keys 'a'"),
        (lambda z: {"a": z}, "b", "an output 'b', found a dict with keys 'a'"),
        (lambda z: SimpleNamespace(a=z), None, "found a SimpleNamespace"),
        (lambda z: z[:, :, None], None, r"logits \(n, K\), found shape \(4, 3, 1\) for 4 images"),
        (lambda z: z[:2], None, r"shape \(2, 3\) for 4 images"),
    ],
)
def test_other_outputs_are_named(returned: Any, output: Any, message: str) -> None:
    network = ContractedNetwork(lambda x: returned(x.sum(dim=(2, 3))), InputContract(), "logits", output, "m")
    with pytest.raises(PreflightError, match=message):
        network(IMAGES)


def test_probabilities_become_finite_logits() -> None:
    probabilities = torch.tensor([[1.0, 0.0], [0.25, 0.75]])
    network = ContractedNetwork(lambda x: probabilities, InputContract(), "probabilities")
    logits = network(IMAGES[:2])
    assert torch.isfinite(logits).all()
    assert torch.allclose(logits.softmax(dim=1), probabilities)
    unchanged = ContractedNetwork(lambda x: probabilities.log(), InputContract(), "log-probabilities")
    assert torch.equal(unchanged(IMAGES[:2]), probabilities.log())


def test_half_precision_is_returned_as_float32() -> None:
    network = ContractedNetwork(lambda x: x.sum(dim=(2, 3)).half(), InputContract())
    assert network(IMAGES).dtype == torch.float32


def test_always_evaluation_mode_without_parameter_gradients() -> None:
    inner = nn.Sequential(nn.Dropout(0.5), nn.Flatten(), nn.Linear(108, 3))
    network = ContractedNetwork(inner, InputContract())
    network.train()
    assert not inner[0].training
    assert not any(parameter.requires_grad for parameter in network.parameters())
    images = IMAGES.clone().requires_grad_()
    network(images).sum().backward()
    assert images.grad is not None and images.grad.abs().sum() > 0


def test_offsets_are_added_to_the_logits_and_kept_under_another_contract() -> None:
    network = ContractedNetwork(Sums(), InputContract(), offsets=(1.0, 0.0, -2.0))
    plain = IMAGES.sum(dim=(2, 3))
    assert torch.equal(network(IMAGES), plain + torch.tensor([1.0, 0.0, -2.0]))
    assert torch.equal(network.under(InputContract(channels=3))(IMAGES), network(IMAGES))
    assert torch.equal(Graphable(network)(IMAGES), network(IMAGES))
    short = ContractedNetwork(Sums(), InputContract(), where="m", offsets=(1.0, 0.0))
    with pytest.raises(PreflightError, match=r"m \(offsets\): expected 3 numbers, one a class, found 2"):
        short(IMAGES)
