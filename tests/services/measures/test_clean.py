"""Clean accuracy as a measure."""

from __future__ import annotations

import numpy as np
import pytest

from services.errors import MeasureError
from services.measures.catalogue import MEASURES, measure_from
from services.measures.clean import Brier, Clean


def test_columns() -> None:
    logits = np.array([[2, 1, 0], [1, 1, 0], [0, np.nan, 1], [0, 1, 5]], dtype=np.float32)
    columns = Clean().from_logits(logits, np.array([0, 0, 2, 1]))
    np.testing.assert_array_equal(columns["clean"], [1.0, 0.0, 0.0, 0.0])
    np.testing.assert_array_equal(columns["predicted"], [0, 0, -1, 2])
    np.testing.assert_array_equal(columns["correct"], columns["clean"] == 1)
    np.testing.assert_array_equal(columns["finite"], [True, True, False, True])
    assert {column.shape for column in columns.values()} == {(4,)}


def test_shards_equal_the_whole() -> None:
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(50, 6)), rng.integers(0, 6, 50)
    whole = Clean().from_logits(logits, labels)
    for name, column in whole.items():
        parts = [Clean().from_logits(logits[s], labels[s])[name] for s in (slice(0, 7), slice(7, 50))]
        np.testing.assert_array_equal(np.concatenate(parts), column)
    assert Clean().from_logits(logits[:0], labels[:0])["clean"].shape == (0,)


def test_series_and_registry() -> None:
    (series,) = Clean().series()
    assert (series.key, series.bound, series.binary) == ("clean", 1.0, True)
    assert MEASURES.get("clean") is Clean
    assert measure_from(Clean().canonical()) == Clean()
    with pytest.raises(MeasureError, match="labels"):
        Clean().from_logits(np.zeros((2, 3)), np.array([0, 5]))


def test_brier_is_a_naive_loop_and_keeps_confidence() -> None:
    rng = np.random.default_rng(1)
    logits, labels = rng.normal(size=(40, 5)).astype(np.float32) * 3, rng.integers(0, 5, 40)
    logits[0, :], logits[1, 2] = 0.0, np.inf
    columns = Brier().from_logits(logits, labels)
    for i in range(2, 40):
        shares = np.exp(logits[i].astype(float)) / np.exp(logits[i].astype(float)).sum()
        squares = sum((shares[k] - (k == labels[i])) ** 2 for k in range(5))
        assert columns["brier"][i] == pytest.approx(1 - squares / 2, abs=1e-9)
        assert columns["confidence"][i] == pytest.approx(shares.max(), abs=1e-9)
    np.testing.assert_array_equal(columns["correct"], Clean().from_logits(logits, labels)["correct"])
    assert (columns["brier"][1], columns["confidence"][1], columns["correct"][1]) == (0.0, 1.0, False)
    assert columns["confidence"][0] == pytest.approx(0.2) and not columns["correct"][0]
    assert columns["brier"].min() >= 0 and columns["brier"].max() <= 1
    assert Brier().from_logits(logits[:0], labels[:0])["brier"].shape == (0,)
