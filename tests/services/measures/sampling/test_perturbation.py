import numpy as np
import pytest
import torch
from scipy import ndimage

from services.measures.sampling.perturbation import perturb, unit_draws

IMAGES = torch.rand(6, 3, 12, 12, generator=torch.Generator().manual_seed(0))
FUNCTIONAL = ("rotation", "translation", "brightness", "blur")


def _draws(kind, count=6):
    return torch.from_numpy(
        unit_draws(kind, seed=1, ids=np.arange(count), draws=np.zeros(count, dtype=np.int64), dimension=432)
    )


@pytest.mark.parametrize("kind", ["uniform", "gaussian", "laplace"])
def test_noise_stays_in_the_ball_and_in_the_pixel_range(kind):
    unit = _draws(kind)
    for radius in (8 / 255, 0.3):
        noisy = perturb(kind, IMAGES, unit, radius)
        assert noisy.min() >= 0 and noisy.max() <= 1
        assert (noisy - IMAGES).abs().max() <= radius + 1e-6
        expected = (IMAGES + radius * unit.view_as(IMAGES)).clamp(0, 1)
        assert torch.equal(noisy, expected)


@pytest.mark.parametrize("kind", FUNCTIONAL)
def test_functional_perturbations_are_keyed_and_bounded(kind):
    unit = _draws(kind, 4000)
    assert unit.shape == (4000, 2) and unit.abs().max() < 1
    assert abs(unit.mean()) < 0.04 and unit.var() == pytest.approx(1 / 3, rel=0.06)
    moved = perturb(kind, IMAGES, unit[:6], 0.4)
    assert moved.shape == IMAGES.shape and moved.min() >= 0 and moved.max() <= 1
    assert not torch.equal(moved, IMAGES)
    first = perturb(kind, IMAGES[2:3], unit[2:3], 0.4)
    assert torch.allclose(first, moved[2:3], atol=1e-6)


@pytest.mark.parametrize("kind", FUNCTIONAL)
def test_no_strength_leaves_the_image(kind):
    assert torch.allclose(perturb(kind, IMAGES, _draws(kind), 1e-9), IMAGES, atol=1e-5)


def test_translation_by_whole_pixels_shifts():
    unit = torch.tensor([[1.0, -0.5]])
    moved = perturb("translation", IMAGES[:1], unit, 2.0)
    expected = torch.zeros_like(IMAGES[:1])
    expected[:, :, 1:, :-2] = IMAGES[:1, :, :-1, 2:]
    assert torch.allclose(moved, expected, atol=1e-5)


def test_rotation_by_a_right_angle_turns():
    turned = perturb("rotation", IMAGES[:1], torch.tensor([[1.0, 0.0]]), 90.0)
    assert torch.allclose(turned, torch.rot90(IMAGES[:1], 1, (2, 3)), atol=1e-4)


def test_blur_agrees_with_scipy():
    unit = _draws("blur")
    blurred = perturb("blur", IMAGES, unit, 1.5)
    for index in range(len(IMAGES)):
        sigma = 0.75 * (float(unit[index, 0]) + 1)
        naive = ndimage.gaussian_filter(IMAGES[index].numpy(), (0, sigma, sigma), mode="nearest", radius=(0, 5, 5))
        assert np.abs(blurred[index].numpy() - naive).max() < 1e-5


def test_brightness_adds_one_number():
    unit = torch.tensor([[0.5, 0.9]])
    assert torch.allclose(perturb("brightness", IMAGES[:1], unit, 0.2), (IMAGES[:1] + 0.1).clamp(0, 1))
