"""Colours that a file declares otherwise than by its pixels: counted and said, never applied in silence or ignored."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms, PngImagePlugin

from services.errors import SourceError
from services.loading.samples import encoded
from services.loading.samples.source import SelectedSamples, open_samples
from services.records import SampleSpec
from services.records.intake import intake_notes

PIXELS = np.kron(np.random.default_rng(4).integers(0, 256, (4, 4, 3), dtype=np.uint8), np.ones((4, 4, 1), np.uint8))
SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def swapped_primaries() -> bytes:
    """sRGB with red and green changed: the names of two tags (ICC.1:2022, 7.3)."""
    profile = bytearray(SRGB)
    (count,) = struct.unpack(">I", profile[128:132])
    tags = {bytes(profile[at : at + 4]): at for at in range(132, 132 + 12 * count, 12)}
    red, green = tags[b"rXYZ"], tags[b"gXYZ"]
    profile[red : red + 4], profile[green : green + 4] = b"gXYZ", b"rXYZ"
    return bytes(profile)


def gamma_chunk(gamma: float, *, srgb: bool = False) -> PngImagePlugin.PngInfo:
    info = PngImagePlugin.PngInfo()
    info.add(b"gAMA", struct.pack(">I", round(gamma * 100_000)))
    if srgb:
        info.add(b"sRGB", b"\0")
    return info


def saved(kind: str, image: Image.Image | None = None, **options: Any) -> bytes:
    buffer = io.BytesIO()
    (image or Image.fromarray(PIXELS)).save(buffer, kind, **options)
    return buffer.getvalue()


def opened(folder: Path, *files: bytes, query: str = "") -> SelectedSamples:
    for name in ("ant", "cat"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for k, data in enumerate(files):
            (folder / name / f"{k}").write_bytes(data)
    return open_samples(SampleSpec(f"imagefolder:{folder}{query}", duplicates="all"))


DECLARED = {
    "carry a colour profile other than sRGB, which is not applied": saved("PNG", icc_profile=swapped_primaries()),
    "declare a gamma of 1 (sRGB: 0.455), which is not applied": saved("PNG", pnginfo=gamma_chunk(1.0)),
    "hold CMYK colours, of which a plain formula makes RGB": saved("JPEG", Image.fromarray(PIXELS).convert("CMYK")),
}


@pytest.mark.parametrize("words", DECLARED)
@pytest.mark.parametrize("keep", [1 << 30, 1])
def test_declared_colours_are_counted(tmp_path: Path, words: str, keep: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoded, "KEEP_BYTES", keep)
    samples = opened(tmp_path, saved("PNG"), DECLARED[words], query="?mode=RGB" if "CMYK" in words else "")
    assert samples.intake.colours == {words: 2}
    notes = " ".join(intake_notes(samples.intake, samples.classes, [2, 2]))
    assert f"2 of 4 images {words}: as in usual training code, while viewers show other colours." in notes


def test_pixels_of_another_profile_are_as_stored(tmp_path: Path) -> None:
    samples = opened(tmp_path, saved("PNG", icc_profile=swapped_primaries()))
    assert np.array_equal(np.rint(samples.images(0, 1)[0] * 255).transpose(1, 2, 0), PIXELS)


@pytest.mark.parametrize(
    "data",
    [
        saved("PNG", icc_profile=SRGB),
        saved("JPEG", icc_profile=SRGB),
        saved("WEBP", icc_profile=SRGB),
        saved("PNG", icc_profile=b"no profile"),
        saved("PNG", pnginfo=gamma_chunk(0.45455)),
        saved("PNG", pnginfo=gamma_chunk(1.0, srgb=True)),
    ],
)
def test_srgb_needs_no_word(tmp_path: Path, data: bytes) -> None:
    assert opened(tmp_path, data).intake.colours == {}


def test_a_colour_that_stands_for_nothing_is_no_colour(tmp_path: Path) -> None:
    """A PNG of mode RGB or L with a chunk tRNS was taken as opaque where no mode was asked for."""
    clear: dict[str, Any] = {"RGB": tuple(PIXELS[0, 0].tolist()), "L": int(PIXELS[0, 0, 0])}
    for mode, image in (("RGB", Image.fromarray(PIXELS)), ("L", Image.fromarray(PIXELS[..., 0]))):
        data, folder = saved("PNG", image, transparency=clear[mode]), tmp_path / mode
        with pytest.raises(SourceError, match=r"opaque images, or a background, found 2 with transparency"):
            opened(folder, data)
        white = opened(folder, data, query="?background=white")
        assert white.shape[0] == len(mode)
        assert (white.images(0, 1)[0, :, 0, 0] == 1).all()
