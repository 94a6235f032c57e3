"""Temperature policies: the optimum against a plain search, and what is said about it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr

from services.errors import MeasureError
from services.numerics.calibration import (
    Grid,
    Policy,
    calibrate,
    calibration_notes,
    mean_defined,
    plateau_around,
    stability_of,
)
from services.numerics.great import great_scores
from services.numerics.temperature import ClassCurve, TemperatureNodes
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
    calibration = calibrate(policy, curves(data), grid=GRID)
    accuracy = plain_accuracy(data)

    def objective(t: float) -> float:
        means = plain_class_means(data, t)
        if policy == "fleet-accuracy":
            return float(spearmanr(means.mean(axis=1), accuracy.mean(axis=1)).statistic)
        if policy == "class-accuracy":
            return float(np.mean([spearmanr(m, a).statistic for m, a in zip(means, accuracy, strict=True)]))
        near = [plain_class_means(data, min(3.0, max(0.1, t + d))) for d in (-0.05, -0.025, 0.025, 0.05)]
        return float(np.mean([min(spearmanr(m, o[i]).statistic for o in near) for i, m in enumerate(means)]))

    for index in range(0, len(calibration.grid), 7):
        assert calibration.curve[index] == pytest.approx(objective(calibration.grid[index]), abs=1e-9)
    assert calibration.objective == pytest.approx(objective(calibration.temperature), abs=1e-9)
    assert calibration.objective == max(v for v in calibration.curve if v is not None)
    assert calibration.plateau[0] == calibration.temperature <= calibration.plateau[1]
    inside = [
        v
        for t, v in zip(calibration.grid, calibration.curve, strict=True)
        if calibration.plateau[0] <= t <= calibration.plateau[1]
    ]
    assert inside == pytest.approx([calibration.objective] * len(inside))
    assert calibration.at_edge == (calibration.plateau[0] == 0.1 or calibration.plateau[1] == 3.0)


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
    calibration = calibrate("fixed", lines, reference=robust, temperature=2.0)
    kept = [i for i, r in enumerate(robust) if r is not None]
    truth = [robust[i] for i in kept]
    assert calibration.temperature == 2.0
    for value, t in ((calibration.reference, 2.0), (calibration.reference_before, 1.0)):
        assert value == pytest.approx(spearmanr(plain_class_means(data, t).mean(axis=1)[kept], truth).statistic)
    assert calibration.reference_accuracy == pytest.approx(
        spearmanr(plain_accuracy(data).mean(axis=1)[kept], truth).statistic
    )


def test_what_a_reader_must_know_is_said() -> None:
    """GF's published numbers, as sentences."""
    calibration = CalibrationResult("class-accuracy", 2.7, objective=0.871, at_edge=True, plateau=(2.7, 3.0))
    notes = calibration_notes(calibration, Estimate(0.5196), Estimate(0.6618), Estimate(0.8627), 17)
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
    calibration = calibrate("class-accuracy", curves(data), grid=GRID)
    assert calibration.temperature is not None
    assert all(v is not None for v in calibration.curve)


def test_faults_are_named() -> None:
    lines = curves(fleet(5))
    with pytest.raises(MeasureError, match="one of fixed"):
        calibrate("best", lines)
    with pytest.raises(MeasureError, match="6 values"):
        calibrate("fixed", lines, reference=[0.1])
    with pytest.raises(MeasureError, match="temperature"):
        calibrate("fixed", lines, temperature=-1.0)


def line(means: list[list[float]], correct: list[int], counts: list[int] | None = None) -> ClassCurve:
    """A curve with given class means at the ends of one octave, linear in log T between: two nodes at T and 2 T."""
    nodes = TemperatureNodes(1.0, 1, 2)
    ends = nodes.interpolation(np.array([1.0, 2.0]))
    number = np.array(counts or [10] * len(correct))
    at_nodes = np.linalg.solve(ends, np.array(means, dtype=float))
    return ClassCurve(nodes, at_nodes * number, number, np.array(correct))


def test_grids_to_the_last_digit() -> None:
    grid = Grid(low=0.1, high=0.35, step=0.1, fine_step=0.05, window=2)
    assert grid.coarse().tolist() == [0.1, 0.2, 0.3, 0.35]
    assert grid.fine(0.2).tolist() == [0.1, 0.15, 0.2, 0.25, 0.3, 0.35]
    assert Grid(low=0.1, high=3.0, step=0.1, fine_step=0.05, window=1).fine(1.0).tolist() == [0.9, 0.95, 1.0, 1.05, 1.1]
    assert Grid(low=0.1, high=0.4, step=0.1).coarse().tolist() == [0.1, 0.2, 0.3, 0.4]


def test_steps_are_rounded_to_twelve_decimals() -> None:
    assert Grid(low=0.1, high=0.5, step=1 / 7).coarse()[1] == round(0.1 + 1 / 7, 12)


@pytest.mark.parametrize("place", range(5))
def test_each_of_the_four_neighbours_counts_for_stability(place: int) -> None:
    """Three classes whose order is turned at one of T - d, T - d/2, T, T + d/2, T + d alone."""
    around = np.array([1.1, 1.3, 1.5, 1.7, 1.9])
    means = np.tile([0.1, 0.2, 0.3], (5, 1))
    means[place] = means[place, ::-1]
    nodes = TemperatureNodes(1.0, 1, 5)
    at_nodes = np.linalg.solve(nodes.interpolation(around), means)
    curve = ClassCurve(nodes, at_nodes * 10, np.full(3, 10), np.array([1, 2, 3]))
    grid = Grid(low=1.1, high=1.9, neighbourhood=0.4)
    assert stability_of(curve, np.array([1.5]), grid).tolist() == [-1.0]
    assert stability_of(curve, np.array([1.9, 1.1]), grid).shape == (2,)


def test_nodes_reach_the_ends_one_and_what_is_asked() -> None:
    assert Grid(low=2.0, high=5.0).nodes("sigmoid") == TemperatureNodes(1.0, 3, 10)
    assert Grid(low=0.5, high=0.75).nodes("softmax") == TemperatureNodes(0.5, 1, 16)
    assert Grid(low=0.5, high=1.0).nodes("sigmoid", also=4.0) == TemperatureNodes(0.5, 3, 10)
    assert Grid(low=0.5, high=1.0).nodes("sigmoid", also=0.25) == TemperatureNodes(0.25, 2, 10)
    assert Grid(low=1.0, high=1.0).nodes("sigmoid") == TemperatureNodes(1.0, 1, 10)


@pytest.mark.parametrize("change", [{"low": 0.0}, {"low": 3.0}, {"step": 0.0}, {"fine_step": 0.0}])
def test_a_grid_of_nothing_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(MeasureError):
        replace(GRID, **change).coarse()


def test_models_where_a_correlation_is_undefined_stay_out_of_the_mean() -> None:
    rows = [np.array([np.nan, np.nan, 1.0]), np.array([np.nan, 0.5, 0.0])]
    np.testing.assert_array_equal(mean_defined(rows), [np.nan, 0.5, 0.5])


RISING, FALLING = [[0.1, 0.2, 0.3], [0.1, 0.2, 0.3]], [[0.3, 0.2, 0.1], [0.3, 0.2, 0.1]]
CROSSING = [[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]]
"""Class means at T = 1 and T = 2; crossing ones are all alike half-way, at T = sqrt(2)."""
SMALL = Grid(low=1.0, high=2.0, step=0.25, fine_step=0.125, window=1)


def test_the_whole_of_a_calibration() -> None:
    calibration = calibrate("class-accuracy", [line(CROSSING, [1, 2, 3])], grid=SMALL)
    assert calibration.policy == "class-accuracy"
    assert (calibration.temperature, calibration.objective, calibration.at_edge, calibration.plateau) == (
        1.0,
        1.0,
        True,
        (1.0, 1.25),
    )
    assert calibration.best_share == 0.4
    assert "It has that value on 40 % of the grid, there and elsewhere." in calibration.notes
    assert calibration.grid == (1.0, 1.125, 1.25, 1.5, 1.75, 2.0)
    assert calibration.curve == (1.0, 1.0, 1.0, -1.0, -1.0, -1.0)


def test_a_plateau_inside_the_grid_is_not_at_its_edge() -> None:
    grid = Grid(low=1.0, high=2.0, step=0.25, fine_step=0.25, window=1)
    assert plateau_around(np.array([0.0, 1.0, 1.0 - 1e-10, 1.0 + 1e-10, 0.5]), 2) == (1, 3)
    assert plateau_around(np.array([1.0, 1.0, 1.0]), 1) == (0, 2)
    assert plateau_around(np.array([0.0, 1.0, 0.0]), 1) == (1, 1)
    assert plateau_around(np.array([0.0, 1e-9, 2e-9]), 0) == (0, 1)
    right = calibrate("class-accuracy", [line(CROSSING, [3, 2, 1])], grid=grid)
    assert (right.temperature, right.plateau, right.at_edge) == (1.5, (1.5, 2.0), True)
    around = calibrate("class-accuracy", [line(CROSSING, [3, 2, 1])], grid=SMALL)
    assert around.grid == (1.0, 1.25, 1.375, 1.5, 1.625, 1.75, 2.0)


def test_an_undefined_objective_is_none_in_the_curve() -> None:
    """From T = 1.5 all means are 0, which no rank correlation can order."""
    gone = line([[0.1, 0.2, 0.3], [-0.1, -0.2, -0.3]], [1, 2, 3])
    assert calibrate("class-accuracy", [gone], grid=SMALL).curve == (1.0, 1.0, 1.0, None, None, None)


def test_fixed_needs_nothing_and_says_what_it_saw() -> None:
    lines = [line(RISING, [1, 2, 3]), line(FALLING, [2, 2, 3]), line(CROSSING, [3, 3, 3])]
    alone = calibrate("fixed", [], temperature=2.0)
    assert alone == CalibrationResult(
        "fixed",
        2.0,
        notes=(
            "No reference ranking was checked: 0 models declare a robust accuracy; a rank correlation needs at least 3 "
            "values, there are 0.",
        ),
    )
    assert calibrate("fixed", lines).temperature == 1.0
    two = calibrate("fixed", lines, reference=[0.5, None, 0.6]).notes
    assert two == (
        "No reference ranking was checked: 2 models declare a robust accuracy; a rank correlation needs at least 3 "
        "values, there are 2.",
    )


def test_a_model_without_samples_has_no_place_in_the_reference() -> None:
    lines = [line(RISING, [k, k, k]) for k in (1, 2, 3)]
    empty = ClassCurve(lines[0].nodes, lines[0].sums * 0, lines[0].counts * 0, lines[0].correct * 0)
    calibration = calibrate("fixed", [*lines, empty], reference=[0.1, 0.2, 0.3, 0.05])
    assert calibration.reference_accuracy == 1.0


@pytest.mark.parametrize("policy", ["fixed", "class-accuracy"])
def test_every_policy_is_held_against_the_reference(policy: Policy) -> None:
    lines = [line(RISING, [k, k + 1, k + 2]) for k in (1, 2, 3)]
    assert calibrate(policy, lines, grid=SMALL, reference=[0.1, 0.2, 0.3]).reference_accuracy == 1.0


def test_three_are_enough_for_a_rank_correlation() -> None:
    different = [line(RISING, [k, k, k]) for k in (1, 2, 3)]
    assert "needs at least 3" not in calibrate("fleet-accuracy", different, grid=SMALL).reason
    two_classes = line([[0.1, 0.2], [0.1, 0.2]], [1, 2])
    assert calibrate("class-accuracy", [two_classes, line(RISING, [1, 2, 3])], grid=SMALL).temperature == 1.0


@pytest.mark.parametrize(
    ("policy", "lines", "reason"),
    [
        ("class-accuracy", [], "there are no models"),
        ("class-accuracy", [line(RISING, [1, 2, 3]), line(RISING, [0] * 3, [0] * 3)], "a model has no samples"),
        (
            "fleet-accuracy",
            [line(RISING, [1, 2, 3])] * 2,
            "a rank correlation over models needs at least 3, there are 2",
        ),
        ("fleet-accuracy", [line(RISING, [1, 2, 3])] * 3, "all models have the same clean accuracy"),
        (
            "ranking-stability",
            [line([[0.1, 0.2], [0.1, 0.2]], [1, 2])],
            "a rank correlation over classes needs at least 3, there are 2",
        ),
        ("class-accuracy", [line(RISING, [2, 2, 2])], "scores or accuracies are all alike at every temperature"),
    ],
)
def test_too_little_to_go_by(policy: Policy, lines: list[ClassCurve], reason: str) -> None:
    assert calibrate(policy, lines, grid=SMALL) == CalibrationResult(policy, None, reason=reason)


WIDE = CalibrationResult("class-accuracy", 2.7, plateau=(2.7, 3.0))
EDGE = CalibrationResult("class-accuracy", 2.7, at_edge=True, plateau=(2.7, 2.7))
PLAIN = CalibrationResult("class-accuracy", 2.7)
NONE = Estimate(None, reason="too few")
LOWER = "Calibration lowers the rank correlation with the reference robust accuracies from 0.600 to 0.500."
CLOSER = "Clean accuracy alone ranks closer to the reference (0.700) than the scores do (0.500)."


@pytest.mark.parametrize(
    ("found", "after", "before", "alone", "notes"),
    [
        (PLAIN, 0.5, 0.5, 0.5, ()),
        (PLAIN, 0.5, None, None, ()),
        (PLAIN, 0.0, 1e-9, 1e-9, ()),
        (PLAIN, 0.5, 0.6, 0.5, (LOWER,)),
        (PLAIN, 0.5, 0.5, 0.7, (CLOSER,)),
        (PLAIN, 0.5, 0.6, 0.7, (LOWER, CLOSER)),
        (
            WIDE,
            0.5,
            0.4,
            0.4,
            ("The objective keeps its best value from T = 2.7 to 3: T = 2.7 is one of many equal choices.",),
        ),
        (
            EDGE,
            None,
            0.6,
            0.7,
            (
                "The best temperature reaches the edge of the grid: the grid chose it, not the objective.",
                "No reference ranking was checked: 17 models declare a robust accuracy; too few.",
            ),
        ),
    ],
)
def test_the_notes_whole(
    found: CalibrationResult,
    after: float | None,
    before: float | None,
    alone: float | None,
    notes: tuple[str, ...],
) -> None:
    sides = (NONE if value is None else Estimate(value) for value in (after, before, alone))
    assert calibration_notes(found, *sides, 17) == notes
