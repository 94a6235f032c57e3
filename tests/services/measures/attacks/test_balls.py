"""Every point an attack may visit lies in [0, 1] and in the ball, as real numbers and without tolerance."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from services.measures.attacks.balls import ball_around, unit


def pixels(seed: int, kind: str) -> torch.Tensor:
    """Images (4, 3, 5, 5): of 255ths, arbitrary floats, or black and white."""
    source = np.random.default_rng(seed)
    draw = source.random((4, 3, 5, 5))
    made = {"bytes": np.round(draw * 255) / 255, "floats": draw, "ends": np.round(draw)}[kind]
    return torch.from_numpy(made.astype(np.float32))


def distance(points: torch.Tensor, images: torch.Tensor, norm: str) -> float:
    """The largest distance, in float64, in which differences of float32 numbers in [0, 1] are exact."""
    moved = (points.double() - images.double()).flatten(1)
    return float(moved.abs().max() if norm == "Linf" else moved.norm(dim=1).max())


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["bytes", "floats", "ends"]),
    norm=st.sampled_from(["Linf", "L2"]),
    epsilon=st.one_of(st.sampled_from([1 / 255, 2 / 255, 8 / 255, 0.3, 0.5]), st.floats(1e-4, 1.0)),
    reach=st.floats(0, 3),
)
def test_projection_has_no_tolerance(
    seed: int, kind: str, norm: Literal["Linf", "L2"], epsilon: float, reach: float
) -> None:
    images = pixels(seed, kind)
    points = images + reach * torch.randn(images.shape, generator=torch.Generator().manual_seed(seed % 2**31))
    inside = ball_around(images, epsilon, norm).project(points)
    assert inside.min() >= 0 and inside.max() <= 1
    assert distance(inside, images, norm) <= epsilon


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_starts_and_steps_stay_inside_and_use_the_room(norm: Literal["Linf", "L2"]) -> None:
    images, epsilon = pixels(0, "bytes") * 0.5 + 0.25, 8 / 255
    ball = ball_around(images, epsilon, norm)
    points = ball.start(np.arange(4), seed=0, draw=0)
    assert 0.8 * epsilon < distance(points, images, norm) <= epsilon
    for _ in range(5):
        points = ball.step(points, torch.randn_like(images), epsilon)
        assert distance(points, images, norm) <= epsilon
        assert points.min() >= 0 and points.max() <= 1
    assert distance(points, images, norm) > 0.99 * epsilon


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_a_ball_smaller_than_rounding_leaves_the_image(norm: Literal["Linf", "L2"]) -> None:
    images = pixels(1, "floats")
    assert torch.equal(ball_around(images, 1e-12, norm).project(images + 1), images)


def test_selecting_rows_is_selecting_balls() -> None:
    images, rows = pixels(2, "floats"), torch.tensor([2, 0])
    for norm in ("Linf", "L2"):
        whole = ball_around(images, 0.1, norm).project(images + 1)
        assert torch.equal(ball_around(images, 0.1, norm).select(rows).project(images[rows] + 1), whole[rows])


def test_unit_keeps_zero_and_survives_tiny_gradients() -> None:
    vectors = torch.zeros(2, 1, 2, 2)
    vectors[1] = 1e-30
    lengths = unit(vectors).flatten(1).norm(dim=1)
    assert lengths.tolist() == pytest.approx([0.0, 1.0])
