"""Labels that are not labels, each with its message."""

from __future__ import annotations

import numpy as np
import pytest

from services.errors import SourceError
from services.loading.samples.labels import checked_labels


def test_whole_numbers_and_names() -> None:
    labels, classes = checked_labels(np.array([0, 2, 1], dtype=np.uint8), None, count=3, where="x")
    assert labels.dtype == np.int64
    assert classes == ("0", "1", "2")
    labels, classes = checked_labels(np.array(["cat", "ant", "cat"]), None, count=3, where="x")
    assert labels.tolist() == [1, 0, 1]
    assert classes == ("ant", "cat")


def test_a_class_without_samples_stays() -> None:
    assert checked_labels(np.array([0, 0]), ("a", "b"), count=2, where="x")[1] == ("a", "b")


@pytest.mark.parametrize(
    ("raw", "classes", "message"),
    [
        (np.eye(3), None, r"found one-hot rows \(3, 3\); store labels.argmax"),
        (np.array([0.0, 1.5, np.nan]), None, "found float64, 2 of 3 not whole; store them as int64"),
        (np.array([0, -1, -2]), None, "found 2 of 3 negative, least -2"),
        (np.array([0, 5, 9]), ("a", "b"), r"labels below K = 2, found 2 of 3 beyond \(largest 9\)"),
        (np.array([0, 1]), None, r"labels \(3,\), one an image, found shape \(2,\)"),
        (np.array(["a", "b", "z"]), ("a", "b"), "found 1 of 3 unknown, for example 'z'"),
        (np.array([True, False, True]), None, "labels of an integer type, found bool"),
        (np.array([0, 1, 1]), ("a", "a"), "distinct class names"),
        (np.array([0, 1, 1]), ("a", "b" * 1001), "names of at most 1,000 characters, found one of 1,001"),
        (np.array([0, 1, 1]), tuple(map(str, range(100_001))), "at most 100,000 classes, found 100,001"),
        (np.array(["a", "a", "b" * 1001]), None, "names of at most 1,000 characters, found one of 1,001"),
    ],
)
def test_refused(raw: np.ndarray, classes: tuple[str, ...] | None, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        checked_labels(raw, classes, count=3, where="samples (labels)")


def test_negative_and_beyond_are_told_together() -> None:
    with pytest.raises(SourceError) as caught:
        checked_labels(np.array([-1, 7, 0]), ("a", "b"), count=3, where="x")
    assert len(caught.value.problems) == 2
