"""Every message of the numerics that work on images, logits, temperatures and projections, whole."""

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
from services.numerics.composite import composite
from services.numerics.profile import Profile
from services.numerics.scores import check_activation, check_logits, great_scores
from services.numerics.temperature import ClassCurve, TemperatureNodes, class_sums

NAN, INF = math.nan, math.inf
LEVEL = "expected a number strictly between 0 and 1, found"
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
        patch.setattr(profile, "_MOST", 1)
        return Profile.from_scores(X, TWO, 1, bound=1.0)


def sums(logits: np.ndarray, temperatures: Any, **change: Any) -> Any:
    options = {"n_classes": 3, "activation": "sigmoid", **change}
    return class_sums(
        logits, np.zeros(len(logits), int), options.pop("n_classes"), temperatures=temperatures, **options
    )


CASES: list[tuple[Callable[[], Any], str]] = [
    # calibration
    (
        lambda: Grid(low=2.0, high=1.0).coarse(),
        "grid: expected 0 < low < high and positive steps, found Grid(low=2.0, high=1.0, step=0.1, fine_step=0.001, "
        "window=5, neighbourhood=0.05)",
    ),
    (
        lambda: calibrate("best", []),  # type: ignore[arg-type]
        "policy: expected one of fixed, fleet-accuracy, class-accuracy, ranking-stability, found 'best'",
    ),
    (lambda: calibrate("fixed", [CURVE], reference=[0.1, 0.2]), "reference: expected 1 values, one a model, found 2"),
    (
        lambda: calibrate("fixed", [CURVE], temperature=-1.0),
        "temperature: expected a positive finite number, found -1.0",
    ),
    # colours and strokes
    (
        lambda: colour(np.zeros((1, 1, 2, 2))),
        "images: expected 3 channels for the attribute colour, found 1",
    ),
    (
        lambda: brightness(np.zeros((1, 2, 2, 2))),
        "images: expected shape (N, C, H, W) with C of 1 or 3, found shape (1, 2, 2, 2)",
    ),
    (
        lambda: brightness(np.zeros((3, 3, 3))),
        "images: expected shape (N, C, H, W) with C of 1 or 3, found shape (3, 3, 3)",
    ),
    *(
        (
            lambda images=images: slant(images),  # type: ignore[misc]
            f"images: expected finite numbers of at least 0, (N, H, W), found shape {images.shape}",
        )
        for images in (np.zeros((2, 2)), np.full((1, 2, 2), NAN), np.full((1, 2, 2), -0.5))
    ),
    # profiles
    (crowded, "groups: expected at most 1 samples a group, found 2"),
    (lambda: Profile.from_scores(X, ONE, 1, bound=1.0), "groups: expected shape (2,), found shape (1,)"),
    (lambda: Profile.from_scores(X, TWO, 1, bound=0.0), "bound: expected a positive finite number, found 0.0"),
    (lambda: Profile.merge([]), "profiles: expected at least one, found none"),
    (
        lambda: Profile.merge([GROUP, Profile.from_scores(X, TWO, 2, bound=1.0)]),
        "profiles: expected one bound and one number of groups, found [(1.0, 1), (1.0, 2)]",
    ),
    # projections
    *(
        (
            lambda shape=shape: boundaries(positions=np.zeros(shape)),  # type: ignore[misc]
            f"positions: expected shape (S, D, 2) with D >= 1, found shape {shape}",
        )
        for shape in ((3, 2), (2, 3, 3), (2, 0, 2))
    ),
    (
        lambda: boundaries(censored=np.zeros((2, 1, 2))),
        "censored: expected shape (2, 3, 2) of the positions, found shape (2, 1, 2)",
    ),
    (lambda: boundaries(centre=np.zeros(2)), "centre: expected 3 finite numbers, one a dimension, found shape (2,)"),
    (lambda: boundaries(unit=np.full(3, INF)), "unit: expected 3 finite numbers, one a dimension, found shape (3,)"),
    (lambda: boundaries(unit=np.array([0, 1, -1])), "unit: expected positive numbers, found 2 of 3 not positive"),
    (
        lambda: boundaries(positions=np.full((2, 3, 2), 0.5)),
        "positions: expected within one unit of the centre, each on its side, found 6 outside or NaN",
    ),
    (lambda: projection_metrics(boundaries(), delta=0.0), f"delta: {LEVEL} 0.0"),
    (lambda: metrics_by_group(boundaries(), ONE, 1), "groups: expected shape (2,), found shape (1,)"),
    # scores and temperatures
    (lambda: check_logits(X, TWO), "logits: expected shape (N, K) with at least two classes, found shape (2,)"),
    (
        lambda: check_logits(np.zeros((2, 1)), TWO),
        "logits: expected shape (N, K) with at least two classes, found shape (2, 1)",
    ),
    (
        lambda: check_logits(LOGITS.astype(int), TWO),
        "logits: expected floating point numbers, found dtype int64",
    ),
    (
        lambda: check_logits(LOGITS, np.array([0, 3])),
        "labels: expected integers in [0, 3), found 1 of 2 outside, from 0 to 3",
    ),
    (lambda: check_activation("relu"), "activation: expected 'sigmoid' or 'softmax', found 'relu'"),
    (
        lambda: great_scores(LOGITS, TWO, temperature=1.0, activation="relu"),  # type: ignore[arg-type]
        "activation: expected 'sigmoid' or 'softmax', found 'relu'",
    ),
    (
        lambda: great_scores(LOGITS, TWO, temperature=0.0, activation="sigmoid"),
        "temperature: expected a positive finite number, found 0.0",
    ),
    (
        lambda: TemperatureNodes.covering(2.0, 1.0, activation="sigmoid"),
        "high: expected a temperature above 2.0, found 1.0",
    ),
    (
        lambda: TemperatureNodes.covering(1.0, 1.0, activation="sigmoid"),
        "high: expected a temperature above 1.0, found 1.0",
    ),
    (
        lambda: TemperatureNodes.covering(0.0, 1.0, activation="sigmoid"),
        "temperature: expected a positive finite number, found 0.0",
    ),
    (
        lambda: TemperatureNodes.covering(1.0, INF, activation="sigmoid"),
        "temperature: expected a positive finite number, found inf",
    ),
    (
        lambda: TemperatureNodes.covering(1.0, 2.0, activation="relu"),  # type: ignore[arg-type]
        "activation: expected 'sigmoid' or 'softmax', found 'relu'",
    ),
    (lambda: NODES.interpolation(np.array([1.0, 4.1])), "temperatures: expected within [0.5, 4.0], found others"),
    (lambda: NODES.interpolation(np.array([0.4, 1.0])), "temperatures: expected within [0.5, 4.0], found others"),
    *(
        (
            lambda grid=grid: sums(LOGITS, np.array(grid)),  # type: ignore[misc]
            f"temperatures: expected positive finite numbers, shape (T,), found shape {np.shape(grid)}",
        )
        for grid in (1.0, [0.0], [INF])
    ),
    (lambda: sums(LOGITS, [1.0], n_classes=2), "logits: expected 2 classes, found 3"),
    (lambda: sums(LOGITS, [1.0], activation="relu"), "activation: expected 'sigmoid' or 'softmax', found 'relu'"),
    (lambda: ClassCurve.merge([]), "curves: expected at least one shard, all at the same nodes, found 0 shards"),
    (
        lambda: ClassCurve.merge([CURVE, ClassCurve(TemperatureNodes(0.5, 1, 10), CURVE.sums, TWO, TWO)]),
        "curves: expected at least one shard, all at the same nodes, found 2 shards",
    ),
]


@pytest.mark.parametrize(("call", "message"), CASES, ids=[message[:60] for _, message in CASES])
def test_the_whole_message(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(MeasureError) as caught:
        call()
    assert str(caught.value) == message
