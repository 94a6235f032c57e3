"""What methods compute from a batch: logits of clean and perturbed images, and losses of one value a sample."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from services.training.losses.attack import (
    ascended,
    box,
    by_cross_entropy,
    by_divergence,
    craft,
    evaluating,
    started,
)
from services.training.losses.perturbations import Kind, draws
from services.training.losses.risk import cvar_weights, likelihood_ball_weights
from services.training.losses.terms import cross_entropies, divergence, margin, of_class, per_class
from services.training.step import Batch, Budget

OpenRows = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Which samples (n,) bool a filter lets pass, from clean logits, perturbed logits and labels."""


def craft_by_loss(
    network: nn.Module, batch: Batch, budget: Budget, *, epsilon: Tensor | None = None, step: Tensor | None = None
) -> Tensor:
    """Images perturbed to raise the cross-entropy."""
    objective, budget = by_cross_entropy(batch.labels), budget.scaled(batch.strength)
    return craft(network, batch.images, objective, budget, batch.generator, epsilon=epsilon, step=step)


def craft_by_divergence(
    network: nn.Module, batch: Batch, budget: Budget, *, epsilon: Tensor | None = None, step: Tensor | None = None
) -> Tensor:
    """Images perturbed to raise the divergence from the clean output, both in evaluation mode."""
    with evaluating(network), torch.no_grad():
        clean = network(batch.images)
    objective, budget = by_divergence(clean), budget.scaled(batch.strength)
    return craft(network, batch.images, objective, budget, batch.generator, epsilon=epsilon, step=step)


def adversarial_pair(network: nn.Module, batch: Batch, budget: Budget) -> tuple[Tensor, Tensor]:
    """Logits of the clean and of the perturbed images, in training mode."""
    perturbed = craft_by_loss(network, batch, budget)
    return network(batch.images), network(perturbed)


def trades_terms(network: nn.Module, batch: Batch, budget: Budget, beta: float) -> tuple[Tensor, Tensor, Tensor]:
    """`CE(clean) + beta KL(clean || robust)`, (n,), and both logits."""
    perturbed = craft_by_divergence(network, batch, budget)
    clean, robust = network(batch.images), network(perturbed)
    return cross_entropies(clean, batch.labels) + beta * divergence(clean, robust), clean, robust


def base_terms(
    network: nn.Module, batch: Batch, base: str, budget: Budget, beta: float
) -> tuple[Tensor, Tensor | None, Tensor]:
    """The loss of TRADES or of PGD training, (n,), the clean logits where there are any, and the robust ones."""
    if base == "trades":
        return trades_terms(network, batch, budget, beta)
    robust = network(craft_by_loss(network, batch, budget))
    return cross_entropies(robust, batch.labels), None, robust


def class_wise_terms(
    network: nn.Module, batch: Batch, budget: Budget, radii: tuple[float, ...], betas: tuple[float, ...] | None
) -> tuple[Tensor, Tensor | None, Tensor]:
    """CFA's loss (n,): PGD with the radius of each class, or with `betas` TRADES, normalised by 1 + beta_k."""
    epsilon = of_class(radii, batch.labels) * batch.strength
    if betas is None:
        robust = network(craft_by_loss(network, batch, budget, epsilon=epsilon))
        return cross_entropies(robust, batch.labels), None, robust
    perturbed = craft_by_divergence(network, batch, budget, epsilon=epsilon)
    clean, robust = network(batch.images), network(perturbed)
    beta = of_class(betas, batch.labels)
    loss = (cross_entropies(clean, batch.labels) + beta * divergence(clean, robust)) / (1 + beta)
    return loss, clean, robust


def filtered_terms(
    network: nn.Module, batch: Batch, budget: Budget, beta: float, probe: int, open_rows: OpenRows
) -> tuple[Tensor, Tensor]:
    """TRADES' loss (n,), its divergence only for samples still open after `probe` steps; and the clean logits."""
    with evaluating(network), torch.no_grad():
        reference = network(batch.images)
    budget = budget.scaled(batch.strength)
    low, high = box(batch.images, budget.epsilon)
    at = started(batch.images, budget.epsilon, low, high, batch.generator) if budget.random_start else batch.images
    first = min(probe, budget.steps)
    at = ascended(network, at, by_divergence(reference), budget.step, first, low, high)
    with evaluating(network), torch.no_grad():
        rows = torch.nonzero(open_rows(reference, network(at), batch.labels))[:, 0]
    clean = network(batch.images)
    loss = cross_entropies(clean, batch.labels)
    if not len(rows):
        return loss, clean
    objective, left = by_divergence(reference[rows]), budget.steps - first
    at = ascended(network, at[rows], objective, budget.step, left, low[rows], high[rows])
    beside = batch.images[rows] if len(rows) == 1 else at[:0]  # a batch norm of 1 x 1 maps needs two values
    robust = network(torch.cat([beside, at]))[len(beside) :]
    return loss.index_add(0, rows, beta * divergence(clean[rows], robust)), clean


def hurt(clean: Tensor, probed: Tensor, labels: Tensor) -> Tensor:
    """Samples (n,) bool whose cross-entropy the perturbation did not lower."""
    return cross_entropies(probed, labels) >= cross_entropies(clean, labels)


def unsafe(clean: Tensor, probed: Tensor, labels: Tensor, *, gap: float) -> Tensor:
    """Samples (n,) bool whose label does not lead by `gap` in probability under the perturbation; all of them at 1."""
    return -margin(F.softmax(probed, dim=1), labels) < gap if gap < 1 else torch.ones_like(labels, dtype=torch.bool)


def draw_losses(network: nn.Module, batch: Batch, kind: Kind, radius: float, count: int) -> Tensor:
    """Cross-entropies (n, count) of random perturbations."""
    images = draws(batch.images, kind, radius, count, batch.generator)
    return cross_entropies(network(images), batch.labels.repeat_interleave(count)).view(-1, count)


def tail_loss(network: nn.Module, batch: Batch, kind: Kind, radius: float, count: int, tail: float) -> Tensor:
    """Mean over samples of the exact empirical CVaR of their draws.

    Where a draw's loss depends on no other and on no chance, draws are ranked without gradients and only those with
    weight are differentiated; else all pass together in training mode, for others would be the worst ones otherwise.
    """
    if not _row_by_row(network):
        losses = draw_losses(network, batch, kind, radius, count)
        return (cvar_weights(losses.detach(), tail) * losses).sum(1).mean()
    images = draws(batch.images, kind, radius, count, batch.generator)
    labels = batch.labels.repeat_interleave(count)
    with evaluating(network), torch.no_grad():
        losses = torch.cat([cross_entropies(network(x), y) for x, y in _chunks(images, labels, len(batch.labels))])
    weights = cvar_weights(losses.view(-1, count), tail).flatten()
    rows = torch.nonzero(weights)[:, 0]
    kept = cross_entropies(network(images[rows]), labels[rows])
    return (weights[rows] * kept).sum() / len(batch.labels)


def _row_by_row(network: nn.Module) -> bool:
    """Whether an image's logits in training mode are those of evaluation mode, whatever else is in the batch."""
    kinds = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)
    return not any(isinstance(module, kinds) or "drop" in type(module).__name__.lower() for module in network.modules())


def worst_distribution(losses: Tensor, judged: Tensor, labels: Tensor, classes: int, tau: float) -> Tensor:
    """`sum_k q_k L_k` with the class distribution q, `KL(uniform || q) <= tau`, that makes `judged` largest (FAAL).

    L_k and what is judged are means of the values (n,) over a class; classes that the labels lack take no part.
    """
    means, counts = per_class(losses, labels, classes)
    present = torch.nonzero(counts)[:, 0]
    scores = per_class(judged.detach(), labels, classes)[0]
    weights = likelihood_ball_weights(scores[present][None], tau)[0]
    return (weights * means[present]).sum()


def _chunks(images: Tensor, labels: Tensor, size: int) -> list[tuple[Tensor, Tensor]]:
    return list(zip(torch.split(images, size), torch.split(labels, size), strict=True))
