"""Stroke and colour attributes on drawn shapes of known thickness, length, slant and width."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw
from scipy.ndimage import label

from services.errors import MeasureError
from services.numerics.colour import brightness, colour, contrast
from services.numerics.strokes import length, slant, thickness, width
from services.numerics.thinning import lengths, thinned


def line(start: tuple[float, float], end: tuple[float, float], thick: float, edge: int = 28) -> np.ndarray:
    """An antialiased line with square ends; points are (x, y) in pixels."""
    fine = 16
    image = Image.new("L", (edge * fine, edge * fine))
    ends = [(start[0] * fine, start[1] * fine), (end[0] * fine, end[1] * fine)]
    ImageDraw.Draw(image).line(ends, fill=255, width=round(thick * fine))
    return np.asarray(image.resize((edge, edge), Image.Resampling.BOX), dtype=np.float64) / 255


@pytest.mark.parametrize("thick", [2.0, 3.0, 4.0, 5.0])
def test_the_thickness_of_lines_is_known(thick: float) -> None:
    images = np.stack([line((14, 4), (14, 24), thick), line((5, 5), (22, 22), thick), line((4, 14), (24, 14), thick)])
    np.testing.assert_allclose(thickness(images), thick, atol=0.35)


def test_the_length_of_lines_is_known() -> None:
    images = np.stack([line((14, 4), (14, 24), 2), line((4, 20), (24, 20), 2), line((5, 5), (19, 19), 2)])
    np.testing.assert_allclose(length(images), [18, 18, 14 * 2**0.5 - 2], atol=2.0)
    both = np.maximum(images[0], images[1])
    assert length(both[None])[0] == pytest.approx(36, abs=4.0)


@pytest.mark.parametrize("degrees", [-30.0, -10.0, 0.0, 20.0, 40.0])
def test_the_slant_and_the_width_across_it_are_known(degrees: float) -> None:
    away = 10 * np.tan(np.radians(degrees))
    image = line((14 + away, 4), (14 - away, 24), 3)
    assert slant(image[None])[0] == pytest.approx(degrees, abs=2.0)
    assert width(image[None])[0] == pytest.approx(3 / np.cos(np.radians(degrees)), abs=1.1)


def test_attributes_do_not_depend_on_company_place_or_brightness() -> None:
    image = line((10, 4), (14, 20), 3)
    moved = np.roll(image, (3, 5), axis=(0, 1))
    for measure in (thickness, length, slant, width):
        one = measure(image[None])[0]
        np.testing.assert_allclose(measure(np.stack([moved, image / 2, image])), one, atol=1e-6)


def test_an_image_without_light_has_no_attributes() -> None:
    images = np.stack([np.zeros((28, 28)), line((14, 4), (14, 24), 3)])
    for measure in (thickness, length, slant, width):
        assert np.isnan(measure(images)).tolist() == [True, False]
    with pytest.raises(MeasureError, match="finite numbers of at least 0"):
        thickness(-images)


def test_skeletons_are_thin_connected_and_inside() -> None:
    images = np.random.default_rng(0).random((6, 30, 30))
    blobs = np.stack([np.asarray(Image.fromarray((i * 255).astype(np.uint8)).resize((60, 60))) > 130 for i in images])
    skeletons = thinned(blobs)
    assert not (skeletons & ~blobs).any()
    assert 0 < skeletons.sum() < 0.6 * blobs.sum()
    squares = skeletons[:, 1:, 1:] & skeletons[:, :-1, 1:] & skeletons[:, 1:, :-1] & skeletons[:, :-1, :-1]
    assert squares.sum() < 0.01 * skeletons.sum()
    np.testing.assert_array_equal(thinned(skeletons), skeletons)
    eight = np.ones((3, 3))
    for blob, skeleton in zip(blobs, skeletons, strict=True):
        assert label(skeleton, eight)[1] <= label(blob, eight)[1]
    np.testing.assert_array_equal(thinned(blobs[2:3])[0], skeletons[2])


def test_the_length_of_a_stair_is_its_diagonal() -> None:
    stair = np.eye(5, dtype=bool)[None]
    assert lengths(stair)[0] == pytest.approx(4 * 2**0.5)


def test_real_digits_have_plausible_attributes_and_thick_ones_are_thick(shared_data: Path) -> None:
    images = np.load(shared_data / "mnist" / "t10k.npz")["images"][:200, :, :, 0] / 255.0
    thick = thickness(images)
    assert 1.5 < thick.mean() < 4.0
    assert np.corrcoef(thick * length(images), images.sum(axis=(1, 2)))[0, 1] > 0.9
    sheared = np.stack([np.roll(row, (14 - y) // 3, axis=1) for y, row in enumerate(images.swapaxes(0, 1))], axis=1)
    assert (slant(sheared) > slant(images)).mean() > 0.95
    assert 9 < width(images).mean() < 18


def test_brightness_contrast_and_colour_of_known_images() -> None:
    grey, red = np.full((3, 8, 8), 0.25), np.zeros((3, 8, 8))
    red[0] = 1.0
    halves = np.zeros((3, 8, 8))
    halves[:, :4] = 1.0
    images = np.stack([grey, red, halves])
    np.testing.assert_allclose(brightness(images), [0.25, 0.299, 0.5])
    np.testing.assert_allclose(contrast(images), [0.0, 0.0, 0.5], atol=1e-12)
    np.testing.assert_allclose(colour(images), [0.0, 0.3 * np.hypot(1.0, 0.5), 0.0], atol=1e-12)
    np.testing.assert_allclose(brightness(images[:, :1]), [0.25, 1.0, 0.5])
    with pytest.raises(MeasureError, match="3 channels for the attribute colour, found 1"):
        colour(images[:, :1])
