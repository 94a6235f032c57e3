"""Data sets whose means are known: one point, two and three values, beta shapes; a few samples or many."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Draw = Callable[[np.random.Generator, Any], Floats]

LEVELS = (0.01, 0.05, 0.2)
"""Promised probabilities of a miss."""
BOUND = float(np.sqrt(np.pi / 2))
"""Of the scores: the GREAT score's."""
SLACK = 1e-9
"""A limit that differs from the truth by less is rounding."""


@dataclass(frozen=True)
class Shape:
    """A distribution on [0, 1] and its mean."""

    name: str
    draw: Draw
    mean: float
    binary: bool = False


def point(value: float) -> Shape:
    """All scores are one number."""
    return Shape(f"all {value:g}", lambda rng, size: np.full(size, value), value, value in (0.0, 1.0))


def coin(p: float) -> Shape:
    """0 or 1."""
    return Shape(f"0 or 1, mean {p:g}", lambda rng, size: (rng.random(size) < p).astype(np.float64), p, binary=True)


def beta(a: float, b: float) -> Shape:
    """Beta(a, b)."""
    return Shape(f"beta({a:g}, {b:g})", lambda rng, size: rng.beta(a, b, size), a / (a + b))


def margins(p: float) -> Shape:
    """Scores as GREAT gives them: 0 where the sample is misclassified, else Beta(2, 1)."""
    return Shape(
        f"0 or beta(2, 1), {p:g} right", lambda rng, size: (rng.random(size) < p) * rng.beta(2, 1, size), p * 2 / 3
    )


def values(*support: float) -> Shape:
    """Heavy ties: a few values, each as likely."""
    name = f"one of {', '.join(f'{v:g}' for v in support)}"
    return Shape(name, lambda rng, size: rng.choice(support, size), float(np.mean(support)))


POINTS = (point(0.0), point(1.0), point(0.37))
COINS = (coin(0.02), coin(0.5), coin(0.85))
SHAPES = (
    *POINTS,
    *COINS,
    values(0.25, 0.3),
    values(0.0, 0.0, 0.25, 1.0),
    beta(0.3, 3),
    beta(0.5, 0.5),
    beta(3, 3),
    margins(0.7),
)
SIZES = (1, 2, 3, 5, 20, 100)


@dataclass(frozen=True)
class Classes:
    """Samples by class: how many of each, and the shape of their scores."""

    name: str
    sizes: tuple[int, ...]
    shapes: tuple[Shape, ...]

    @property
    def binary(self) -> bool:
        return all(shape.binary for shape in self.shapes)

    @property
    def labels(self) -> Ints:
        """(N,) class of each sample."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @property
    def means(self) -> Floats:
        """(K,) true means in [0, 1]; of classes without samples too."""
        return np.array([shape.mean for shape in self.shapes])

    @property
    def defined(self) -> NDArray[np.bool_]:
        """(K,) the class has samples."""
        return np.array(self.sizes) > 0

    def draw(self, rng: np.random.Generator, runs: int) -> Floats:
        """(runs, N) scores in [0, 1], the columns in the order of `labels`."""
        parts = [shape.draw(rng, (runs, size)) for shape, size in zip(self.shapes, self.sizes, strict=True)]
        return np.concatenate(parts, axis=1)


def stacked(labels: Ints, n_classes: int, runs: int) -> Ints:
    """Groups (runs * N,) of `runs` data sets side by side: class k of data set r is group r * K + k.

    A limit of one group does not depend on other groups, so all data sets go through one call.
    """
    return np.asarray((labels + n_classes * np.arange(runs)[:, None]).ravel(), dtype=np.int64)


_RIGHT = (0.35, 0.6, 0.7, 0.8, 0.95)
CLASSES = (
    Classes("2 classes of 1, 0 or 1", (1, 1), (coin(0.3), coin(0.7))),
    Classes("5 classes of 1, 2, 3, 5 and 60", (1, 2, 3, 5, 60), tuple(margins(p) for p in _RIGHT)),
    Classes("the same, 0 or 1", (1, 2, 3, 5, 60), tuple(coin(p) for p in _RIGHT)),
    Classes("10 classes of 20", (20,) * 10, tuple(margins(p) for p in np.linspace(0.3, 0.95, 10).round(3))),
    Classes("10 classes of 30, 0 or 1", (30,) * 10, tuple(coin(p) for p in np.linspace(0.5, 0.99, 10).round(3))),
    Classes("3 classes of 60, one far below, 0 or 1", (60,) * 3, (coin(0.5), coin(0.97), coin(0.97))),
    Classes("3 classes of 60, one far below", (60,) * 3, (values(0.0, 0.0, 0.25, 1.0), margins(0.99), margins(0.99))),
    Classes("10 classes alike of 5, three values", (5,) * 10, (values(0.0, 0.5, 1.0),) * 10),
    Classes("4 classes alike of 40, beta(0.5, 0.5)", (40,) * 4, (beta(0.5, 0.5),) * 4),
    Classes("250 classes of 2, 0 or 1", (2,) * 250, tuple(coin(p) for p in np.linspace(0.2, 1.0, 250).round(4))),
    Classes("4 classes of 3, all 0", (3,) * 4, (point(0.0),) * 4),
    Classes("4 classes of 3, all 1", (3,) * 4, (point(1.0),) * 4),
    Classes("3 classes of 2, one point each", (2,) * 3, (point(0.1), point(0.5), point(0.5))),
    Classes("4 classes, one empty and one all 0", (8, 0, 12, 8), (coin(0.6), coin(0.5), coin(0.9), point(0.0))),
)
