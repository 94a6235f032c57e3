from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from services.storage import pickles


class Given:
    """Pickled as the call of a function, and a state that what it returns is then given."""

    def __init__(self, call: Any, arguments: tuple[Any, ...], state: Any = None) -> None:
        self.parts = call, arguments, state

    def __reduce__(self) -> Any:
        return self.parts


EMPTY = np.zeros(0, np.uint8).__reduce__()[0]
"""What NumPy names in a pickle to make an array without content."""
NUMBERS = (np.dtype, ("V8", False, True))
FLAGS = 16
"""Of a dtype of objects, without that which says so."""


def array(shape: tuple[int, ...], kind: Any, data: Any) -> Given:
    return Given(EMPTY, (np.ndarray, (0,), b"b"), (1, shape, kind, False, data))


FORGED: dict[str, Any] = {
    "addresses": array((1,), Given(*NUMBERS, (3, "|", None, ("a",), {"a": (np.dtype("O"), 0)}, 8, 1, FLAGS)), b"A" * 8),
    "a built-in kind without its flags": array(
        (1,), Given(np.dtype, ("O8", False, True), (3, "|", None, None, None, 8, 8, 0)), b"A" * 8
    ),
    "objects": np.array([{}], dtype=object),
    "memory that nobody wrote": Given(np.ndarray, ((1 << 20,), "u1")),
    "another codec": Given(np.dtype, (Given(EMPTY, ()),)),
    "too few bytes": array((100,), np.dtype("u1"), b"A"),
    "a size below 0": array((-1,), np.dtype("u1"), b"A"),
}


@pytest.mark.parametrize("what", FORGED)
def test_no_state_of_a_file_reaches_the_memory(what: str) -> None:
    """With forged flags the bytes of an array are addresses of objects: who chooses them runs code."""
    data = pickle.dumps({b"data": FORGED[what]}, protocol=2)
    with pytest.raises(pickles.DAMAGE):
        pickles.load(io.BytesIO(data))


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
@pytest.mark.parametrize(
    "values",
    [
        np.arange(12, dtype=np.uint8).reshape(3, 4),
        np.asfortranarray(np.arange(12, dtype="<i8").reshape(3, 4)),
        np.arange(5, dtype=">f4"),
        np.array([True, False]),
    ],
    ids=lambda values: f"{values.dtype.str}{values.shape}",
)
def test_arrays_are_as_they_were_written(values: NDArray[Any], protocol: int) -> None:
    found = pickles.load(io.BytesIO(pickle.dumps({b"data": values, b"labels": [1, 2]}, protocol=protocol)))
    assert type(found[b"data"]) is np.ndarray
    assert found[b"data"].dtype == values.dtype.newbyteorder("=")
    assert np.array_equal(found[b"data"], values)
    assert found[b"labels"] == [1, 2]
