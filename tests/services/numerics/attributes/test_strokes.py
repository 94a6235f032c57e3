"""Stroke and colour attributes on drawn shapes of known thickness, length, slant and width."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw
from scipy.ndimage import distance_transform_edt, label, zoom

from services.errors import MeasureError
from services.numerics.attributes import strokes as strokes_module
from services.numerics.attributes.colour import brightness, colour, contrast
from services.numerics.attributes.strokes import length, slant, thickness, width
from services.numerics.attributes.thinning import lengths, thinned


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
        first = measure(image[None])[0]
        np.testing.assert_allclose(measure(np.stack([moved, image / 2, image])), first, atol=1e-6)


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


GREY = np.random.default_rng(4).random((3, 7, 9)) * (np.random.default_rng(5).random((3, 7, 9)) < 0.4)


def moments(image: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Total light and centred coordinates, pixel by pixel."""
    rows, columns = np.indices(image.shape)
    total = image.sum()
    return total, rows - (image * rows).sum() / total, columns - (image * columns).sum() / total


def test_slants_are_those_of_the_central_moments() -> None:
    for image, each in zip(GREY, slant(GREY), strict=True):
        _, down, across = moments(image)
        expected = np.degrees(np.arctan(-(image * down * across).sum() / (image * down**2).sum()))
        assert each == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(slant(GREY / 1000), slant(GREY), rtol=1e-12)
    row = np.zeros((1, 3, 5))
    row[0, 1, :3] = 1.0
    assert slant(row).tolist() == [0.0]


def plain_width(image: np.ndarray) -> float:
    """Light in steps of a quarter pixel along sheared rows, and the 2 % and 98 % of its sum."""
    total, down, across = moments(image)
    shear = (image * down * across).sum() / max((image * down**2).sum(), 1e-300)
    light: dict[int, float] = {}
    for place in np.ndindex(image.shape):
        for shift in (-0.375, -0.125, 0.125, 0.375):
            at = math.floor((across[place] - shear * down[place] + shift + sum(image.shape)) * 4)
            light[at] = light.get(at, 0.0) + image[place] / 4
    places, shares = zip(*sorted(light.items()), strict=True)
    share = np.cumsum(shares) / total
    low, high = (places[int((share >= q - 1e-12).argmax())] for q in (0.02, 0.98))
    return (high - low + 1) / 4


def test_widths_are_those_of_a_loop() -> None:
    both = np.concatenate([GREY, np.zeros((1, 7, 9))])
    result = width(both)
    assert result[:3].tolist() == pytest.approx([plain_width(image) for image in GREY])
    assert np.isnan(result[3])
    assert width(GREY / 1000).tolist() == result[:3].tolist()
    steep = np.zeros((2, 28, 28))
    steep[:, 0, :4], steep[:, 1, 27] = 1.0, 0.001
    assert width(steep)[0] == pytest.approx(plain_width(steep[0])), "empty rows are sheared far out of the picture"
    assert width(steep[:, :, ::-1])[1] == pytest.approx(plain_width(steep[0, :, ::-1]))
    assert width(np.array([[[0.08, 0.5, 0.42]]])).tolist() == [3.0], "2 % is reached in the first quarter of a pixel"
    point = np.zeros((2, 6, 6))
    point[0, 2, 3], point[1, 5, 0] = 0.3, 1.0
    assert width(point).tolist() == [1.0, 1.0]


def test_thickness_and_length_are_those_of_the_enlarged_image() -> None:
    """Loops over four-fold enlarged images; a block of images is measured like each alone."""
    images = np.stack([line((14, 4), (14, 24), 3), line((5, 5), (20, 22), 2) / 3, line((4, 20), (24, 20), 4)])
    for image, thick, long in zip(images, thickness(images), length(images), strict=True):
        large = zoom(image[None], (1, 4, 4), order=1, grid_mode=True, mode="grid-constant")[0]
        strokes = large >= image.max() / 2
        skeleton = thinned(strokes[None])[0]
        distance = distance_transform_edt(np.pad(strokes, 1))[1:-1, 1:-1]
        assert thick == pytest.approx((2 * distance[skeleton].mean() - 0.5) / 4, rel=1e-12)
        assert long == pytest.approx(float(lengths(skeleton[None])[0]) / 4, rel=1e-12)
    whole = thickness(images), length(images)
    with pytest.MonkeyPatch.context() as patch:
        for block in (1, 2, 3):
            patch.setattr(strokes_module, "BLOCK", block)
            np.testing.assert_array_equal((thickness(images), length(images)), whole)


def test_light_up_to_the_edge_and_none_at_all() -> None:
    full, none = np.ones((1, 3, 12)), np.zeros((1, 4, 4))
    assert thickness(full)[0] == pytest.approx(3.0, abs=0.5)
    assert np.isnan(thickness(none)[0]) and np.isnan(length(none)[0])
    for measure in (thickness, length, slant, width):
        assert measure(np.zeros((0, 5, 5))).shape == (0,)
        assert measure(full).dtype == np.float64
        assert measure(np.ones((1, 3, 12), dtype=np.uint8)).tolist() == measure(full).tolist()


def test_bytes_are_not_rounded_on_the_way() -> None:
    images = np.stack([line((14, 4), (14, 24), 3), line((5, 5), (20, 22), 2)])
    grey = np.round(images * 2)
    for measure in (thickness, length, slant, width):
        np.testing.assert_array_equal(measure(grey.astype(np.uint8)), measure(grey))


def test_light_at_half_the_largest_value_is_stroke() -> None:
    image = np.zeros((1, 12, 20))
    image[0, 3:8, 2:18] = 0.5
    image[0, 5, 10] = 1.0
    assert thickness(image)[0] == pytest.approx(4.0, abs=0.5)


def test_a_square_whose_skeleton_vanishes_has_no_thickness_and_no_length() -> None:
    """Zhang and Suen delete a square of even edge down to its last pixels, which have no order."""
    square = np.ones((1, 4, 4))
    assert np.isnan(thickness(square)[0]) and length(square)[0] == 0.0


def test_a_skeleton_of_one_pixel_has_a_thickness() -> None:
    strokes = np.pad(np.ones((1, 3, 3), dtype=bool), ((0, 0), (2, 2), (2, 2)))
    skeleton = np.zeros((1, 7, 7), dtype=bool)
    skeleton[0, 3, 3] = True
    assert strokes_module.mean_distance(strokes, skeleton).tolist() == [(2 * 2.0 - 0.5) / 4]
