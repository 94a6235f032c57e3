"""Curves over temperature against direct evaluation, and their shards."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.errors import MeasureError
from services.numerics import great
from services.numerics import temperature as temperature_module
from services.numerics.calibration import Grid
from services.numerics.great import great_scores
from services.numerics.temperature import (
    ClassCurve,
    TemperatureNodes,
    class_sums,
    generations_of,
    partition_functions,
    walk_down,
)

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
        sums = class_sums(logits, labels, 10, temperatures=np.array(temperatures), activation="softmax")
        exact = direct(logits, labels, 10, np.array(temperatures), "softmax").reshape(len(temperatures), 10)
        np.testing.assert_allclose(sums, exact, atol=1e-5)


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
        sums = class_sums(logits, np.array([0, 1, 1, 2]), 3, temperatures=np.array([0.5, 1]), activation=activation)
        assert (sums == 0).all()


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


# --- every part alone --------------------------------------------------------------------------------------------


def test_nodes_cover_what_is_asked_in_whole_octaves() -> None:
    assert TemperatureNodes.covering(0.5, 2.0, activation="sigmoid") == TemperatureNodes(0.5, 2, 10)
    assert TemperatureNodes.covering(0.5, 2.0001, activation="softmax") == TemperatureNodes(0.5, 3, 16)
    assert TemperatureNodes.covering(0.5, 0.6, activation="sigmoid") == TemperatureNodes(0.5, 1, 10)
    assert TemperatureNodes.covering(0.1, 0.1 * 2**3 * (1 + 1e-13), activation="sigmoid") == TemperatureNodes(
        0.1, 3, 10
    )


def test_nodes_are_those_of_chebyshev_in_the_logarithm() -> None:
    nodes = TemperatureNodes(0.5, 2, 3)
    points = [-math.cos((2 * j + 1) * math.pi / 6) for j in range(3)]
    octave = [0.5 * 2 ** ((1 + x) / 2) for x in points]
    np.testing.assert_allclose(nodes.temperatures, [*octave, *(2 * t for t in octave)], rtol=1e-15)


def lagrange(nodes: TemperatureNodes, temperature: float) -> list[float]:
    """The row of the matrix by Lagrange's formula in log2 T on the octave that holds it."""
    row = [0.0] * (nodes.octaves * nodes.order)
    octave = min(max(math.floor(math.log2(temperature / nodes.low)), 0), nodes.octaves - 1)
    first = octave * nodes.order
    x = np.log2(nodes.temperatures[first : first + nodes.order])
    for j in range(nodes.order):
        others = [k for k in range(nodes.order) if k != j]
        row[first + j] = math.prod((math.log2(temperature) - x[k]) / (x[j] - x[k]) for k in others)
    return row


def test_interpolation_is_that_of_lagrange_also_at_the_nodes_and_the_ends() -> None:
    nodes = TemperatureNodes(0.5, 3, 5)
    probe = [0.5, 0.55, 0.999, 1.0, 1.001, 1.9, 2.0, 3.9, 4.0, float(nodes.temperatures[7])]
    result = nodes.interpolation(np.array(probe))
    assert result.shape == (10, 15)
    np.testing.assert_allclose(result, [lagrange(nodes, t) for t in probe], atol=1e-12)
    beyond = [0.5 * (1 - 5e-10), 4 * (1 + 5e-10)]
    np.testing.assert_allclose(nodes.interpolation(beyond), [lagrange(nodes, t) for t in beyond], atol=1e-12)  # type: ignore[arg-type]
    np.testing.assert_array_equal(nodes.interpolation([1, 2]), nodes.interpolation(np.array([1.0, 2.0])))  # type: ignore[arg-type]
    assert nodes.interpolation(np.zeros(0)).shape == (0, 15)
    for outside in (0.5 * (1 - 2e-9), 4 * (1 + 2e-9)):
        with pytest.raises(MeasureError):
            nodes.interpolation(np.array([1.0, outside]))


def test_a_point_on_a_node_takes_its_value_alone() -> None:
    nodes = TemperatureNodes(1.0, 1, 4)
    on = -np.cos((2 * np.arange(4) + 1) * np.pi / 8)
    np.testing.assert_array_equal(nodes.barycentric(on), np.eye(4))
    np.testing.assert_array_equal(nodes.barycentric(on + 5e-15), np.eye(4))
    near = nodes.barycentric(on[:1] + 1e-12)
    assert near[0, 0] != 1.0 and near[0, 0] == pytest.approx(1.0, abs=1e-10)


@pytest.mark.parametrize("activation", ["sigmoid", "softmax"])
def test_sums_do_not_depend_on_the_size_of_blocks(activation: str) -> None:
    logits, labels = sample(7, 60, 5, 2, 6)
    grid = np.array([0.1, 0.2, 0.35, 0.4, 0.8, 3.0])
    whole = class_sums(logits, labels, 5, temperatures=grid, activation=activation)
    assert whole.shape == (6, 5) and whole.dtype == np.float64
    np.testing.assert_allclose(whole, direct(logits, labels, 5, grid, activation), atol=1e-5)
    with pytest.MonkeyPatch.context() as patch:
        for elements in (1, 33, 10**6):
            patch.setattr(great, "CHUNK", elements)
            patch.setattr(temperature_module, "BLOCK", elements)
            parts = class_sums(logits, labels, 5, temperatures=grid, activation=activation)
            np.testing.assert_allclose(parts, whole, rtol=1e-12)
            nodes = TemperatureNodes(0.5, 1, 4)
            curve = ClassCurve.from_logits(logits, labels, 5, nodes=nodes, activation=activation)
            correct = labels[logits.argmax(axis=1) == labels]
            assert curve.correct.tolist() == np.bincount(correct, minlength=5).tolist()
            assert curve.counts.tolist() == np.bincount(labels, minlength=5).tolist()


def test_partition_functions_are_sums_of_exponentials() -> None:
    logits, labels = sample(8, 40, 6, 3, 12)
    right = np.flatnonzero(logits.argmax(axis=1) == labels)
    logits, labels = logits[right], labels[right]
    grid = np.array([8.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125, 3.0, 0.7, 1.0])
    result = partition_functions(logits, labels, grid)
    gaps = logits.astype(np.float64) - logits[np.arange(len(labels)), labels][:, None]
    np.testing.assert_allclose(result, [np.exp(gaps / t).sum(axis=1) for t in grid], rtol=1e-6)
    assert result.dtype == np.float64 and result.shape == (12, len(labels))


def test_terms_are_dropped_only_where_they_are_negligible() -> None:
    """One rival at a distance of 20 + log 2 temperatures is kept, one further away is not."""
    limit = 20.0 + math.log(2)
    for gap, kept in ((limit * 0.999, True), (limit * 1.001, False)):
        logits = np.array([[0.0, -gap]], dtype=np.float32)
        (result,) = partition_functions(logits, np.array([0]), np.array([1.0]))
        assert (result[0] > 1.0) is np.bool_(kept)


def test_chains_halve_and_are_cut_hottest_first() -> None:
    grid = np.array([2.0**-k for k in range(8)] + [3.0, 1.5, 0.7])
    results = [[chain.tolist() for chain in chains] for chains in generations_of(grid)]
    assert results == [[[8, 9], [0, 1, 2, 3, 4, 5], [10]], [[6, 7]]]
    assert generations_of(np.zeros(0)) == []
    twice = [[chain.tolist() for chain in chains] for chains in generations_of(np.array([1.0, 2.0, 1.0]))]
    assert sorted(index for chains in twice for chain in chains for index in chain) == [0, 1, 2]


def test_a_walk_gives_every_temperature_of_its_chain_from_one_exponential() -> None:
    flat = -np.array([0.1, 1.0, 3.0], dtype=np.float32)
    grid = np.array([4.0, 2.0, 1.0, 0.5, 0.25, 0.125])
    for size in range(1, 7):
        inputs = {index: terms.copy() for index, terms in walk_down(flat, np.arange(size), grid)}
        assert sorted(inputs) == list(range(size))
        for index, terms in inputs.items():
            assert terms.dtype == np.float32
            np.testing.assert_allclose(terms, np.exp(flat.astype(np.float64) / grid[index]), rtol=3e-6)


def test_curves_whole() -> None:
    nodes = TemperatureNodes(1.0, 1, 2)
    counts, correct = np.array([4, 0, 2]), np.array([3, 0, 1])
    ends = nodes.temperatures
    curve = ClassCurve(nodes, np.array([[2.0, 0.0, 1.0], [4.0, 0.0, 3.0]]), counts, correct)
    assert curve.defined.tolist() == [True, False, True]
    assert curve.accuracies.tolist() == [0.75, 0.5]
    assert curve.accuracy == pytest.approx(4 / 6) and type(curve.accuracy) is float
    np.testing.assert_allclose(curve.means(ends), [[0.5, 0.5], [1.0, np.sqrt(np.pi / 2)]])
    np.testing.assert_allclose(curve.aggregate(ends), [0.5, (4 + 2 * np.sqrt(np.pi / 2)) / 6])
    below = ClassCurve(nodes, -curve.sums, counts, correct)
    assert below.means(ends).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    single = ClassCurve(nodes, np.array([[0.5], [1.0]]), np.ones(1, int), np.ones(1, int))
    assert single.aggregate(ends).tolist() == [0.5, 1.0] and ClassCurve.merge([single]).nodes == nodes
    empty = ClassCurve(nodes, np.zeros((2, 2)), np.zeros(2, int), np.zeros(2, int))
    assert (empty.accuracy, empty.aggregate(ends).tolist(), empty.means(ends).shape) == (None, [0.0, 0.0], (2, 0))
    both = ClassCurve.merge(iter([curve, below, curve]))
    assert both.nodes == nodes
    np.testing.assert_array_equal(both.sums, curve.sums)
    assert (both.counts.tolist(), both.correct.tolist()) == ([12, 0, 6], [9, 0, 3])


def test_a_curve_of_no_samples() -> None:
    nodes = TemperatureNodes(1.0, 1, 2)
    for activation in ("sigmoid", "softmax"):
        result = ClassCurve.from_logits(np.zeros((0, 3)), np.zeros(0, int), 3, nodes=nodes, activation=activation)
        assert result.sums.tolist() == [[0.0] * 3] * 2
        assert result.counts.tolist() == result.correct.tolist() == [0, 0, 0]
        assert result.counts.dtype == result.correct.dtype == np.int64
