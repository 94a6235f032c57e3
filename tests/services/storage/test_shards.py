"""Shards: what is written is read back; what is missing is found whatever the shard size; torn files are named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.errors import StorageError
from services.storage.shards import (
    chain,
    finished_ranges,
    missing_ranges,
    read_shard,
    read_table,
    shard_name,
    shard_ranges,
    write_shard,
)


def test_columns_come_back_bit_for_bit(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    columns = {
        "id": np.arange(5),
        "logits": rng.normal(size=(5, 3)).astype(np.float32),
        "score": np.array([0.1, np.nan, np.inf, -0.0, 1.0]),
        "correct": np.array([True, False, True, True, False]),
    }
    write_shard(str(tmp_path / "a" / shard_name(0, 5)), columns)
    back = read_shard(str(tmp_path / "a" / shard_name(0, 5)))
    for name, values in columns.items():
        assert back[name].dtype == values.dtype
        assert back[name].tobytes() == values.tobytes()


def test_a_slice_of_logits_is_written_as_itself(tmp_path: Path) -> None:
    logits = np.arange(30, dtype=np.float32).reshape(10, 3)
    write_shard(str(tmp_path / "x.parquet"), {"logits": logits[4:7]})
    assert np.array_equal(read_shard(str(tmp_path / "x.parquet"))["logits"], logits[4:7])


def test_a_torn_shard_is_named(tmp_path: Path) -> None:
    path = tmp_path / shard_name(0, 5)
    write_shard(str(path), {"id": np.arange(5)})
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(StorageError, match=r"000000000-000000005.parquet: expected a Parquet shard"):
        read_shard(str(path))


def test_a_shard_without_its_end_is_not_finished(tmp_path: Path) -> None:
    for start in (0, 5, 10):
        write_shard(str(tmp_path / shard_name(start, start + 5)), {"id": np.arange(start, start + 5)})
    torn, empty = (tmp_path / shard_name(start, start + 5) for start in (5, 10))
    torn.write_bytes(torn.read_bytes()[:-1])
    empty.write_bytes(b"")
    assert finished_ranges(str(tmp_path)) == {(0, 5)}


def test_a_shard_of_a_newer_schema_is_refused(tmp_path: Path) -> None:
    table = pa.table({"id": [1]}).replace_schema_metadata({"schema_version": "999"})
    pq.write_table(table, tmp_path / "new.parquet")
    with pytest.raises(StorageError, match="expected schema_version up to 1, found 999; update classwise"):
        read_shard(str(tmp_path / "new.parquet"))


def test_a_table_with_a_hole_is_refused(tmp_path: Path) -> None:
    write_shard(str(tmp_path / shard_name(0, 2)), {"id": np.arange(2)})
    write_shard(str(tmp_path / shard_name(3, 5)), {"id": np.arange(2)})
    with pytest.raises(StorageError, match="expected shards that cover 5 rows"):
        read_table(str(tmp_path), 5)


def test_partial_files_are_not_shards(tmp_path: Path) -> None:
    (tmp_path / f".{shard_name(0, 2)}.1234.part").write_bytes(b"half")
    assert finished_ranges(str(tmp_path)) == set()
    assert finished_ranges(str(tmp_path / "absent")) == set()


@given(
    st.integers(0, 60),
    st.integers(1, 20),
    st.lists(st.tuples(st.integers(0, 70), st.integers(1, 20)).map(lambda p: (p[0], p[0] + p[1])), max_size=12),
)
def test_finished_and_missing_make_the_whole(count: int, size: int, finished: list[tuple[int, int]]) -> None:
    missing = missing_ranges(count, size, finished)
    rows = sorted(row for pair in [*missing, *chain(count, finished)] for row in range(*pair))
    assert rows == list(range(count))
    assert all(stop - start <= size for start, stop in missing)
    assert chain(count, [*finished, *missing]) == [] or missing_ranges(count, size, [*finished, *missing]) == []


def test_an_exact_cover_is_found_among_ranges_of_two_sizes() -> None:
    thousands, odd = shard_ranges(4000, 1000), [(0, 1500), (500, 1500), (1500, 2500)]
    assert chain(4000, [*odd, *thousands]) == thousands
    assert missing_ranges(4000, 1000, [*odd, *thousands]) == []
