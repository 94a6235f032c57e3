"""A folder that holds several splits is never read as one set of samples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePath

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

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
        ("split=train/0.parquet", "train"),
        ("cifar10_testset.parquet", "test"),
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
    with pytest.raises(
        SourceError, match=r"\(split\): expected a column that says which split a row is of, found none"
    ):
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
    with pytest.raises(SourceError, match="a column that says which split a row is of, found none; leave split out"):
        open_samples(SampleSpec(f"npz:{tmp_path / 'plain.npz'}?split=test"))


PIXELS = np.random.default_rng(7).integers(0, 256, (12, 2, 2, 3), dtype=np.uint8)
LABELS = np.arange(12) % 2
SPLIT = np.array(["Train", "test", "test"] * 4)
"""Of each row: 4 of train, 8 of test."""


def as_archive(folder: Path) -> str:
    np.savez(folder / "all.npz", images=PIXELS, labels=LABELS, part=SPLIT, sex=np.array(list("mf") * 6))
    return f"npz:{folder / 'all.npz'}"


def as_table(folder: Path) -> str:
    flat = pa.FixedSizeListArray.from_arrays(pa.array(PIXELS.ravel()), 12)
    pq.write_table(pa.table({"image": flat, "label": LABELS, "split": SPLIT}), folder / "all.parquet")
    return f"parquet:{folder / 'all.parquet'}?shape=2x2x3"


def as_tables(folder: Path) -> str:
    (folder / "tables").mkdir()
    as_table(folder / "tables")
    return f"parquet:{folder / 'tables'}?shape=2x2x3"


def as_metadata(folder: Path) -> str:
    lines = ["file_name,set"]
    for row, pixels in enumerate(PIXELS):
        name = f"{'ab'[LABELS[row]]}/{row}.png"
        (folder / name).parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(folder / name)
        lines.append(f"{name},{SPLIT[row]}")
    (folder / "metadata.csv").write_text("\n".join(lines))
    return f"imagefolder:{folder}"


def as_folders(folder: Path) -> str:
    for row, pixels in enumerate(PIXELS):
        place = folder / "ab"[LABELS[row]] / ("Train" if SPLIT[row] == "Train" else "test")
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(place / f"{row}.png")
    return f"imagefolder:{folder}"


@pytest.mark.parametrize("write", [as_archive, as_table, as_tables, as_metadata, as_folders])
def test_rows_of_several_splits_are_asked_about(tmp_path: Path, write: Callable[[Path], str]) -> None:
    """Train and test rows of one table were read as one set without a word."""
    uri = write(tmp_path)
    mark = "&" if "?" in uri else "?"
    with pytest.raises(SourceError, match=r"rows of one split, found 8 of test, 4 of train; add [?&]split=test"):
        open_samples(SampleSpec(uri))
    test = open_samples(SampleSpec(f"{uri}{mark}split=test"))
    chosen = {pixels.tobytes() for pixels in PIXELS[SPLIT == "test"]}
    read = np.rint(test.images(0, 12) * 255).astype(np.uint8).transpose(0, 2, 3, 1)
    assert {pixels.tobytes() for pixels in read} == chosen
    assert len(test) == 8 == sum(test.intake.available)
    with pytest.raises(SourceError, match=r"rows of tset, found 8 of test, 4 of train; did you mean 'test'"):
        open_samples(SampleSpec(f"{uri}{mark}split=tset"))


def test_who_groups_by_the_split_knows_that_there_are_several(tmp_path: Path) -> None:
    samples = open_samples(SampleSpec(as_archive(tmp_path), groups=("part",)))
    assert samples.group_names == {"part": ("Train", "test")}
    of_test = open_samples(SampleSpec(f"{as_archive(tmp_path)}?split=test", groups=("part",)))
    assert of_test.group_names == {"part": ("test",)}


@pytest.mark.parametrize("column", [["train"] * 12, ["bus", "train"] * 6, [0, 1] * 6])
def test_other_columns_say_nothing_of_splits(tmp_path: Path, column: list[object]) -> None:
    np.savez(tmp_path / "a.npz", images=PIXELS, labels=LABELS, vehicle=np.array(column))
    assert len(open_samples(SampleSpec(f"npz:{tmp_path / 'a.npz'}"))) == 12


def test_a_model_trained_on_one_split_saw_none_of_the_other(tmp_path: Path) -> None:
    uri = as_archive(tmp_path)
    seen = [
        open_samples(SampleSpec(f"{uri}?split=test", training=f"{uri}?split={split}")).intake.trained_on
        for split in ("train", "test")
    ]
    assert seen == [0, 8]


def test_plain_arrays_beside_those_of_a_split_are_a_question(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=PIXELS, labels=LABELS, test_images=PIXELS[:3], test_labels=LABELS[:3])
    with pytest.raises(SourceError, match=r"samples of one split, found 3 of test, 12 of no split; add \?split=test"):
        open_samples(SampleSpec(f"npz:{tmp_path / 'a.npz'}"))
    assert len(open_samples(SampleSpec(f"npz:{tmp_path / 'a.npz'}?split=test"))) == 3
