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


def archive(folder: Path, layout: str, splits: tuple[str, ...] = ("train", "val", "test")) -> str:
    """An archive as MedMNIST or Keras write it: n + 4 images of the n-th split, all of one label that tells it."""
    arrays = {}
    for n, split in enumerate(splits):
        images = np.random.default_rng(n).integers(0, 256, (n + 4, 6, 6), dtype=np.uint8)
        labels = np.full((n + 4, 1), n)
        labels[0] = 3
        named = (f"{split}_images", f"{split}_labels") if layout == "medmnist" else (f"x_{split}", f"y_{split}")
        arrays |= dict(zip(named, (images, labels), strict=True))
    np.savez(folder / "data.npz", **arrays)
    return f"npz:{folder / 'data.npz'}"


@pytest.mark.parametrize("layout", ["medmnist", "keras"])
@pytest.mark.parametrize(("split", "n"), [("test", 2), ("val", 1), ("validation", 1), ("train", 0)])
def test_one_split_of_an_archive_is_read(tmp_path: Path, layout: str, split: str, n: int) -> None:
    samples = open_samples(SampleSpec(f"{archive(tmp_path, layout)}?split={split}"))
    assert samples.labels.tolist() == [3] + [n] * (n + 3), "labels (N, 1) are labels (N,)"
    expected = np.random.default_rng(n).integers(0, 256, (n + 4, 6, 6), dtype=np.uint8) / np.float32(255)
    np.testing.assert_array_equal(samples.images(0, n + 4)[:, 0], expected)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", r"expected samples of one split, found 4 of train, 5 of validation, 6 of test; add \?split=test"),
        ("?split=tets", r"expected samples of tets, found 4 of train, .*did you mean 'test'"),
    ],
)
def test_splits_of_an_archive_are_asked_about(tmp_path: Path, query: str, words: str) -> None:
    with pytest.raises(SourceError, match=words):
        open_samples(SampleSpec(archive(tmp_path, "keras") + query))


def test_an_archive_of_one_split_needs_no_answer(tmp_path: Path) -> None:
    assert len(open_samples(SampleSpec(archive(tmp_path, "medmnist", ("test",))))) == 4
    np.savez(tmp_path / "plain.npz", images=np.arange(48, dtype=np.uint8).reshape(3, 4, 4), labels=[0, 1, 1])
    assert len(open_samples(SampleSpec(f"npz:{tmp_path / 'plain.npz'}"))) == 3
    with pytest.raises(
        SourceError, match="arrays such as test_images or x_test, found images, labels; leave split out"
    ):
        open_samples(SampleSpec(f"npz:{tmp_path / 'plain.npz'}?split=test"))
