"""Temperature policies: the optimum against a plain search, and what is said about it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from services.errors import MeasureError
from services.numerics.calibration import Grid, calibrate, calibration_notes
from services.numerics.scores import great_scores
from services.numerics.temperature import ClassCurve
from services.records import CalibrationResult, Estimate

GRID = Grid(low=0.1, high=3.0, step=0.1, fine_step=0.01, window=1)


def fleet(seed: int, models: int = 6, n: int = 300) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(models):
        labels = np.arange(n) % 5
        logits = rng.normal(scale=rng.uniform(0.5, 3), size=(n, 5)) + rng.normal(scale=2)
        logits[np.arange(n), labels] += rng.uniform(0, 5, 5)[labels]
        out.append((logits.astype(np.float32), labels))
    return out


def curves(data: list[tuple[np.ndarray, np.ndarray]], grid: Grid = GRID) -> list[ClassCurve]:
    nodes = grid.nodes("sigmoid")
    return [ClassCurve.from_logits(z, y, 5, nodes=nodes, activation="sigmoid") for z, y in data]


def plain_class_means(data: list, temperature: float) -> np.ndarray:
    scores = [great_scores(z, y, temperature=temperature, activation="sigmoid").scores for z, y in data]
    return np.array([[s[y == k].mean() for k in range(5)] for s, (_, y) in zip(scores, data, strict=True)])


def plain_accuracy(data: list) -> np.ndarray:
    right = [great_scores(z, y, temperature=1, activation="sigmoid").correct for z, y in data]
    return np.array([[r[y == k].mean() for k in range(5)] for r, (_, y) in zip(right, data, strict=True)])


@pytest.mark.parametrize("policy", ["fleet-accuracy", "class-accuracy", "ranking-stability"])
def test_objective_equals_a_plain_evaluation(policy: str) -> None:
    data = fleet(1)
    found = calibrate(policy, curves(data), grid=GRID)
    accuracy = plain_accuracy(data)

    def objective(t: float) -> float:
        means = plain_class_means(data, t)
        if policy == "fleet-accuracy":
            return float(spearmanr(means.mean(axis=1), accuracy.mean(axis=1)).statistic)
        if policy == "class-accuracy":
            return float(np.mean([spearmanr(m, a).statistic for m, a in zip(means, accuracy, strict=True)]))
        near = [plain_class_means(data, min(3.0, max(0.1, t + d))) for d in (-0.05, -0.025, 0.025, 0.05)]
        return float(np.mean([min(spearmanr(m, o[i]).statistic for o in near) for i, m in enumerate(means)]))

    for index in range(0, len(found.grid), 7):
        assert found.curve[index] == pytest.approx(objective(found.grid[index]), abs=1e-9)
    assert found.objective == pytest.approx(objective(found.temperature), abs=1e-9)
    assert found.objective == max(v for v in found.curve if v is not None)
    assert found.plateau[0] == found.temperature <= found.plateau[1]
    inside = [v for t, v in zip(found.grid, found.curve, strict=True) if found.plateau[0] <= t <= found.plateau[1]]
    assert inside == pytest.approx([found.objective] * len(inside))
    assert found.at_edge == (found.plateau[0] == 0.1 or found.plateau[1] == 3.0)


def test_grids_are_those_asked() -> None:
    printed, published = Grid(), Grid(low=0.1, high=3.0, step=0.05, fine_step=0.005)
    assert printed.coarse()[:3] == pytest.approx([0.01, 0.11, 0.21])
    assert printed.coarse()[-1] == 10.0
    assert printed.fine(2.01)[[0, -1]] == pytest.approx([1.51, 2.51])
    assert np.diff(printed.fine(2.01)) == pytest.approx(0.001)
    assert published.coarse().size == 59
    assert np.diff(published.fine(2.7)) == pytest.approx(0.005)
    with pytest.raises(MeasureError, match="0 < low < high"):
        Grid(low=1.0, high=0.5).coarse()


def test_fixed_and_reference() -> None:
    data = fleet(2)
    lines = curves(data)
    robust = [0.5, 0.4, None, 0.3, 0.2, 0.6]
    found = calibrate("fixed", lines, reference=robust, temperature=2.0)
    kept = [i for i, r in enumerate(robust) if r is not None]
    truth = [robust[i] for i in kept]
    assert found.temperature == 2.0
    for value, t in ((found.reference, 2.0), (found.reference_before, 1.0)):
        assert value == pytest.approx(spearmanr(plain_class_means(data, t).mean(axis=1)[kept], truth).statistic)
    assert found.reference_accuracy == pytest.approx(
        spearmanr(plain_accuracy(data).mean(axis=1)[kept], truth).statistic
    )


def test_what_a_reader_must_know_is_said() -> None:
    """GF's published numbers, as sentences."""
    found = CalibrationResult("class-accuracy", 2.7, objective=0.871, at_edge=True, plateau=(2.7, 3.0))
    notes = calibration_notes(found, Estimate(0.5196), Estimate(0.6618), Estimate(0.8627), 17)
    text = " ".join(notes)
    assert "Calibration lowers the rank correlation with the reference" in text
    assert "from 0.662 to 0.520" in text
    assert "Clean accuracy alone ranks closer to the reference (0.863)" in text
    assert "edge of the grid" in text
    assert "from T = 2.7 to 3" in text
    assert calibration_notes(CalibrationResult("fixed", 1.0), Estimate(0.7), Estimate(0.7), Estimate(0.6), 5) == ()


def test_undefined_says_why() -> None:
    lines = curves(fleet(3))
    assert "at least 3, there are 2" in calibrate("fleet-accuracy", lines[:2], grid=GRID).reason
    assert "same clean accuracy" in calibrate("fleet-accuracy", [lines[0]] * 3, grid=GRID).reason
    assert "no models" in calibrate("class-accuracy", [], grid=GRID).reason
    assert calibrate("class-accuracy", lines[:1], grid=GRID).temperature is not None
    same = [ClassCurve(c.nodes, c.sums, c.counts, np.full_like(c.counts, 30)) for c in lines]
    assert "all alike" in calibrate("class-accuracy", same, grid=GRID).reason
    few = [ClassCurve(c.nodes, c.sums[:, :2], c.counts[:2], c.correct[:2]) for c in lines]
    assert "over classes needs at least 3, there are 2" in calibrate("ranking-stability", few, grid=GRID).reason
    empty = ClassCurve(lines[0].nodes, lines[0].sums * 0, lines[0].counts * 0, lines[0].correct * 0)
    assert "no samples" in calibrate("fleet-accuracy", [*lines, empty], grid=GRID).reason
    alone = calibrate("fixed", lines[:2], reference=[0.5, 0.6], temperature=1.0)
    assert alone.reference is None
    assert "No reference ranking was checked" in alone.notes[0]


def test_a_missing_class_stays_out() -> None:
    data = [(z[y != 2], y[y != 2]) for z, y in fleet(4)]
    found = calibrate("class-accuracy", curves(data), grid=GRID)
    assert found.temperature is not None
    assert all(v is not None for v in found.curve)


def test_faults_are_named() -> None:
    lines = curves(fleet(5))
    with pytest.raises(MeasureError, match="one of fixed"):
        calibrate("best", lines)
    with pytest.raises(MeasureError, match="6 values"):
        calibrate("fixed", lines, reference=[0.1])
    with pytest.raises(MeasureError, match="temperature"):
        calibrate("fixed", lines, temperature=-1.0)
