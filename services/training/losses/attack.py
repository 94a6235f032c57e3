"""The inner maximisation of adversarial training: projected sign-gradient ascent in the Linf ball.

For training only. Audits attack by `services.measures`, where noise is keyed by sample and a broken sample stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from services.training.step import Budget

Objective = Callable[[Tensor], Tensor]
"""Maps logits (n, K) to the scalar that the attack makes large; a sum over samples, so samples do not interact."""


def by_cross_entropy(labels: Tensor) -> Objective:
    """`sum_i CE(z_i, y_i)`."""
    return lambda logits: F.cross_entropy(logits, labels, reduction="sum")


def by_divergence(clean: Tensor) -> Objective:
    """`sum_i KL(softmax(clean_i) || softmax(z_i))`, the attack of TRADES (Zhang et al. 2019, eq. 3)."""
    reference = F.log_softmax(clean.detach(), dim=1)
    return lambda logits: F.kl_div(F.log_softmax(logits, dim=1), reference, reduction="sum", log_target=True)


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Evaluation mode inside, the former mode after: crafting must not move batch-norm statistics or draw dropout."""
    training = network.training
    network.train(False)
    try:
        yield
    finally:
        network.train(training)


def craft(
    network: nn.Module,
    images: Tensor,
    objective: Objective,
    budget: Budget,
    generator: torch.Generator,
    *,
    epsilon: Tensor | None = None,
    step: Tensor | None = None,
) -> Tensor:
    """Perturbed images that make `objective` large, crafted in evaluation mode.

    Args:
        images: (n, C, H, W) in [0, 1].
        objective: of the logits, summed over samples.
        budget: radius, step, steps, start.
        generator: of the random start, on the images' device.
        epsilon, step: (n,) radii and steps that replace the budget's, for class-wise budgets.

    Returns:
        (n, C, H, W), detached, within the Linf ball of each image and within [0, 1].
    """
    radius = budget.epsilon if epsilon is None else epsilon.view(-1, 1, 1, 1)
    low, high = box(images, radius)
    perturbed = started(images, radius, low, high, generator) if budget.random_start else images.clone()
    length = budget.step if step is None else step.view(-1, 1, 1, 1)
    return ascended(network, perturbed, objective, length, budget.steps, low, high)


def box(images: Tensor, radius: float | Tensor) -> tuple[Tensor, Tensor]:
    """Lower and upper end of the Linf ball within [0, 1]."""
    return (images - radius).clamp_(min=0), (images + radius).clamp_(max=1)


def started(images: Tensor, radius: float | Tensor, low: Tensor, high: Tensor, generator: torch.Generator) -> Tensor:
    """A random start: uniform in the Linf ball, clipped to [0, 1]."""
    noise = torch.empty_like(images).uniform_(-1, 1, generator=generator)
    return torch.clamp(noise.mul_(radius).add_(images), low, high)


def ascended(
    network: nn.Module, at: Tensor, objective: Objective, step: float | Tensor, steps: int, low: Tensor, high: Tensor
) -> Tensor:
    """`steps` of `x <- clip(x + step * sign(gradient), low, high)` in evaluation mode."""
    with evaluating(network):
        for _ in range(steps):
            at, _ = ascend(network, at, objective, step, low, high)
    return at


def ascend(
    network: nn.Module, at: Tensor, objective: Objective, step: float | Tensor, low: Tensor, high: Tensor
) -> tuple[Tensor, Tensor]:
    """One such step in the network's present mode: the images it leads to, and the logits of those it starts from."""
    at = at.detach().requires_grad_()
    with torch.enable_grad():
        logits = network(at)
        (gradient,) = torch.autograd.grad(objective(logits), at)
    return torch.add(at.detach(), gradient.sign_().mul_(step)).clamp_(low, high), logits.detach()
