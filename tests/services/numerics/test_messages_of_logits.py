"""Faults of the numerics on images, logits, temperatures and projections: the argument, and what it was."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from services.errors import MeasureError
from services.numerics import profile
from services.numerics.attributes.colour import brightness, colour
from services.numerics.attributes.strokes import slant
from services.numerics.attributes.tolerance import Boundaries, metrics_by_group, projection_metrics
from services.numerics.calibration import Grid, calibrate
from services.numerics.great import check_activation, check_logits, great_scores
from services.numerics.profile import Profile
from services.numerics.ranking.composite import composite
from services.numerics.temperature import ClassCurve, TemperatureNodes, class_sums

NAN, INF = math.nan, math.inf
ONE, TWO = np.zeros(1, dtype=int), np.zeros(2, dtype=int)
X, LOGITS = np.array([0.25, 0.5]), np.zeros((2, 3))
NODES = TemperatureNodes(0.5, 3, 10)
CURVE = ClassCurve(NODES, np.zeros((30, 2)), TWO, TWO)
GROUP = Profile.from_scores(X, TWO, 1, bound=1.0)


def of(values: Any, **limits: Any) -> Any:
    """A composite of two metrics."""
    table = np.array(values, dtype=float)
    options = {"low": table, "high": table, "names": "ab", "weights": (1, 1), "lower_is_better": (False, False)}
    return composite(table, **{**options, **limits})


def boundaries(**change: Any) -> Any:
    good = {
        "positions": np.zeros((2, 3, 2)),
        "censored": np.zeros((2, 3, 2)),
        "centre": np.zeros(3),
        "unit": np.ones(3),
    }
    return Boundaries.of(**{**good, **change})


def crowded() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profile, "MOST_SAMPLES", 1)
        return Profile.from_scores(X, TWO, 1, bound=1.0)


def sums(logits: np.ndarray, temperatures: Any, **change: Any) -> Any:
    options = {"n_classes": 3, "activation": "sigmoid", **change}
    return class_sums(
        logits, np.zeros(len(logits), int), options.pop("n_classes"), temperatures=temperatures, **options
    )


# A call, the argument at fault, and what the message must hold, apart by " | ".
CASES: list[tuple[Callable[[], Any], str, str]] = [
    # calibration
    (
        lambda: Grid(low=2.0, high=1.0).coarse(),
        "grid",
        "(low=2.0, high=1.0, step=0.1, fine_step=0.001, window=5, neighbourhood=0.05)",
    ),
    (
        lambda: calibrate("best", []),  # type: ignore[arg-type]
        "policy",
        "'best'",
    ),
    (lambda: calibrate("fixed", [CURVE], reference=[0.1, 0.2]), "reference", "2"),
    (
        lambda: calibrate("fixed", [CURVE], temperature=-1.0),
        "temperature",
        "-1.0",
    ),
    # colours and strokes
    (
        lambda: colour(np.zeros((1, 1, 2, 2))),
        "images",
        "3 | 1",
    ),
    (
        lambda: brightness(np.zeros((1, 2, 2, 2))),
        "images",
        "(N, C, H, W) | 3 | (1, 2, 2, 2)",
    ),
    (
        lambda: brightness(np.zeros((3, 3, 3))),
        "images",
        "(N, C, H, W) | 3 | (3, 3, 3)",
    ),
    *(
        (
            lambda images=images: slant(images),  # type: ignore[misc]
            "images",
            f"(N, H, W) | {images.shape}",
        )
        for images in (np.zeros((2, 2)), np.full((1, 2, 2), NAN), np.full((1, 2, 2), -0.5))
    ),
    # profiles
    (crowded, "groups", "2"),
    (lambda: Profile.from_scores(X, ONE, 1, bound=1.0), "groups", "(2,) | (1,)"),
    (lambda: Profile.from_scores(X, TWO, 1, bound=0.0), "bound", "0.0"),
    (lambda: Profile.merge([]), "profiles", "none"),
    (
        lambda: Profile.merge([GROUP, Profile.from_scores(X, TWO, 2, bound=1.0)]),
        "profiles",
        "(1.0, 1) | (1.0, 2)",
    ),
    # projections
    *(
        (
            lambda shape=shape: boundaries(positions=np.zeros(shape)),  # type: ignore[misc]
            "positions",
            f"(S, D, 2) | {shape}",
        )
        for shape in ((3, 2), (2, 3, 3), (2, 0, 2))
    ),
    (
        lambda: boundaries(censored=np.zeros((2, 1, 2))),
        "censored",
        "(2, 3, 2) | (2, 1, 2)",
    ),
    (lambda: boundaries(centre=np.zeros(2)), "centre", "3 | (2,)"),
    (lambda: boundaries(unit=np.full(3, INF)), "unit", "3 | (3,)"),
    (lambda: boundaries(unit=np.array([0, 1, -1])), "unit", "2 | 3"),
    (
        lambda: boundaries(positions=np.full((2, 3, 2), 0.5)),
        "positions",
        "6 | NaN",
    ),
    (lambda: projection_metrics(boundaries(), delta=0.0), "delta", "0.0"),
    (lambda: metrics_by_group(boundaries(), ONE, 1), "groups", "(2,) | (1,)"),
    # scores and temperatures
    (lambda: check_logits(X, TWO), "logits", "(N, K) | (2,)"),
    (
        lambda: check_logits(np.zeros((2, 1)), TWO),
        "logits",
        "(N, K) | (2, 1)",
    ),
    (
        lambda: check_logits(LOGITS.astype(int), TWO),
        "logits",
        "int64",
    ),
    (
        lambda: check_logits(LOGITS, np.array([0, 3])),
        "labels",
        "[0, 3) | 1 | 2 | 0 | 3",
    ),
    (lambda: check_activation("relu"), "activation", "'sigmoid' | 'softmax' | 'relu'"),
    (
        lambda: great_scores(LOGITS, TWO, temperature=1.0, activation="relu"),  # type: ignore[arg-type]
        "activation",
        "'sigmoid' | 'softmax' | 'relu'",
    ),
    (
        lambda: great_scores(LOGITS, TWO, temperature=0.0, activation="sigmoid"),
        "temperature",
        "0.0",
    ),
    (
        lambda: TemperatureNodes.covering(2.0, 1.0, activation="sigmoid"),
        "high",
        "2.0 | 1.0",
    ),
    (
        lambda: TemperatureNodes.covering(1.0, 1.0, activation="sigmoid"),
        "high",
        "1.0",
    ),
    (
        lambda: TemperatureNodes.covering(0.0, 1.0, activation="sigmoid"),
        "temperature",
        "0.0",
    ),
    (
        lambda: TemperatureNodes.covering(1.0, INF, activation="sigmoid"),
        "temperature",
        "inf",
    ),
    (
        lambda: TemperatureNodes.covering(1.0, 2.0, activation="relu"),  # type: ignore[arg-type]
        "activation",
        "'sigmoid' | 'softmax' | 'relu'",
    ),
    (lambda: NODES.interpolation(np.array([1.0, 4.1])), "temperatures", "[0.5, 4.0]"),
    (lambda: NODES.interpolation(np.array([0.4, 1.0])), "temperatures", "[0.5, 4.0]"),
    *(
        (
            lambda grid=grid: sums(LOGITS, np.array(grid)),  # type: ignore[misc]
            "temperatures",
            f"(T,) | {np.shape(grid)}",
        )
        for grid in (1.0, [0.0], [INF])
    ),
    (lambda: sums(LOGITS, [1.0], n_classes=2), "logits", "2 | 3"),
    (lambda: sums(LOGITS, [1.0], activation="relu"), "activation", "'sigmoid' | 'softmax' | 'relu'"),
    (lambda: ClassCurve.merge([]), "curves", "0"),
    (
        lambda: ClassCurve.merge([CURVE, ClassCurve(TemperatureNodes(0.5, 1, 10), CURVE.sums, TWO, TWO)]),
        "curves",
        "2",
    ),
]


@pytest.mark.parametrize(("call", "where", "facts"), CASES, ids=[f"{where}: {facts}" for _, where, facts in CASES])
def test_a_fault_names_the_argument_and_what_it_was(call: Callable[[], Any], where: str, facts: str) -> None:
    with pytest.raises(MeasureError) as caught:
        call()
    (problem,) = caught.value.problems
    assert problem.where == where
    assert [fact for fact in facts.split(" | ") if fact not in str(caught.value)] == []
