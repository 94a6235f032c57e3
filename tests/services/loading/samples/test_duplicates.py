"""Copies of an image are no further samples: found by their pixels, counted once, named under two labels."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from services.errors import SourceError
from services.loading.samples import encoded as stores_of_files
from services.loading.samples.duplicates import fingerprint, fingerprints, lookalikes
from services.loading.samples.source import SelectedSamples, open_samples
from services.records import SampleSpec
from services.records.intake import intake_notes

PHOTOS = Path(__file__).parents[5] / "shared" / "data" / "cifar10" / "test.npz"


def images(count: int, side: int = 8, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def stored(path: Path, pixels: np.ndarray, labels: list[int]) -> str:
    np.savez(path, images=pixels, labels=np.array(labels), classes=np.array(["ant", "bee", "cat"]))
    return f"npz:{path}" + ("" if pixels.dtype == np.uint8 else "?scale=1")


def notes(samples: SelectedSamples) -> str:
    counts = np.bincount(samples.labels, minlength=len(samples.classes)).tolist()
    return " ".join(intake_notes(samples.intake, samples.classes, counts))


@pytest.mark.parametrize("kind", ["uint8", "float", "png", "folder"])
def test_an_image_counts_once_under_each_label(tmp_path: Path, kind: str) -> None:
    pixels = images(6)[[0, 1, 2, 0, 0, 3, 4, 5, 1]]
    labels = [0, 1, 2, 0, 0, 0, 1, 2, 2]
    if kind in ("uint8", "float"):
        uri = stored(tmp_path / "x.npz", pixels if kind == "uint8" else (pixels / 255).astype(np.float32), labels)
    elif kind == "png":
        table = pa.table({"image": [encoded(image) for image in pixels], "label": labels})
        pq.write_table(table, tmp_path / "x.parquet")
        uri = f"parquet:{tmp_path / 'x.parquet'}?classes=ant,bee,cat"
    else:
        for row, (image, label) in enumerate(zip(pixels, labels, strict=True)):
            folder = tmp_path / ("ant", "bee", "cat")[label]
            folder.mkdir(exist_ok=True)
            (folder / f"{row}.png").write_bytes(encoded(image))
        uri = f"imagefolder:{tmp_path}"
    samples = open_samples(SampleSpec(uri))
    assert sorted(samples.labels.tolist()) == [0, 0, 1, 1, 2, 2, 2] and samples.intake.copies == 2
    kept = samples.images(0, len(samples))
    assert len(kept) == len(samples) == 7 and len({image.tobytes() for image in kept}) == 6
    ((first, second, count, _),) = samples.intake.conflicts
    assert (first, second, count) == ("bee", "cat", 1)
    assert "2 samples are copies of others under the same label and were left out" in notes(samples)
    assert "stands under two labels, one of which is wrong: 1 as bee and cat" in notes(samples)
    everything = open_samples(SampleSpec(uri, duplicates="all"))
    assert len(everything) == 9 and "intervals are too narrow" in notes(everything)
    assert everything.digest != samples.digest


def test_without_copies_nothing_changes(tmp_path: Path) -> None:
    uri = stored(tmp_path / "x.npz", images(6), [0, 1, 2, 0, 1, 2])
    once, everything = (open_samples(SampleSpec(uri, duplicates=choice)) for choice in ("once", "all"))
    assert once.digest == everything.digest and np.array_equal(once.ids, everything.ids) and notes(once) == ""


def test_ids_of_a_conflict_lead_to_the_rows(tmp_path: Path) -> None:
    pixels = images(4)[[0, 1, 2, 3, 1]]
    samples = open_samples(SampleSpec(stored(tmp_path / "x.npz", pixels, [0, 1, 2, 0, 2])))
    assert samples.intake.conflicts == (("bee", "cat", 1, "1 and 4"),)


def test_images_that_the_models_were_trained_on_are_counted(tmp_path: Path) -> None:
    pixels = images(9)
    test = stored(tmp_path / "test.npz", pixels[:6], [0, 1, 2, 0, 1, 2])
    floats = (pixels[4:].astype(np.float32) / np.float32(255)).transpose(0, 3, 1, 2)
    trained = stored(tmp_path / "train.npz", floats, [0, 1, 2, 0, 1])
    samples = open_samples(SampleSpec(test, training=trained))
    assert samples.intake.trained_on == 2 and "2 of 6 samples are among the declared training images" in notes(samples)
    assert open_samples(SampleSpec(test)).intake.trained_on is None


def test_training_images_too_large_to_decode_are_compared_by_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of one and pixels of the other were compared, and none was ever shared."""
    pixels = images(34)
    for name, rows in (("test", range(6)), ("train", range(4, 34))):
        for row in rows:
            folder = tmp_path / name / ("ant", "bee")[row % 2]
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels[row]).save(folder / f"{row}.png")
    training = f"imagefolder:{tmp_path / 'train'}"
    monkeypatch.setattr(stores_of_files, "KEEP_BYTES", 10 * pixels[0].nbytes)
    assert open_samples(SampleSpec(f"imagefolder:{tmp_path / 'test'}", training=training)).intake.trained_on == 2
    arrays = stored(tmp_path / "test.npz", pixels[:6], [0, 1, 2, 0, 1, 2])
    with pytest.raises(SourceError, match=r"\(training\): expected images that can be compared, found one of the two"):
        open_samples(SampleSpec(arrays, training=training))


def test_prints_tell_shape_and_values_apart() -> None:
    image = images(1)[0]
    moved = image.copy()
    moved[0, 0, 0] ^= 1
    alike = {fingerprint(image), fingerprint(image / 255.0), fingerprint((image / 255).astype(np.float32))}
    assert len(alike) == 1
    assert len(alike | {fingerprint(moved), fingerprint(image.reshape(4, 16, 3)), fingerprint(image / 256.0)}) == 4


@pytest.mark.parametrize("divisor", [1, 255.0, 256.0])
def test_images_of_a_block_have_the_prints_that_each_has_alone(divisor: float) -> None:
    block = images(5) if divisor == 1 else images(5) / divisor
    block[3] = block[1]
    prints = list(fingerprints(block))
    assert prints == [fingerprint(image) for image in block] and len(set(prints)) == 4


@pytest.mark.skipif(not PHOTOS.exists(), reason="no photographs in ../shared")
@pytest.mark.parametrize(("quality", "least"), [(60, 0.97), (75, 0.985), (90, 0.995)])
def test_photographs_encoded_again_are_found_and_others_are_not(quality: int, least: float) -> None:
    with np.load(PHOTOS) as file:
        photos = file["images"][:400]
    photos = photos if photos.shape[-1] == 3 else photos.transpose(0, 2, 3, 1)
    again = np.array([np.asarray(Image.open(io.BytesIO(encoded(photo, quality)))) for photo in photos])
    both = np.concatenate([photos, again]).transpose(0, 3, 1, 2)
    pairs = lookalikes(lambda start, stop: (both[start:stop] / np.float32(255)).astype(np.float32), len(both))
    assert pairs is not None and all(second == first + 400 for first, second in pairs)
    assert len(pairs) >= least * 400


def test_exact_copies_are_no_lookalikes_and_an_empty_set_has_none() -> None:
    pixels = images(3)[[0, 1, 2, 0]].transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255)
    pairs = lookalikes(lambda start, stop: pixels[start:stop], 4)
    assert pairs is not None and pairs.shape == (0, 2)
    assert lookalikes(lambda start, stop: pixels[:0], 0) is None


def encoded(image: np.ndarray, quality: int | None = None) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG" if quality else "PNG", **({"quality": quality} if quality else {}))
    return file.getvalue()
