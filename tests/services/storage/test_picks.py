"""Shards of picked rows beside shards of ranges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from services.errors import StorageError
from services.storage import files
from services.storage.picks import finished_picks, kept_rows, known_rows, pick_name, read_rows
from services.storage.shards import finished_ranges, shard_name, write_shard


def columns(rows: list[int]) -> dict[str, np.ndarray]:
    return {"id": np.array(rows) + 100, "score": np.array(rows) / 10}


def write_pick(folder: Path, rows: list[int]) -> None:
    write_shard(files.join(str(folder), pick_name(rows)), {"row": np.array(rows), **columns(rows)})


@pytest.fixture
def table(tmp_path: Path) -> str:
    write_shard(files.join(str(tmp_path), shard_name(4, 6)), columns([4, 5]))
    write_pick(tmp_path, [9, 0, 3])
    write_pick(tmp_path, [7])
    return str(tmp_path)


def test_rows_are_known_and_read_from_both_kinds_in_the_order_asked_for(table: str) -> None:
    np.testing.assert_array_equal(np.flatnonzero(known_rows(table, 10)), [0, 3, 4, 5, 7, 9])
    read = read_rows(table, 10, np.array([5, 9, 0, 7]))
    np.testing.assert_array_equal(read["id"], [105, 109, 100, 107])
    np.testing.assert_allclose(read["score"], [0.5, 0.9, 0.0, 0.7])
    assert finished_ranges(table) == {(4, 6)} and len(finished_picks(table)) == 2


def test_a_row_that_is_missing_is_an_error(table: str) -> None:
    with pytest.raises(StorageError, match="missing"):
        read_rows(table, 10, np.array([5, 8]))


def test_picked_rows_of_a_range_come_once(table: str) -> None:
    write_pick(Path(table), [3, 2])
    kept = kept_rows(finished_picks(table), 1, 8)
    np.testing.assert_array_equal(kept["row"], [2, 3, 7])
    np.testing.assert_array_equal(kept["id"], [102, 103, 107])
    assert kept_rows(finished_picks(table), 4, 7) == {}


def test_rows_of_other_samples_are_refused(table: str) -> None:
    with pytest.raises(StorageError, match="rows"):
        known_rows(table, 8)
