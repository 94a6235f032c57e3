"""A batch of a linear softmax classifier, in torch and in NumPy, whose gradients are written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from services.training.counts import ClassCounts, EpochRecord
from services.training.step import Batch

N, K, D = 12, 4, 9


BUDGET = {"epsilon": 0.2, "step": 0.07, "steps": 3}


Array = np.ndarray


class Case:
    """A batch of a linear softmax classifier in double precision, in torch and in NumPy."""

    def __init__(self) -> None:
        rng = np.random.default_rng(5)
        self.w, self.b = rng.normal(0, 2, (K, D)), rng.normal(0, 0.3, K)
        self.x, self.y = rng.random((N, D)), np.arange(N) % K
        linear = nn.Linear(D, K).double()
        linear.load_state_dict({"weight": torch.tensor(self.w), "bias": torch.tensor(self.b)})
        self.network = nn.Sequential(nn.Flatten(), linear).train()

    def batch(self, state: dict[str, tuple[float, ...]] | None = None) -> Batch:
        images = torch.tensor(self.x).view(N, 1, 3, 3)
        return Batch(images, torch.tensor(self.y), K, torch.Generator().manual_seed(9), state or {}, totals=RARE)

    def starts(self, count: int = 1) -> list[Array]:
        source = torch.Generator().manual_seed(9)
        return [torch.empty(N, D, dtype=torch.float64).uniform_(-1, 1, generator=source).numpy() for _ in range(count)]

    def p(self, x: Array) -> Array:
        z = x @ self.w.T + self.b
        return np.exp(z) / np.exp(z).sum(1, keepdims=True)

    def ce(self, x: Array) -> Array:
        return -np.log(self.p(x)[np.arange(N), self.y])

    def kl(self, x: Array) -> Array:
        p, q = self.p(self.x), self.p(x)
        return (p * np.log(p / q)).sum(1)

    def attacked(
        self, by: str, radius: Array | float = 0.2, start: Array | None = None, steps: int = 3, step: float = 0.07
    ) -> Array:
        radius = np.broadcast_to(np.asarray(radius, float), N)[:, None]
        low, high = np.maximum(self.x - radius, 0), np.minimum(self.x + radius, 1)
        at = np.clip(self.x + radius * (self.starts()[0] if start is None else start), low, high)
        target = np.eye(K)[self.y] if by == "ce" else self.p(self.x)
        for _ in range(steps):
            at = np.clip(at + step * np.sign((self.p(at) - target) @ self.w), low, high)
        return at

    def is_wrong(self, at: Array, i: int) -> bool:
        return bool((at @ self.w.T + self.b).argmax() != self.y[i])

    def way_back(self, image: Array, i: int, step: float = 0.07, limit: int = 70) -> float:
        at, own = image, np.eye(K)[self.y[i]]
        for _ in range(limit):
            if not self.is_wrong(at, i):
                break
            at = np.clip(at - step * np.sign((self.p(at[None])[0] - own) @ self.w), 0, 1)
        return float(np.abs(at - image).max())

    def boundary_pair(self, i: int, steps: int = 3) -> tuple[Array, Array, str]:
        """BAT's two points of a sample and what kind of way it had, point by point."""
        low, high = np.maximum(self.x[i] - 0.2, 0), np.minimum(self.x[i] + 0.2, 1)
        at, clean = np.clip(self.x[i] + 0.2 * self.starts()[0][i], low, high), self.p(self.x)[i]
        way = [at]
        for _ in range(steps):
            if sum(self.is_wrong(point, i) for point in way) == 2 and self.is_wrong(way[-1], i):
                break
            at = np.clip(at + 0.07 * np.sign((self.p(at[None])[0] - clean) @ self.w), low, high)
            way.append(at)
        wrong = [self.is_wrong(point, i) for point in way]
        first = wrong.index(True) if any(wrong) else len(way)
        kind = {0: "start", steps: "end", len(way): "never"}.get(first, "crossed")
        return way[max(first - 1, 0)], way[-1], kind


RARE = (5, 1, 8, 2)
"""Training samples of the classes, for methods that look at them."""


def raised(case: Case, share: float, gradient: Array) -> Case:
    """The case at w + v: the bias, of one dimension, stays."""
    moved = Case()
    moved.w = case.w + share * np.linalg.norm(case.w) * gradient / np.linalg.norm(gradient)
    return moved


def record(**changes: Any) -> EpochRecord:
    counts = ClassCounts((10, 10, 0, 10), (9, 9, 0, 9), (5, 1, 0, 10), (8.0, 40.0, 0.0, 1.0))
    fields = {"epoch": 0, "rate": 0.1, "samples": 30, "loss_sum": 1.0, "train": counts, "validation": counts}
    return EpochRecord(**{**fields, "seconds": 1.0, **changes})


def drawn(case: Case) -> Array:
    source = torch.Generator().manual_seed(9)
    noise = torch.empty(N * 20, D, dtype=torch.float64).uniform_(-1, 1, generator=source).numpy().reshape(N, 20, D)
    x = np.clip(case.x[:, None] + 0.2 * noise, 0, 1)
    return np.stack([case.ce(x[:, j]) for j in range(20)], axis=1)


def cvar(case: Case) -> float:
    return float(np.mean([np.sort(row)[-2:].mean() for row in drawn(case)]))
