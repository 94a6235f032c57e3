"""Loss terms against loops in NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from services.training.losses import terms
from services.training.losses.terms import MART_FLOOR

N, K = 7, 5


def softmax(row: np.ndarray) -> np.ndarray:
    raised = np.exp(row - row.max())
    return raised / raised.sum()


@pytest.fixture
def logits() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(0, 3, (N, K)), rng.normal(0, 3, (N, K)), rng.integers(0, K, N)


def test_divergence(logits: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    a, b, _ = logits
    pairs = [(softmax(x), softmax(z)) for x, z in zip(a, b, strict=True)]
    want = [sum(p * math.log(p / q) for p, q in zip(x, z, strict=True)) for x, z in pairs]
    assert terms.divergence(torch.tensor(a), torch.tensor(b)).numpy() == pytest.approx(want)


def test_divergence_of_equal_logits_is_zero() -> None:
    z = torch.tensor([[40.0, -40.0, 3.0]])
    assert float(terms.divergence(z, z)) == pytest.approx(0, abs=1e-7)


def test_distance_from_uniform(logits: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    a, _, _ = logits
    want = [sum(p * math.log(p * K) for p in softmax(row)) for row in a]
    assert terms.from_uniform(torch.tensor(a)).numpy() == pytest.approx(want)
    assert float(terms.from_uniform(torch.tensor([[200.0, 0.0, 0.0]]))) == pytest.approx(math.log(3))


def test_softmax_distance(logits: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    a, b, _ = logits
    want = [sum((p - q) ** 2 for p, q in zip(softmax(x), softmax(z), strict=True)) for x, z in zip(a, b, strict=True)]
    assert terms.softmax_distance(torch.tensor(a), torch.tensor(b)).numpy() == pytest.approx(want)


def test_margin(logits: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    a, _, y = logits
    want = [max(z for j, z in enumerate(row) if j != k) - row[k] for row, k in zip(a, y, strict=True)]
    assert terms.margin(torch.tensor(a), torch.tensor(y)).numpy() == pytest.approx(want)


def test_boosted_cross_entropy(logits: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    a, _, y = logits
    want = []
    for row, k in zip(a, y, strict=True):
        p = softmax(row)
        want.append(-math.log(p[k]) - math.log(1 - max(v for j, v in enumerate(p) if j != k)))
    assert terms.boosted_cross_entropy(torch.tensor(a), torch.tensor(y)).numpy() == pytest.approx(want)


def test_boosted_cross_entropy_stays_finite_when_another_class_takes_all() -> None:
    z = torch.tensor([[0.0, 200.0]], requires_grad=True)
    value = terms.boosted_cross_entropy(z, torch.tensor([0]))
    value.sum().backward()
    assert float(value.detach()) == pytest.approx(200 - math.log(MART_FLOOR), rel=1e-5)
    assert z.grad is not None and torch.isfinite(z.grad).all()


def test_misclassification_weight(logits: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    a, _, y = logits
    want = [1 - softmax(row)[k] for row, k in zip(a, y, strict=True)]
    assert terms.misclassification_weight(torch.tensor(a), torch.tensor(y)).numpy() == pytest.approx(want)


def test_per_class_means_and_counts() -> None:
    means, counts = terms.per_class(torch.tensor([1.0, 2.0, 6.0]), torch.tensor([2, 2, 0]), 4)
    assert means.tolist() == [6.0, 0.0, 1.5, 0.0]
    assert counts.tolist() == [1, 0, 2, 0]
