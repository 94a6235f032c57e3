"""Curves over temperature against direct evaluation, and their shards."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.errors import MeasureError
from services.numerics.calibration import Grid
from services.numerics.scores import great_scores
from services.numerics.temperature import ClassCurve, TemperatureNodes, class_sums

PROBE = np.unique(np.concatenate([[0.01, 0.0100001, 0.011, 1.0, 10.0], np.geomspace(0.01, 10, 37)]))


def sample(seed: int, n: int, k: int, scale: float, gap: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    logits = (rng.normal(size=(n, k)) * scale).astype(np.float32)
    labels = rng.integers(0, k, n)
    logits[np.arange(n), labels] += (gap * rng.random(n)).astype(np.float32)
    return logits, labels


def flat(k: int, slope: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """The hardest case: one sample a class and all rivals alike put complex zeros of the partition function near."""
    logits = np.zeros((6, k), dtype=np.float32) - slope * np.linspace(0, 1, k, dtype=np.float32)
    labels = np.arange(6)
    logits[labels, labels] = [0.001, 0.05, 0.5, 3, 20, 60]
    return logits, labels


CASES = {
    "ordinary": sample(0, 800, 10, 3, 12),
    "two samples a class, small logits": sample(1, 20, 10, 0.3, 1),
    "saturated": sample(2, 200, 10, 20, 80),
    "flat 10": flat(10),
    "flat 1000": flat(1000),
    "sloped 1000": flat(1000, 5.0),
    "many classes": sample(3, 300, 1000, 2, 14),
}


def direct(logits: np.ndarray, labels: np.ndarray, k: int, temperatures: np.ndarray, activation: str) -> np.ndarray:
    rows = [great_scores(logits, labels, temperature=t, activation=activation).scores for t in temperatures]
    return np.array([np.bincount(labels, weights=row, minlength=k) for row in rows])


@pytest.mark.parametrize("activation", ["sigmoid", "softmax"])
@pytest.mark.parametrize("case", list(CASES))
def test_interpolated_means_equal_direct_evaluation(case: str, activation: str) -> None:
    logits, labels = CASES[case]
    k = logits.shape[1]
    nodes = Grid().nodes(activation)
    curve = ClassCurve.from_logits(logits, labels, k, nodes=nodes, activation=activation)
    exact = direct(logits, labels, k, PROBE, activation)[:, curve.defined] / curve.counts[curve.defined]
    assert np.abs(curve.means(PROBE) - exact).max() < 1e-6
    aggregate = direct(logits, labels, k, PROBE, activation).sum(axis=1) / labels.size
    assert np.abs(curve.aggregate(PROBE) - aggregate).max() < 1e-6
    correct = great_scores(logits, labels, temperature=1.0, activation="sigmoid").correct
    assert curve.accuracy == correct.mean()


def test_any_temperatures_in_any_order() -> None:
    logits, labels = CASES["ordinary"]
    for temperatures in ([3.0, 0.7, 0.35, 6.0, 1.0, 0.7], [2.0**i for i in range(-6, 5)], [0.3], []):
        found = class_sums(logits, labels, 10, temperatures=np.array(temperatures), activation="softmax")
        exact = direct(logits, labels, 10, np.array(temperatures), "softmax").reshape(len(temperatures), 10)
        np.testing.assert_allclose(found, exact, atol=1e-5)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000), st.sampled_from(["sigmoid", "softmax"]))
def test_merged_shards_equal_the_whole(seed: int, activation: str) -> None:
    logits, labels = sample(seed, 90, 7, 2, 6)
    nodes = TemperatureNodes.covering(0.1, 3.0, activation=activation)

    def curve(rows: object) -> ClassCurve:
        return ClassCurve.from_logits(logits[rows], labels[rows], 7, nodes=nodes, activation=activation)

    whole = curve(slice(None))
    parts = np.array_split(np.random.default_rng(seed).permutation(90), 4)
    merged = ClassCurve.merge([curve(rows) for rows in parts])
    np.testing.assert_allclose(merged.sums, whole.sums, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(merged.counts, whole.counts)
    np.testing.assert_array_equal(merged.correct, whole.correct)


def test_limits_of_the_temperature() -> None:
    """As T -> 0 the softmax score tends to B * accuracy; as T grows it tends to 0."""
    logits, labels = sample(4, 500, 10, 3, 12)
    nodes = TemperatureNodes.covering(1e-4, 1e4, activation="softmax")
    curve = ClassCurve.from_logits(logits, labels, 10, nodes=nodes, activation="softmax")
    cold, hot = curve.aggregate(np.array([1e-4, 1e4]))
    assert cold == pytest.approx(np.sqrt(np.pi / 2) * curve.accuracy, abs=2e-3)
    assert hot < 1e-3


def test_wrong_and_non_finite_samples_add_nothing() -> None:
    logits = np.array([[0, 1, 2], [np.nan, 5, 0], [1, 1, 0], [2, 0, 0]], dtype=np.float32)
    for activation in ("sigmoid", "softmax"):
        found = class_sums(logits, np.array([0, 1, 1, 2]), 3, temperatures=np.array([0.5, 1]), activation=activation)
        assert (found == 0).all()


def test_nodes_double_exactly_and_interpolate_polynomials() -> None:
    nodes = TemperatureNodes.covering(0.01, 10.0, activation="softmax")
    table = nodes.temperatures.reshape(nodes.octaves, nodes.order)
    np.testing.assert_array_equal(table[1:], 2.0 * table[:-1])
    probe = np.geomspace(0.01, 10, 200)
    cube = nodes.interpolation(probe) @ np.log(nodes.temperatures) ** 3
    np.testing.assert_allclose(cube, np.log(probe) ** 3, atol=1e-9)
    at_nodes = nodes.interpolation(nodes.temperatures)
    np.testing.assert_allclose(at_nodes, np.eye(nodes.temperatures.size), atol=1e-9)


def test_faults_are_named() -> None:
    nodes = TemperatureNodes.covering(0.1, 1.0, activation="sigmoid")
    with pytest.raises(MeasureError, match="temperatures: expected within"):
        nodes.interpolation(np.array([5.0]))
    with pytest.raises(MeasureError, match="above 1"):
        TemperatureNodes.covering(1.0, 0.5, activation="sigmoid")
    with pytest.raises(MeasureError, match="positive finite"):
        class_sums(np.zeros((1, 2)), np.array([0]), 2, temperatures=np.array([0.0]), activation="sigmoid")
    with pytest.raises(MeasureError, match="3 classes"):
        class_sums(np.zeros((1, 2)), np.array([0]), 3, temperatures=np.array([1.0]), activation="sigmoid")
    with pytest.raises(MeasureError, match="same nodes"):
        ClassCurve.merge([])
