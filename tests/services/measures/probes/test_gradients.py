"""Gradients of the whole input and of its parts, on linear classifiers whose gradient is hidden somewhere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from services.measures.attacks.margins import Network
from services.measures.probes.budget import Guard
from services.measures.probes.gradients import gradient_signs, orders, part_masks, parts_drawn
from services.measures.probes.probed import Probed

SHAPE = (3, 6, 6)
PARTS = tuple(part_masks(SHAPE, torch.device("cpu")))
COUNT = 60


def linear(dead: tuple[int, ...] = ()) -> Network:
    """Four classes over 3x6x6 images; some channels are not looked at."""
    weights = torch.randn(4, *SHAPE, generator=torch.Generator().manual_seed(0))
    weights[:, list(dead)] = 0.0
    return lambda images: (images - 0.5).flatten(1) @ weights.flatten(1).T


def probed(network: Network, hide: Callable[[torch.Tensor], torch.Tensor] = lambda images: images) -> Probed:
    images = 0.5 + 0.05 * torch.randn(COUNT, *SHAPE, generator=torch.Generator().manual_seed(1)).clamp(-3, 3)
    guard = Guard("Linf", 0.05, ("ce",))
    return Probed(lambda x: network(hide(x)), images, network(images).argmax(1), np.arange(COUNT), guard, 0)


def in_parts(samples: Probed) -> dict[str, np.ndarray]:
    columns = gradient_signs(samples, parts=PARTS)
    return {part: columns[f"unpredictive-gradient:{part}"].numpy() for part in PARTS}


def test_every_part_of_a_sound_gradient_is_predictive() -> None:
    assert PARTS[:3] == ("channel 1", "channel 2", "channel 3") and len(PARTS) == 7
    for part, values in in_parts(probed(linear())).items():
        assert (values == 0).mean() > 0.95 and not (values < 0).any(), part


@pytest.mark.parametrize("hidden", [(0, 1), (1,), (2,)])
def test_channels_behind_a_step_function_are_seen_and_the_whole_is_not(hidden: tuple[int, ...]) -> None:
    """Rounded channels have no gradient, but what they hold changes the answer."""

    def hide(images: torch.Tensor) -> torch.Tensor:
        rounded = (images * 255).round() / 255
        return torch.cat([rounded[:, k : k + 1] if k in hidden else images[:, k : k + 1] for k in range(3)], dim=1)

    samples = probed(linear(), hide)
    values = in_parts(samples)
    for channel in range(3):
        looked = values[f"channel {channel + 1}"]
        assert (looked == 1).mean() > 0.9 if channel in hidden else (looked == 0).mean() > 0.9
    assert gradient_signs(samples)["unpredictive-gradient"].float().mean() < 0.1


def test_a_quarter_without_gradient_is_seen() -> None:
    def hide(images: torch.Tensor) -> torch.Tensor:
        quarter = part_masks(SHAPE, images.device)["the lower left quarter"]
        return torch.where(quarter > 0, (images * 255).round() / 255, images)

    samples = probed(linear(), hide)
    values = in_parts(samples)
    assert gradient_signs(samples)["hidden-pixels"].float().mean() > 0.8
    assert (values["the lower left quarter"] == 1).mean() > 0.9
    assert all((values[part] == 0).mean() > 0.9 for part in PARTS if part != "the lower left quarter")


def test_a_channel_that_the_network_does_not_look_at_says_nothing() -> None:
    samples = probed(linear(dead=(1,)))
    assert not gradient_signs(samples)["hidden-pixels"].any(), "a third of its gradient is zero, and rightly"
    values = in_parts(samples)
    assert (values["channel 2"] == -1).all()
    assert (values["channel 1"] == 0).mean() > 0.9


def test_half_of_the_samples_are_looked_at_in_one_part_drawn_by_their_ids() -> None:
    columns = gradient_signs(probed(linear()), shared=True)
    looked = np.stack([columns[f"unpredictive-gradient:{part}"].numpy() >= 0 for part in PARTS])
    assert (looked.sum(axis=0) <= 1).all() and (looked.sum(axis=1) > 0).all()
    assert 0.3 * COUNT < looked.sum() < 0.7 * COUNT
    ids = np.arange(7000)
    drawn = parts_drawn(ids, 7, seed=3)
    assert np.array_equal(drawn[50:60], parts_drawn(ids[50:60], 7, seed=3))
    assert np.bincount(drawn + 1, minlength=8)[1:].min() > 420 and np.bincount(drawn + 1)[0] < 3700
    assert (drawn != parts_drawn(ids, 7, seed=4)).mean() > 0.6


@pytest.mark.parametrize(
    ("shape", "first", "count"),
    [((1, 8, 8), "the upper left quarter", 4), ((12, 8, 8), "channels 1 to 2", 12), ((2, 1, 1), "channel 1", 3)],
)
def test_parts_cover_the_input_twice_and_none_is_empty(shape: tuple[int, ...], first: str, count: int) -> None:
    masks = part_masks(shape, torch.device("cpu"))
    assert next(iter(masks)) == first and len(masks) == count
    assert (sum(masks.values()) == (2.0 if shape[0] > 1 else 1.0)).all()
    assert all(mask.any() for mask in masks.values())


def test_entries_are_put_in_an_order_of_their_own_in_every_sample() -> None:
    ids = np.arange(40)
    found = orders(ids, SHAPE, seed=1)
    assert (np.sort(found, axis=1) == np.arange(108)).all()
    assert np.array_equal(found[7:9], orders(ids[7:9], SHAPE, seed=1))
    assert len({row.tobytes() for row in found}) == 40 and (found != orders(ids, SHAPE, seed=2)).mean() > 0.9
    assert abs(found[:, :54].mean() - 53.5) < 3, "no place draws the first entries"
