"""Margins, brokenness and ascent directions against naive computation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from services.measures.attacks.margins import SMALLEST, ascent, gradient, margins, passes


def test_margins_equal_the_naive_loop() -> None:
    logits, labels = torch.randn(50, 7), torch.randint(0, 7, (50,))
    naive = [
        row[y] - max(v for k, v in enumerate(row) if k != y) for row, y in zip(logits.tolist(), labels, strict=True)
    ]
    assert margins(logits, labels).tolist() == pytest.approx(naive, abs=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_logits_that_are_not_finite_never_resist(bad: float, place: int) -> None:
    logits = torch.tensor([[5.0, 1.0, 0.0]])
    logits[0, place] = bad
    assert not (margins(logits, torch.tensor([0])) > 0).item()


def test_a_tie_does_not_resist() -> None:
    assert not (margins(torch.tensor([[2.0, 2.0]]), torch.tensor([0])) > 0).item()


def test_ascent_is_the_gradient_of_each_loss() -> None:
    logits, labels = torch.randn(20, 5, dtype=torch.float64, requires_grad=True), torch.randint(0, 5, (20,))
    (slope,) = torch.autograd.grad(F.cross_entropy(logits, labels, reduction="sum"), logits)
    ours = ascent(logits.detach(), labels, "ce")
    scale = slope.abs().amax(dim=1, keepdim=True)
    assert torch.allclose(ours, slope / scale, atol=1e-9)
    (slope,) = torch.autograd.grad(-margins(logits, labels).sum(), logits)
    assert torch.equal(ascent(logits.detach(), labels, "margin"), slope)


def test_a_saturated_softmax_still_has_a_direction() -> None:
    logits, labels = torch.tensor([[200.0, 0.0, -3.0]], requires_grad=True), torch.tensor([0])
    (vanished,) = torch.autograd.grad(F.cross_entropy(logits, labels), logits)
    assert vanished.abs().max() == 0
    direction = ascent(logits.detach(), labels, "ce")
    assert direction[0, 0] == -1
    assert direction[0, 1].item() == pytest.approx(1 / (1 + math.exp(-3)))


def test_small_batches_are_filled_up_and_cut_again() -> None:
    sizes: list[int] = []

    def network(images: torch.Tensor) -> torch.Tensor:
        sizes.append(len(images))
        return images.flatten(1).cumsum(1)

    images = torch.rand(SMALLEST + 3, 1, 2, 2)
    for n in (1, 3, SMALLEST, SMALLEST + 3):
        assert torch.equal(passes(network, images[:n]), images[:n].flatten(1).cumsum(1))
    assert sizes == [SMALLEST, SMALLEST, SMALLEST, SMALLEST + 3]


def test_gradient_is_right_through_the_filling_and_never_nan() -> None:
    images = torch.rand(2, 1, 2, 2, requires_grad=True)
    logits = passes(lambda x: x.flatten(1).square(), images)
    slope = gradient(logits, images, torch.ones_like(logits))
    assert torch.allclose(slope, 2 * images.detach())
    zero = torch.zeros(1, 1, 1, 1, requires_grad=True)
    assert gradient(zero.flatten(1).sqrt() * 0, zero, torch.ones(1, 1)).item() == 0
    assert np.isfinite(slope.numpy()).all()


def test_a_gradient_that_is_one_number_for_all_pixels_can_be_stepped_along() -> None:
    """Of a network cut off from its images but for their sum, autograd gives a view of a single entry."""
    images = torch.rand(3, 1, 4, 4, requires_grad=True)
    slope = gradient(torch.ones(3, 2) * images.sum() * 0, images, torch.ones(3, 2))
    assert slope.sign_().shape == images.shape and not slope.any()
