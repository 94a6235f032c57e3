"""The sets an attack may move in: a ball around each image, cut with [0, 1].

Guarantee: whatever `project` returns lies in [0, 1] and within epsilon of the centre *as real numbers*, with no
tolerance: the distance of the float32 images, taken in exact arithmetic, is at most epsilon. For Linf the two bounds
are rounded inwards once. For L2 the target radius is shortened by what float32 can add back when the centre and the
perturbation are summed, ``sqrt(d) * 2**-24`` (3.4e-6 for 3x32x32), and by a factor for the rounding of the norm.
"""

from __future__ import annotations

import math
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from services.measures.attacks.starts import start_lengths, start_noise

Norm = Literal["Linf", "L2"]


class Ball(Protocol):
    """A ball around each of n images. Points and gradients are (n, C, H, W)."""

    def start(self, ids: NDArray[np.int64], *, seed: int, draw: int) -> torch.Tensor:
        """A random point a sample, a function of (seed, id, draw)."""
        ...

    def step(self, points: torch.Tensor, slope: torch.Tensor, size: float) -> torch.Tensor:
        """The points moved along the steepest ascent of this norm by `size`, then projected."""
        ...

    def project(self, points: torch.Tensor) -> torch.Tensor:
        """The points moved into the ball and into [0, 1]."""
        ...

    def select(self, rows: torch.Tensor) -> Ball:
        """The balls of some rows only."""
        ...


def ball_around(images: torch.Tensor, epsilon: float, norm: Norm) -> Ball:
    """The ball of radius `epsilon` (in [0, 1] pixel units) around each image."""
    return LinfBall.around(images, epsilon) if norm == "Linf" else L2Ball.around(images, epsilon)


def _inwards(bound: torch.Tensor, direction: float) -> torch.Tensor:
    """float64 bounds as float32 numbers not outside them; `direction` is towards the centre."""
    rounded = bound.float()
    outside = (rounded.double() - bound) * direction < 0
    return torch.where(outside, torch.nextafter(rounded, rounded.new_tensor(math.inf * direction)), rounded)


class LinfBall:
    """``max |x - centre| <= epsilon``: one interval a pixel."""

    def __init__(self, lower: torch.Tensor, upper: torch.Tensor) -> None:
        self.lower, self.upper = lower, upper

    @classmethod
    def around(cls, images: torch.Tensor, epsilon: float) -> LinfBall:
        exact = images.double()
        lower = _inwards((exact - epsilon).clamp_(min=0.0), 1.0)
        return cls(
            torch.minimum(lower, images), torch.maximum(_inwards((exact + epsilon).clamp_(max=1.0), -1.0), images)
        )

    def start(self, ids: NDArray[np.int64], *, seed: int, draw: int) -> torch.Tensor:
        noise = start_noise(ids, tuple(self.lower.shape[1:]), seed=seed, draw=draw)
        share = torch.from_numpy((noise + 1) / 2).to(self.lower.device)
        return self.project(torch.lerp(self.lower, self.upper, share))

    def step(self, points: torch.Tensor, slope: torch.Tensor, size: float) -> torch.Tensor:
        return self.project(points.detach().add(slope.sign_(), alpha=size))

    def project(self, points: torch.Tensor) -> torch.Tensor:
        return points.clamp(self.lower, self.upper)

    def select(self, rows: torch.Tensor) -> LinfBall:
        return LinfBall(self.lower.index_select(0, rows), self.upper.index_select(0, rows))


class L2Ball:
    """``|x - centre|_2 <= epsilon``."""

    def __init__(self, centre: torch.Tensor, radius: float) -> None:
        self.centre, self.radius = centre, radius

    @classmethod
    def around(cls, images: torch.Tensor, epsilon: float) -> L2Ball:
        lost = math.sqrt(images[0].numel()) * 2.0**-24
        return cls(images, max(0.0, epsilon * (1 - 2.0**-20) - lost))

    def start(self, ids: NDArray[np.int64], *, seed: int, draw: int) -> torch.Tensor:
        """Uniform in the ball: a normal direction, and a length ``epsilon * u ** (1 / d)``."""
        shape = tuple(self.centre.shape[1:])
        noise = start_noise(ids, shape, seed=seed, draw=draw, kind="normal")
        lengths = start_lengths(ids, seed=seed, draw=draw) ** (1 / math.prod(shape)) * self.radius
        direction = noise * _column(lengths / np.linalg.norm(noise.reshape(len(ids), -1), axis=1), noise.ndim)
        return self.project(self.centre + torch.from_numpy(direction.astype(np.float32)).to(self.centre.device))

    def step(self, points: torch.Tensor, slope: torch.Tensor, size: float) -> torch.Tensor:
        return self.project(points.detach() + unit(slope) * size)

    def project(self, points: torch.Tensor) -> torch.Tensor:
        moved = points - self.centre
        length = lengths_of(moved).clamp_(min=1e-30)
        return (self.centre + moved * (self.radius / length).clamp_(max=1.0)).clamp_(0.0, 1.0)

    def select(self, rows: torch.Tensor) -> L2Ball:
        return L2Ball(self.centre.index_select(0, rows), self.radius)


def lengths_of(vectors: torch.Tensor, norm: Norm = "L2") -> torch.Tensor:
    """Norms of (n, C, H, W) as (n, 1, 1, 1)."""
    order = 2.0 if norm == "L2" else math.inf
    norms: torch.Tensor = torch.linalg.vector_norm(vectors, order, dim=(1, 2, 3), keepdim=True)
    return norms


def inwards(slope: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
    """The part of a direction that does not lead out of [0, 1]: 0 where a pixel is at that end already.

    On images with much black or white most of a gradient would be cut off again by the clamp, and with it the step.
    """
    blocked = ((points <= 0) & (slope < 0)) | ((points >= 1) & (slope > 0))
    return slope.masked_fill(blocked, 0.0)


def unit(vectors: torch.Tensor) -> torch.Tensor:
    """Vectors of length 1; a zero stays zero. Scaled by the largest entry first, so tiny gradients do not underflow."""
    scaled = vectors / vectors.abs().amax(dim=(1, 2, 3), keepdim=True).clamp(min=1e-38)
    return scaled / lengths_of(scaled).clamp(min=1e-30)


def _column(values: NDArray[Any], ndim: int) -> NDArray[Any]:
    return values.reshape(-1, *[1] * (ndim - 1))
