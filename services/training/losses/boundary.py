"""Where a perturbed image crosses the decision boundary, and how far beyond it lies."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from services.training.losses.attack import Objective, ascend, box, by_divergence, evaluating, started
from services.training.losses.pairs import craft_by_loss
from services.training.losses.terms import cross_entropies, divergence, from_uniform
from services.training.step import Batch, Budget


def farthest(network: nn.Module, batch: Batch, budgets: list[Budget], limit: int) -> Tensor:
    """Of one attack a budget on each image the perturbed image with the longest way back, the first of equals."""
    step = budgets[0].scaled(batch.strength).step
    best = craft_by_loss(network, batch, budgets[0])
    longest = way_back(network, best, batch.labels, step, limit)
    for budget in budgets[1:]:
        perturbed = craft_by_loss(network, batch, budget)
        way = way_back(network, perturbed, batch.labels, step, limit)
        best = torch.where(_wide(way > longest), perturbed, best)
        longest = torch.maximum(way, longest)
    return best


def way_back(network: nn.Module, images: Tensor, labels: Tensor, step: float, limit: int) -> Tensor:
    """Linf distance (n,) that signed gradient descent of the cross-entropy covers until the label is predicted.

    0 where it is predicted already. The way ends after `limit` steps, and leads outside the attack's ball if it must.
    """
    at, rows = images.clone(), torch.arange(len(labels), device=labels.device)
    low, high = torch.zeros_like(images), torch.ones_like(images)
    with evaluating(network):
        for _ in range(limit):
            objective = _by_label(labels[rows])
            moved, logits = ascend(network, at[rows], objective, step, low[rows], high[rows])
            wrong = logits.argmax(1) != labels[rows]
            rows = rows[wrong]
            if not len(rows):
                break
            at[rows] = moved[wrong]
    return (at - images).abs().flatten(1).amax(1)


def boundary_pair(network: nn.Module, batch: Batch, budget: Budget) -> tuple[Tensor, Tensor]:
    """Images before the boundary and beyond it, on the ascent of the divergence.

    Of the points of the ascent, its random start among them, the first of the pair is the last one before any is
    misclassified, or the start if that is misclassified already. The second is the second point that is misclassified,
    so a step beyond the crossing, or the end of the ascent.
    """
    labels, budget = batch.labels, budget.scaled(batch.strength)
    low, high = box(batch.images, budget.epsilon)
    at = started(batch.images, budget.epsilon, low, high, batch.generator)
    inside, crossed = at, torch.zeros_like(labels, dtype=torch.bool)
    with evaluating(network):
        with torch.no_grad():
            objective = by_divergence(network(batch.images))
        for _ in range(budget.steps):
            moved, logits = ascend(network, at, objective, budget.step, low, high)
            wrong = logits.argmax(1) != labels
            inside = torch.where(_wide(wrong | crossed), inside, at)
            at = torch.where(_wide(wrong & crossed), at, moved)
            crossed = crossed | wrong
        with torch.no_grad():
            wrong = network(at).argmax(1) != labels
    return torch.where(_wide(wrong | crossed), inside, at), at


def balanced_terms(
    network: nn.Module, batch: Batch, budget: Budget, beta: float, uniformity: float
) -> tuple[Tensor, Tensor, Tensor]:
    """BAT's loss (n,), and the logits of the clean images and of those beyond the boundary."""
    pair = boundary_pair(network, batch, budget)
    inside, beyond, clean = network(pair[0]), network(pair[1]), network(batch.images)
    loss = cross_entropies(inside, batch.labels) + beta * divergence(clean, beyond)
    return loss + uniformity * (from_uniform(inside) + from_uniform(beyond)), clean, beyond


def _by_label(labels: Tensor) -> Objective:
    """Minus the cross-entropy, so that its ascent makes the label likelier."""
    return lambda logits: -F.cross_entropy(logits, labels, reduction="sum")


def _wide(rows: Tensor) -> Tensor:
    return rows.view(-1, 1, 1, 1)
