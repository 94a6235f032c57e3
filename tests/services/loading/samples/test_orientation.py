"""EXIF orientation: images are turned upright as viewers show them, counted, or left as stored."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageOps, features

from services.errors import SourceError
from services.loading.samples import encoded
from services.loading.samples.source import SelectedSamples, open_samples
from services.records import SampleSpec

RNG = np.random.default_rng(5)
PIXELS = np.kron(RNG.integers(0, 256, (4, 3, 3), dtype=np.uint8), np.ones((4, 4, 1), np.uint8))
FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", *(("AVIF",) if features.check("avif") else ()))


def tagged(orientation: int, kind: str) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    buffer = io.BytesIO()
    lossless = {"WEBP": {"lossless": True}, "JPEG": {"quality": 95}, "AVIF": {"quality": 95}}.get(kind, {})
    Image.fromarray(PIXELS).save(buffer, kind, exif=exif, **lossless)  # type: ignore[arg-type]
    return buffer.getvalue()


def folder_of(folder: Path, *files: bytes) -> Path:
    for name in ("ant", "cat"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for k, data in enumerate(files):
            (folder / name / f"{k}").write_bytes(data)
    return folder


def opened(folder: Path, query: str = "") -> SelectedSamples:
    return open_samples(SampleSpec(f"imagefolder:{folder}{query}"))


def first(samples: SelectedSamples) -> Any:
    return np.rint(samples.images(0, 1)[0] * 255).transpose(1, 2, 0)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_upright_as_viewers_show_them(tmp_path: Path, kind: str, orientation: int) -> None:
    data = tagged(orientation, kind)
    samples = opened(folder_of(tmp_path, data))
    with Image.open(io.BytesIO(data)) as image:
        expected = np.asarray(ImageOps.exif_transpose(image), np.float64)
    assert first(samples).shape == expected.shape
    assert np.array_equal(first(samples), expected)
    assert samples.intake.turned == (2 if orientation > 1 else 0)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("orientation", [1, 3, 5, 6, 7, 8])
def test_stored_pixels_are_a_choice(tmp_path: Path, kind: str, orientation: int) -> None:
    samples = opened(folder_of(tmp_path, tagged(orientation, kind)), "?orientation=stored")
    with Image.open(io.BytesIO(tagged(1, kind))) as image:
        assert np.array_equal(first(samples), np.asarray(image, np.float64))
    assert samples.intake.turned == 0


def test_other_pixels_are_another_content_and_the_same_ones_are_not(tmp_path: Path) -> None:
    tagged_ones = folder_of(tmp_path / "a", tagged(6, "PNG"))
    upright, stored = opened(tagged_ones), opened(tagged_ones, "?orientation=stored")
    assert upright.digest != stored.digest and upright.content != stored.content
    plain = folder_of(tmp_path / "b", tagged(1, "PNG"))
    assert opened(plain).digest == opened(plain, "?orientation=stored").digest


def test_mixed_tags_of_one_stored_size_are_mixed_sizes_upright(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, tagged(1, "JPEG"), tagged(6, "JPEG"))
    with pytest.raises(SourceError, match=r"images of one size, found 2: 12x16 \(2\), 16x12 \(2\)"):
        opened(folder)
    assert opened(folder, "?orientation=stored").shape == (3, 16, 12)


def test_a_set_decoded_by_batch_is_turned_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(tmp_path, *(tagged(turn, kind) for kind in FORMATS for turn in (5, 6)))
    spec = SampleSpec(f"imagefolder:{folder}", duplicates="all")
    kept = open_samples(spec)
    monkeypatch.setattr(encoded, "KEEP_BYTES", 1)
    lazy = open_samples(spec)
    assert (lazy.digest, lazy.intake.turned) == (kept.digest, kept.intake.turned)
    assert np.array_equal(lazy.images(0, 20), kept.images(0, 20))


def test_a_damaged_tag_turns_nothing(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    Image.fromarray(PIXELS).save(buffer, "PNG", exif=b"Exif\x00\x00MM\x00*\xff\xff\xff\xff")
    samples = opened(folder_of(tmp_path, buffer.getvalue()))
    assert np.array_equal(first(samples), PIXELS) and samples.intake.turned == 0


def test_parquet_is_decoded_by_the_same_code(tmp_path: Path) -> None:
    table = pa.table({"image": [tagged(6, "JPEG")] * 2, "label": [0, 1]})
    pq.write_table(table, tmp_path / "s.parquet")
    source = f"parquet:{tmp_path / 's.parquet'}"
    upright, stored = (open_samples(SampleSpec(source + query)) for query in ("", "?orientation=stored"))
    assert (upright.shape, stored.shape) == ((3, 12, 16), (3, 16, 12))
    assert upright.intake.turned == 2


def test_training_data_is_turned_and_every_file_accounted_for(tmp_path: Path) -> None:
    from services.training.datasets.folders import read_cinic10

    folder_of(tmp_path / "train", tagged(6, "JPEG"))
    part = read_cinic10(tmp_path, "train")
    assert part.images.shape == (2, 3, 12, 16)
    (tmp_path / "train" / "cat" / "0.heic").write_bytes(b"\x00\x00\x00\x18ftypheic")
    with pytest.raises(SourceError, match=r"1 file of cat not read: \.heic"):
        read_cinic10(tmp_path, "train")
