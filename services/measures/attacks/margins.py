"""What an attack reads from logits: the margin, whether a sample is broken, and the direction that lowers the margin.

A sample is broken when its margin ``z_y - max_{j != y} z_j`` is not positive (a tie for the top is not correct), or
when any of its logits is NaN or infinite: a network that answers nonsense has not resisted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch

Network = Callable[[torch.Tensor], torch.Tensor]
Loss = Literal["ce", "margin"]

SMALLEST = 8
"""Batches smaller than this are filled up by repetition before the network sees them.

Matrix products of one, two or three rows take other kernels than those of more, and round otherwise. With this floor
the logits of a sample are bitwise those of any larger batch (measured on all networks of the test data, on a CPU), so
that a result does not depend on how many samples were still under attack beside it.
"""


def passes(network: Network, images: torch.Tensor) -> torch.Tensor:
    """Logits (n, K) of images (n, C, H, W), by way of a batch of at least `SMALLEST`."""
    n = len(images)
    if n >= SMALLEST:
        return network(images)
    rows = torch.arange(SMALLEST, device=images.device) % n
    return network(images.index_select(0, rows))[:n]


def margins(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """``z_y - max_{j != y} z_j``, (n,); NaN wherever a logit is NaN or infinite, so ``margin > 0`` means resisted."""
    own = labels.unsqueeze(1)
    rival = logits.scatter(1, own, -torch.inf).amax(dim=1)
    margin = logits.gather(1, own).squeeze(1) - rival
    return torch.where(logits.isfinite().all(dim=1), margin, torch.nan)


def judged(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The margins (n,) and the classes of the largest other logits (n,), which broken samples are taken for; or -1."""
    own = labels.unsqueeze(1)
    best = logits.scatter(1, own, -torch.inf).max(dim=1)
    margin = logits.gather(1, own).squeeze(1) - best.values
    finite = logits.isfinite().all(dim=1)
    return torch.where(finite, margin, torch.nan), torch.where(finite, best.indices, -1)


def ascent(logits: torch.Tensor, labels: torch.Tensor, loss: Loss) -> torch.Tensor:
    """The gradient (n, K) of the loss by the logits, scaled to largest entry 1 in each row.

    "ce" is the cross-entropy, ``softmax(z) - onehot(y)``; "margin" is ``max_{j != y} z_j - z_y``. Steps use only a
    gradient's sign or direction, so the scale is free: computed in float64 and scaled, a confident sample (softmax
    exactly 1 in float32) still has a gradient, and a zero that is reported is the network's own.
    """
    own = labels.unsqueeze(1)
    if loss == "margin":
        rival = logits.scatter(1, own, -torch.inf).argmax(dim=1, keepdim=True)
        return torch.zeros_like(logits).scatter_(1, rival, 1.0).scatter_(1, own, -1.0)
    shares = logits.double().scatter(1, own, -torch.inf).softmax(dim=1)
    return shares.scatter_(1, own, -1.0).to(logits.dtype)


Tensors = torch.Tensor | tuple[torch.Tensor, ...]


def gradient(outputs: Tensors, images: torch.Tensor, weights: Tensors, *, again: bool = False) -> torch.Tensor:
    """The gradient of ``sum(weights * outputs)`` by the images; entries that are not finite become 0.

    Not in place: the gradient of a sum over the images is one number, seen from every pixel.
    """
    (slope,) = torch.autograd.grad(outputs, images, weights, retain_graph=again)
    return torch.nan_to_num(slope, nan=0.0, posinf=0.0, neginf=0.0)
