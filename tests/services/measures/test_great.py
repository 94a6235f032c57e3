"""The GREAT score as a measure."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from services.measures.catalogue import MEASURES, measure_from
from services.measures.great import Great
from services.numerics.great import GREAT_BOUND, great_scores


def sample() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    logits = rng.normal(scale=3, size=(60, 5)).astype(np.float32) + 4
    logits[3, 1] = np.inf
    return logits, rng.integers(0, 5, 60)


@pytest.mark.parametrize(("activation", "key"), [("sigmoid", "great"), ("softmax", "great-softmax")])
def test_columns(activation: str, key: str) -> None:
    logits, labels = sample()
    measure = Great(activation=activation, temperature=2.0)
    columns = measure.from_logits(logits, labels)
    assert set(columns) == {key, "predicted", "correct", "saturated", "finite", "offset_free"}
    assert [series.key for series in measure.series()] == [key]
    great = great_scores(logits, labels, temperature=2.0, activation=activation)
    np.testing.assert_array_equal(columns[key], great.scores)
    assert columns["finite"].sum() == 59
    assert columns["predicted"][3] == -1
    differs = np.abs(columns["offset_free"] - columns[key]).max()
    assert differs > 1e-3 if activation == "sigmoid" else differs < 1e-12


def test_series_and_registry() -> None:
    (series,) = Great().series()
    assert (series.key, series.binary) == ("great", False)
    assert series.bound == GREAT_BOUND == pytest.approx(np.sqrt(np.pi / 2))
    assert "sigmoid" in series.title
    assert MEASURES.get("great") is Great
    calibrated = Great().model_copy(update={"temperature": 2.7})
    assert measure_from(calibrated.canonical()) == calibrated
    assert calibrated.canonical() != Great().canonical()


@pytest.mark.parametrize(
    "fields", [{"temperature": 0}, {"temperature": float("inf")}, {"activation": "relu"}, {"t": 1}]
)
def test_wrong_parameters_are_refused(fields: dict) -> None:
    with pytest.raises(ValidationError):
        Great(**fields)
