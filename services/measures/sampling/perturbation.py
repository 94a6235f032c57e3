"""Random perturbations of images: additive noise and four functional ones, all as a strength times a unit draw.

A perturbation first draws *unit parameters* keyed by (seed, sample id, draw id), then applies them at a strength, so
that several strengths share their draws. Perturbed images lie in [0, 1].

    uniform, gaussian, laplace   pixels + strength * unit noise; gaussian and laplace clipped to the Linf ball of that
                                 radius, their standard deviation (scale) being the radius; in [0, 1] pixel units
    rotation     about the centre, angle uniform in +- strength degrees, bilinear, zeros outside
    translation  shift in each direction uniform in +- strength pixels, bilinear, zeros outside
    brightness   one number uniform in +- strength added to all pixels, [0, 1] pixel units
    blur         Gaussian, standard deviation uniform in [0, strength] pixels, edge pixels repeated

Source: the threat models of PRBench, F.2; Gaussian(sigma = gamma) and Laplace(b = gamma), clipped to the ball.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from services.measures.sampling.noise import Noise, raw_bits, unit_noise

if TYPE_CHECKING:
    import torch

Functional = Literal["rotation", "translation", "brightness", "blur"]
Kind = Literal["uniform", "gaussian", "laplace", "rotation", "translation", "brightness", "blur"]

_FUNCTIONAL_STREAMS: dict[str, int] = {"rotation": 16, "translation": 17, "brightness": 18, "blur": 19}


def is_noise(kind: str) -> bool:
    """Whether `kind` adds noise to every pixel."""
    return kind in get_args(Noise)


def unit_draws(
    kind: Kind, *, seed: int, ids: NDArray[np.int64], draws: NDArray[np.int64], dimension: int, threads: int = 1
) -> NDArray[np.float32]:
    """Unit parameters of draws, in [-1, 1]: (m, dimension) for noise, clipped to the ball; (m, 2) for the others."""
    if kind == "uniform":
        return unit_noise("uniform", seed=seed, ids=ids, draws=draws, dimension=dimension, threads=threads)
    if kind == "gaussian" or kind == "laplace":
        noise = unit_noise(kind, seed=seed, ids=ids, draws=draws, dimension=dimension, threads=threads)
        return np.clip(noise, -1.0, 1.0, out=noise)
    bits = raw_bits(_FUNCTIONAL_STREAMS[kind], seed, ids, draws, 1)[:, :2]
    return ((bits >> np.uint64(40)).astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-23) - np.float32(1.0)


def perturb(kind: Kind, images: torch.Tensor, unit: torch.Tensor, strength: float) -> torch.Tensor:
    """Apply unit parameters at a strength to images (m, C, H, W) in [0, 1]; the result lies in [0, 1]."""
    if is_noise(kind):
        return (images + strength * unit.view_as(images)).clamp_(0.0, 1.0)
    if kind == "brightness":
        return (images + strength * unit[:, 0].view(-1, 1, 1, 1)).clamp_(0.0, 1.0)
    if kind == "blur":
        return _blur(images, 0.5 * strength * (unit[:, 0] + 1.0), strength).clamp_(0.0, 1.0)
    return _warp(images, _rotation(unit, strength) if kind == "rotation" else _shift(images, unit, strength))


def _rotation(unit: torch.Tensor, degrees: float) -> torch.Tensor:
    import torch

    angle = unit[:, 0] * math.radians(degrees)
    zero = torch.zeros_like(angle)
    rows = [torch.stack([angle.cos(), -angle.sin(), zero], 1), torch.stack([angle.sin(), angle.cos(), zero], 1)]
    return torch.stack(rows, 1)


def _shift(images: torch.Tensor, unit: torch.Tensor, pixels: float) -> torch.Tensor:
    import torch

    height, width = images.shape[-2:]
    theta = torch.zeros(len(images), 2, 3, dtype=images.dtype, device=images.device)
    theta[:, 0, 0] = theta[:, 1, 1] = 1.0
    theta[:, 0, 2] = unit[:, 0] * (2.0 * pixels / width)
    theta[:, 1, 2] = unit[:, 1] * (2.0 * pixels / height)
    return theta


def _warp(images: torch.Tensor, theta: torch.Tensor) -> torch.Tensor:
    """Bilinear resampling; square pixels are assumed to fill [-1, 1], so rotation is exact on square images."""
    from torch.nn import functional

    grid = functional.affine_grid(theta, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False).clamp_(0, 1)


def _blur(images: torch.Tensor, sigma: torch.Tensor, strength: float) -> torch.Tensor:
    """Separable Gaussian blur, each image with its own sigma (m,), kernels cut at three times the strength."""
    import torch
    from torch.nn import functional

    count, channels, height, width = images.shape
    reach = max(1, min(math.ceil(3.0 * strength), min(height, width) - 1))
    offsets = torch.arange(-reach, reach + 1, dtype=images.dtype, device=images.device)
    kernels = torch.exp(-0.5 * (offsets[None, :] / sigma.clamp(min=1e-3)[:, None]) ** 2)
    kernels = (kernels / kernels.sum(1, keepdim=True)).repeat_interleave(channels, 0)
    flat = images.reshape(1, count * channels, height, width)
    for shape, padding in (
        ((-1, 1, 1, 2 * reach + 1), (reach, reach, 0, 0)),
        ((-1, 1, 2 * reach + 1, 1), (0, 0, reach, reach)),
    ):
        padded = functional.pad(flat, padding, mode="replicate")
        flat = functional.conv2d(padded, kernels.view(shape), groups=count * channels)
    return flat.view(count, channels, height, width)
