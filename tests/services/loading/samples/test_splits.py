"""A folder that holds several splits is never read as one set of samples."""

from __future__ import annotations

from pathlib import Path, PurePath

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from services.errors import SourceError
from services.loading.samples.source import open_samples
from services.loading.samples.splits import UNNAMED, split_of
from services.records import SampleSpec


def table(path: Path, label: int, rows: int = 4) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(label).integers(0, 256, rows * 12, dtype=np.uint8)
    pixels = pa.FixedSizeListArray.from_arrays(pa.array(values), 12)
    pq.write_table(pa.table({"image": pixels, "label": pa.array([label % 2] * (rows - 1) + [1 - label % 2])}), path)


def labels(uri: str) -> list[int]:
    return open_samples(SampleSpec(f"{uri}{'&' if '?' in uri else '?'}shape=2x2x3")).labels.tolist()


@pytest.mark.parametrize(
    ("path", "split"),
    [
        ("train-00000-of-00002.parquet", "train"),
        ("data/Test-00001-of-00002.parquet", "test"),
        ("cifar10_val.parquet", "validation"),
        ("training/part-0.parquet", "train"),
        ("dev/a/0.parquet", "validation"),
        ("holdout-00000-of-00001.parquet", "holdout"),
        ("part-0001.parquet", UNNAMED),
        ("contest.parquet", UNNAMED),
        ("train/test.parquet", "test"),
    ],
)
def test_the_split_is_in_the_name(path: str, split: str) -> None:
    assert split_of(PurePath(path)) == split


@pytest.mark.parametrize(
    "names",
    [
        ("train-00000-of-00001.parquet", "test-00000-of-00001.parquet"),
        ("data/train.parquet", "data/test.parquet"),
        ("train/0.parquet", "test/0.parquet"),
        ("part-0.parquet", "test.parquet"),
        ("train_clean-00000-of-00001.parquet", "holdout-00000-of-00001.parquet", "test.parquet"),
    ],
)
def test_files_of_several_splits_are_asked_about(tmp_path: Path, names: tuple[str, ...]) -> None:
    for label, name in enumerate(names):
        table(tmp_path / name, label)
    with pytest.raises(SourceError, match=r"expected files of one split, found 1 .*\?split=test"):
        labels(f"parquet:{tmp_path}")
    place = next(place for place, name in enumerate(names) if "test" in name)
    assert labels(f"parquet:{tmp_path}?split=test") == [place % 2] * 3 + [1 - place % 2]
    with pytest.raises(SourceError, match="files of the split tset"):
        labels(f"parquet:{tmp_path}?split=tset")


def test_one_split_in_many_shards_is_read_whole_and_in_order(tmp_path: Path) -> None:
    for shard in range(3):
        table(tmp_path / "data" / f"test-{shard:05d}-of-00003.parquet", shard)
    table(tmp_path / ".cache" / "train.parquet", 1)
    (tmp_path / "data" / "._test-00000-of-00003.parquet").write_bytes(b"junk")
    expected = [0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1]
    assert labels(f"parquet:{tmp_path}") == expected == labels(f"parquet:{tmp_path}?split=test")


def test_a_split_of_one_file_is_refused(tmp_path: Path) -> None:
    table(tmp_path / "a.parquet", 0)
    with pytest.raises(SourceError, match="a folder to choose files from, found one file"):
        labels(f"parquet:{tmp_path / 'a.parquet'}?split=test")


def test_a_saved_set_of_another_split_is_not_taken_for_the_test_split(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    saved = datasets.Dataset.from_dict({"image": [[0] * 12] * 4, "label": [0, 1, 0, 1]}, split="train")
    saved.save_to_disk(str(tmp_path / "one"))
    with pytest.raises(SourceError, match=r"samples of test, found train; add \?split=train"):
        open_samples(SampleSpec(f"hf:{tmp_path / 'one'}"))
