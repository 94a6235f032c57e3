"""Every file of an image folder is read, listed as not read, or left out by name and counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from services.errors import SourceError
from services.loading.confined import DEPTH
from services.loading.samples.source import SelectedSamples, open_samples
from services.records import SampleSpec

RNG = np.random.default_rng(3)
ANIMALS = ("ant", "cat")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes of two PNG images."""
    for name in ANIMALS:
        (tmp_path / name).mkdir()
        for k in range(2):
            picture().save(tmp_path / name / f"{k}.png")
    return tmp_path


def picture() -> Image.Image:
    return Image.fromarray(RNG.integers(0, 256, (8, 8, 3), dtype=np.uint8))


def opened(folder: Path, query: str = "", **spec: object) -> SelectedSamples:
    return open_samples(SampleSpec(f"imagefolder:{folder}{query}", **spec))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a.avif", "a.jfif", "a.JPE", "a.jp2", "a.qoi", "plain", "a.image"])
def test_what_pillow_reads_is_read_whatever_its_suffix(folder: Path, name: str) -> None:
    kind = {"avif": "AVIF", "jfif": "JPEG", "jpe": "JPEG", "jp2": "JPEG2000"}.get(name.partition(".")[2].lower(), "PNG")
    for k in range(3):
        (folder / "bee").mkdir(exist_ok=True)
        target = folder / "bee" / (f"{k}{name}" if "." not in name else f"{k}{name[1:]}")
        with target.open("wb") as file:
            picture().save(file, kind)
    samples = opened(folder)
    assert np.bincount(samples.labels).tolist() == [2, 3, 2]
    assert samples.images(0, len(samples)).shape == (7, 3, 8, 8)


def test_files_that_are_not_read_are_an_error_by_class_and_suffix(folder: Path) -> None:
    for k in range(36):
        (folder / "cat" / f"{k}.heic").write_bytes(bytes([0, 0, 0, 24, *b"ftypheic", k]))
    (folder / "ant" / "raw").write_bytes(b"\x00\x01\x02")
    with pytest.raises(SourceError) as caught:
        opened(folder)
    assert "36 files of cat not read: .heic" in str(caught.value)
    assert "1 file of ant not read: no suffix" in str(caught.value)


def test_files_that_are_not_read_are_counted_where_that_is_allowed(folder: Path) -> None:
    (folder / "bee").mkdir()
    (folder / "bee" / "0.heic").write_bytes(b"\x00\x00\x00\x18ftypheic")
    (folder / "cat" / "2.png").write_bytes(b"\x89PNG")
    Image.fromarray(np.zeros((8, 8), np.uint16)).save(folder / "cat" / "3.tiff")
    samples = opened(folder, on_corrupt="skip")
    assert samples.skipped == {"bee": 1, "cat": 2}
    assert samples.intake.unread == {"bee": {".heic": 1}, "cat": {".png": 1, ".tiff": 1}}
    assert len(samples) == 4 and samples.classes == ("ant", "bee", "cat")


@pytest.mark.parametrize(
    "path",
    [
        "cat/._0.png",
        "cat/.ipynb_checkpoints/0-checkpoint.png",
        "__MACOSX/cat/._0.png",
        ".Trash/0.png",
        ".Trash-1000/files/0.png",
        "cat/Thumbs.db",
        "cat/.DS_Store",
        "cat/desktop.ini",
        "cat/@eaDir/0.png",
        "cat/thumbnails/0.png",
        "cat/nested/.thumbs/0.png",
        "cat/Thumbnail/0.png",
    ],
)
def test_what_is_no_sample_is_left_out_and_counted(folder: Path, path: str) -> None:
    before = opened(folder)
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    picture().save(folder / path, "PNG")
    samples = opened(folder)
    assert samples.classes == ANIMALS and len(samples) == 4
    assert samples.digest == before.digest
    assert sum(samples.intake.left_out.values()) == 1
    assert not before.intake.left_out


def test_a_left_out_folder_that_cannot_be_read_ends_no_audit(folder: Path) -> None:
    """As `lost+found` of a disk is to all but root; here deeper than folders are followed."""
    (folder / "lost+found" / "/".join("d" * (DEPTH + 5))).mkdir(parents=True)
    samples = opened(folder)
    assert samples.classes == ANIMALS and sum(samples.intake.left_out.values()) == 1


def test_descriptions_beside_images_are_left_out_and_counted(folder: Path) -> None:
    (folder / "cat" / "0.json").write_text("{}")
    (folder / "cat" / "0.txt").write_text("a cat")
    (folder / "README.md").write_text("cats")
    assert opened(folder).intake.left_out == {"descriptions": 3}


def test_images_in_nested_folders_are_read_and_links_are_not_followed_in_silence(folder: Path) -> None:
    (folder / "cat" / "more").mkdir()
    picture().save(folder / "cat" / "more" / "0.png")
    assert np.bincount(opened(folder).labels).tolist() == [2, 3]
    (folder / "ant" / "up").symlink_to(folder / "cat")
    (folder / "ant" / "gone.png").symlink_to(folder / "nothing.png")
    with pytest.raises(SourceError, match="2 files of ant not read: broken link, linked folder"):
        opened(folder)


def test_images_in_no_class_are_an_error(folder: Path) -> None:
    picture().save(folder / "stray.png")
    with pytest.raises(SourceError, match=r"1 file of no class not read: \.png"):
        opened(folder)


def test_splits_are_not_taken_for_classes(tmp_path: Path) -> None:
    for part in ("train", "val"):
        (tmp_path / part / "cat").mkdir(parents=True)
        picture().save(tmp_path / part / "cat" / "0.png")
    with pytest.raises(SourceError, match="splits: train, val"):
        opened(tmp_path)


def test_an_image_that_needs_another_program_is_not_decoded(folder: Path) -> None:
    """Pillow gives EPS to Ghostscript, an interpreter of programs, whatever the file is called."""
    header = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n"
    (folder / "cat" / "2.png").write_bytes(header)
    with pytest.raises(SourceError, match=r"cat/2.png \(not an image\)"):
        opened(folder)
