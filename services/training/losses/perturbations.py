"""Random perturbations of images, as in PRB F.2: uniform, Gaussian or Laplace, all within an Linf ball and [0, 1]."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Kind = Literal["uniform", "gaussian", "laplace"]


def perturbed(
    images: Tensor, kind: Kind, radius: float, generator: torch.Generator, *, spread: float | None = None
) -> Tensor:
    """Images plus noise, (n, C, H, W).

    The noise is uniform in [-radius, radius], Gaussian with sigma = spread, or Laplace with b = spread, by default the
    radius; the latter two are clipped to [-radius, radius]. The sum is clipped to [0, 1].
    """
    noise = torch.empty_like(images)
    if kind == "gaussian":
        noise.normal_(0, 1, generator=generator)
    else:
        noise.uniform_(-1, 1, generator=generator)
    if kind == "laplace":
        noise = -torch.sign(noise) * torch.log1p(-noise.abs().clamp(max=1 - 1e-7))
    if spread is not None and radius > 0:
        noise.mul_(spread / radius)
    return (images + noise.clamp_(-1, 1).mul_(radius)).clamp_(0, 1)


def draws(images: Tensor, kind: Kind, radius: float, count: int, generator: torch.Generator) -> Tensor:
    """`count` perturbed copies of each image, (n * count, C, H, W); the copies of an image follow one another."""
    return perturbed(images.repeat_interleave(count, dim=0), kind, radius, generator)
