"""The terms of robust training losses, one value a sample, and how classes are weighted. Logits (n, K), labels (n,)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

TINY = 1e-30
"""Squared distance below which the root has no gradient: where both outputs are one, it has none."""
MART_FLOOR = 1e-12
"""Keeps MART's `log(1 - p)` finite when another class takes all probability."""


def cross_entropies(logits: Tensor, labels: Tensor) -> Tensor:
    """`-log p_y`, (n,)."""
    return F.cross_entropy(logits, labels, reduction="none")


def divergence(clean: Tensor, robust: Tensor) -> Tensor:
    """`KL(softmax(clean) || softmax(robust))`, (n,), >= 0 up to rounding; differentiable in both."""
    reference, other = F.log_softmax(clean, dim=1), F.log_softmax(robust, dim=1)
    return F.kl_div(other, reference, reduction="none", log_target=True).sum(1)


def from_uniform(logits: Tensor) -> Tensor:
    """`KL(softmax(logits) || uniform) = log K - entropy`, (n,), in [0, log K]."""
    logs = F.log_softmax(logits, dim=1)
    return (logs.exp() * logs).sum(1) + math.log(logits.shape[1])


def softmax_distance(clean: Tensor, robust: Tensor) -> Tensor:
    """`|softmax(clean) - softmax(robust)|_2^2`, (n,), in [0, 2] (PRB Table 2: ALP and CLP)."""
    return (F.softmax(clean, dim=1) - F.softmax(robust, dim=1)).square().sum(1)


def logit_distance(clean: Tensor, robust: Tensor) -> Tensor:
    """`|clean - robust|_2`, (n,), >= 0 (PRBench's public code: ALP and CLP)."""
    return (clean - robust).square().sum(1).clamp(min=TINY).sqrt()


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    """`max_{j != y} z_j - z_y`, (n,): positive when misclassified."""
    own = logits.gather(1, labels[:, None])[:, 0]
    return logits.scatter(1, labels[:, None], -torch.inf).amax(1) - own


def boosted_cross_entropy(robust: Tensor, labels: Tensor) -> Tensor:
    """`-log p_y - log(1 - max_{j != y} p_j)`, (n,), of the perturbed images (MART, Wang et al. 2020)."""
    logs = F.log_softmax(robust, dim=1)
    other = logs.exp().scatter(1, labels[:, None], 0.0).amax(1)
    return -logs.gather(1, labels[:, None])[:, 0] - torch.log((1 - other).clamp(min=MART_FLOOR))


def misclassification_weight(clean: Tensor, labels: Tensor) -> Tensor:
    """`1 - p_y` of the clean images, (n,), in [0, 1]; gradients flow through it (MART)."""
    return 1 - F.softmax(clean, dim=1).gather(1, labels[:, None])[:, 0]


def per_class(values: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Mean value of each class (K,), 0 where the batch has none of it, and the counts (K,)."""
    counts = values.new_zeros(classes).index_add(0, labels, torch.ones_like(values))
    sums = values.new_zeros(classes).index_add(0, labels, values)
    return sums / counts.clamp(min=1), counts


def of_class(vector: Sequence[float], labels: Tensor) -> Tensor:
    """The entry of each sample's class, (n,) float32."""
    return torch.tensor(vector, dtype=torch.float32, device=labels.device)[labels]
