"""Brightness, contrast and colourfulness against loops over pixels, of one image and of several."""

from __future__ import annotations

import numpy as np

from services.numerics.attributes.colour import brightness, colour, contrast

IMAGES = np.random.default_rng(0).random((4, 3, 5, 6)).astype(np.float32)


def test_against_loops_over_pixels() -> None:
    for i, (red, green, blue) in enumerate(IMAGES.astype(np.float64)):
        luma = 0.299 * red + 0.587 * green + 0.114 * blue
        rg, yb = red - green, (red + green) / 2 - blue
        expected = np.sqrt(rg.var() + yb.var()) + 0.3 * np.sqrt(rg.mean() ** 2 + yb.mean() ** 2)
        np.testing.assert_allclose(brightness(IMAGES)[i], luma.mean())
        np.testing.assert_allclose(contrast(IMAGES)[i], luma.std())
        np.testing.assert_allclose(colour(IMAGES)[i], expected)


def test_whole_numbers_are_pixels_too() -> None:
    ones = np.ones((1, 1, 2, 2), dtype=np.uint8)
    assert (brightness(ones).dtype, brightness(ones)[0], contrast(ones)[0]) == (np.float64, 1.0, 0.0)


def test_one_channel_is_its_own_brightness() -> None:
    grey = IMAGES[:, :1]
    np.testing.assert_allclose(brightness(grey), grey.astype(np.float64).mean(axis=(1, 2, 3)))
    np.testing.assert_allclose(contrast(grey), grey.astype(np.float64).std(axis=(1, 2, 3)))
