"""CelebA in its published layout, on a miniature of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from services.errors import SourceError
from services.loading.samples.schemes.celeba import read_faces
from services.loading.samples.source import open_samples
from services.numerics.attributes.groupfair import gaps, matrix_counts
from services.records import SampleSpec

NAMES = ("Male", "Smiling", "Young")
VALUES = np.array([[1, -1, 1], [-1, 1, 1], [1, 1, -1], [-1, -1, -1], [1, -1, -1], [-1, 1, 1]])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Six faces of 178x218: two to train on, four to test on."""
    (tmp_path / "img_align_celeba").mkdir()
    files = [f"{k + 1:06d}.jpg" for k in range(6)]
    for k, name in enumerate(files):
        image = Image.new("RGB", (178, 218), (40 * k, 100, 200))
        image.save(tmp_path / "img_align_celeba" / name)
    rows = "".join(f"{f} {' '.join(f'{v:2d}' for v in row)}\n" for f, row in zip(files, VALUES, strict=True))
    (tmp_path / "list_attr_celeba.txt").write_text(f"6\n{' '.join(NAMES)} \n{rows}")
    parts = "".join(f"{name} {0 if k < 2 else 2}\n" for k, name in enumerate(files))
    (tmp_path / "list_eval_partition.txt").write_text(parts)
    return tmp_path


def test_one_attribute_is_the_label_and_the_others_are_groups(root: Path) -> None:
    samples = open_samples(SampleSpec(f"celeba:{root}?target=Smiling&crop=178&size=32", groups=("Male", "Young")))
    assert samples.classes == ("not Smiling", "Smiling")
    assert samples.labels.tolist() == [1, 0, 0, 1]
    assert samples.ids.tolist() == [3, 4, 5, 6]
    assert samples.groups["Male"].tolist() == ["yes", "no", "yes", "no"]
    assert samples.shape == (3, 32, 32)
    np.testing.assert_allclose(samples.images(0, 1)[0, :, 5, 5] * 255, [80, 100, 200], atol=4)
    other = open_samples(SampleSpec(f"celeba:{root}?target=Smiling&crop=100&size=32"))
    assert other.content != samples.content, "another crop of the same files is another content"
    wide = open_samples(SampleSpec(f"celeba:{root}?target=Smiling&crop=200x178"))
    assert wide.shape == (3, 200, 178)
    train = open_samples(SampleSpec(f"celeba:{root}?target=Smiling&split=train"))
    assert (len(train), train.shape) == (2, (3, 218, 178))
    bright = open_samples(SampleSpec(f"celeba:{root}?target=Male&attributes=brightness", groups=("brightness",)))
    assert len(set(bright.groups["brightness"])) == 2


def test_the_table_of_a_split_feeds_the_matrix_of_tasks_and_attributes(root: Path) -> None:
    faces = read_faces(root, "test")
    assert faces.names == NAMES
    assert faces.values.tolist() == [[1, 1, 0], [0, 0, 0], [1, 0, 0], [0, 1, 1]]
    fairness = gaps(matrix_counts(faces.values, faces.values, faces.values))
    assert fairness["dp"].value.shape == (3, 3)
    assert fairness["dp"].value[0, 0] == 1.0 and fairness["dp"].value[0, 1] == 0.0


@pytest.mark.parametrize(
    ("spoil", "option", "message"),
    [
        (lambda r: None, "target=Smilling", "did you mean 'Smiling'"),
        (lambda r: None, "split=test", "an attribute of the data, found None"),
        (lambda r: None, "target=Male&split=valid", "images of the split valid, found none"),
        (lambda r: (r / "list_attr_celeba.txt").unlink(), "target=Male", "expected a file at"),
        (lambda r: (r / "list_eval_partition.txt").write_text("000001.jpg 2\n"), "target=Male", "found 5 without"),
        (
            lambda r: (r / "img_align_celeba" / "000004.jpg").unlink(),
            "target=Male",
            "1 corrupt: 000004.jpg",
        ),
        (
            lambda r: None,
            "target=Male&crop=200",
            "at least 200x200 .* 4 smaller: 000003.jpg .218x178., .*; lower",
        ),
        (lambda r: _append(r, "000007.jpg 1\n"), "target=Male", "6 lines, as its first line says, found 7"),
        (lambda r: _replace(r, "-1", "0"), "target=Male", "values of 1 or -1 a line"),
    ],
)
def test_what_is_not_the_published_layout_is_named(root: Path, spoil: object, option: str, message: str) -> None:
    spoil(root)  # type: ignore[operator]
    with pytest.raises(SourceError, match=message):
        open_samples(SampleSpec(f"celeba:{root}?{option}"))


def _append(root: Path, line: str) -> None:
    path = root / "list_attr_celeba.txt"
    path.write_text(path.read_text() + line)


def _replace(root: Path, old: str, new: str) -> None:
    path = root / "list_attr_celeba.txt"
    path.write_text(path.read_text().replace(old, new))
