"""Clean accuracy as a measure."""

from __future__ import annotations

import numpy as np
import pytest

from services.errors import MeasureError
from services.measures.catalogue import MEASURES, measure_from
from services.measures.clean import Clean


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
