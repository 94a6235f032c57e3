"""Whether a gradient means something: over the whole input, and in each channel and quarter of it by itself.

A defence may hide the gradient of a part (two of three colour channels rounded, one half of the picture resampled
outside of autograd): the rest still leads downhill, so the whole looks sound, and an attack moves in the rest alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from services.measures.attacks.margins import ascent, margins, passes
from services.measures.attacks.starts import start_noise
from services.measures.probes.probed import FIRST_DRAW, Probed
from services.measures.probes.slopes import Slopes
from services.numerics.evidence.adequacy import Sign

RESOLUTION = 2.0**-22
"""A change of the margin below this share of the largest logit is lost in float32."""
PART_DRAW = FIRST_DRAW - 1
"""The draw that gives each sample its part."""
PART_SHARE = 2
"""One sample of so many is looked at in a part: those that are suspect then are looked at again on all."""
HIDDEN = 0.25
"""A gradient of which so large a share is exactly zero may hide pixels; networks without defences have up to .14."""
MATTERS = 0.1
"""Hidden pixels matter where a random step in them alone does so much of what one in all pixels does."""
MOST_CHANNELS = 8
"""More are taken together."""


def gradient_signs(
    probed: Probed, slopes: Slopes | None = None, *, shared: bool = False, parts: Sequence[str] = ()
) -> dict[str, torch.Tensor]:
    """One gradient of the margin a sample, and one step along it and along the same entries in another order.

    A gradient that means something lowers the margin more than its entries do at random places. In a part of the input
    both steps move that part alone; a sample whose margin the random one does not change there says nothing of it (-1).

    Args:
        slopes: keeps the gradient that is taken here, for attacks that begin with it.
        shared: half of the samples are looked at in one part each, drawn by their ids: two forward passes of these.
        parts: names of parts in which every sample is looked at: two more for each.
    """
    leaf = probed.images.detach().requires_grad_(True)
    logits = passes(probed.network, leaf)
    margin = margins(logits.detach(), probed.labels)
    weights = ascent(logits.detach(), probed.labels, "margin")
    (slope,) = torch.autograd.grad(logits, leaf, weights)
    real = slope.isfinite().flatten(1).all(dim=1)
    slope = torch.where(slope.isfinite(), slope, 0.0)
    if slopes is not None:
        slopes.keep("margin", slope, logits.detach())
    zero = slope.flatten(1).abs().amax(dim=1) == 0
    dual = slope.double().flatten(1).norm(p=1 if probed.guard.norm == "Linf" else 2, dim=1)
    lost = RESOLUTION * logits.detach().abs().amax(dim=1)
    astray = _shuffled(slope, probed)
    after_astray = _after(probed, astray)
    signs = {
        Sign.ZERO_GRADIENT.value: zero & real,
        Sign.NON_FINITE.value: ~real,
        Sign.SATURATED.value: (probed.guard.epsilon * dual < lost) & ~zero & real,
        Sign.UNPREDICTIVE.value: ~_predicts(_after(probed, slope), after_astray, margin),
        Sign.HIDDEN.value: _hides(probed, slope, margin, (after_astray - margin).abs()),
    }
    masks = part_masks(tuple(slope.shape[1:]), slope.device)

    def looked(rows: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        some, values = probed.select(rows), torch.full(zero.shape, -1, dtype=torch.int8, device=zero.device)
        along, aside = (_after(some, direction[rows] * chosen) for direction in (slope, astray))
        matters = ~((aside - margin[rows]).abs() <= lost[rows])
        values[rows] = torch.where(matters, (~_predicts(along, aside, margin[rows])).to(torch.int8), -1)
        return values

    if shared:
        place = torch.from_numpy(parts_drawn(probed.ids, len(masks), probed.seed)).to(slope.device)
        rows = (place >= 0).nonzero().squeeze(1)
        values = looked(rows, torch.stack(list(masks.values()))[place[rows]]) if len(rows) else place.to(torch.int8)
        signs |= {_column(part): torch.where(place == index, values, -1) for index, part in enumerate(masks)}
    everything = torch.arange(len(zero), device=zero.device)
    return signs | {_column(part): looked(everything, masks[part]) for part in parts}


def _hides(probed: Probed, slope: torch.Tensor, margin: torch.Tensor, change: torch.Tensor) -> torch.Tensor:
    """Whether the network looks at pixels in which its gradient is exactly zero, (m,): a pass where there are many."""
    zero = slope == 0
    hidden = torch.zeros_like(margin, dtype=torch.bool)
    share = zero.flatten(1).double().mean(dim=1)
    rows = ((share >= HIDDEN) & (share < 1)).nonzero().squeeze(1)
    if len(rows):
        some = probed.select(rows)
        noise = start_noise(some.ids, tuple(slope.shape[1:]), seed=probed.seed, draw=FIRST_DRAW)
        aside = _after(some, torch.from_numpy(noise).to(slope.device) * zero[rows])
        moved = (aside - margin[rows]).abs()
        hidden[rows] = (moved > MATTERS * change[rows]) & (moved > 0)
    return hidden


def part_masks(shape: tuple[int, ...], device: torch.device) -> dict[str, torch.Tensor]:
    """The parts of an input (C, H, W) that are looked at: channels, where there are several, and quarters."""
    channels, height, width = shape
    masks: dict[str, torch.Tensor] = {}
    blocks = np.array_split(np.arange(channels), min(channels, MOST_CHANNELS)) if channels > 1 else []
    for block in blocks:
        first, last = int(block[0]) + 1, int(block[-1]) + 1
        masks[f"channel {first}" if first == last else f"channels {first} to {last}"] = _mask(
            shape, slice(first - 1, last), slice(None), slice(None)
        )
    rows = {"upper": slice(None, (height + 1) // 2), "lower": slice((height + 1) // 2, None)}
    columns = {"left": slice(None, (width + 1) // 2), "right": slice((width + 1) // 2, None)}
    quarters = [(f"the {up} {side} quarter", rows[up], columns[side]) for up in rows for side in columns]
    masks |= {name: _mask(shape, slice(None), *where) for name, *where in quarters}
    return {name: mask.to(device) for name, mask in masks.items() if mask.any()}


def _mask(shape: tuple[int, ...], *where: slice) -> torch.Tensor:
    mask = torch.zeros(shape)
    mask[where] = 1.0
    return mask


def parts_drawn(ids: NDArray[np.int64], parts: int, seed: int) -> NDArray[np.int64]:
    """Which of the parts each sample (n,) is looked at in, -1 for none: a function of its id and the seed."""
    share = (start_noise(ids, (1,), seed=seed, draw=PART_DRAW)[:, 0].astype(np.float64) + 1) / 2
    drawn = np.minimum((share * PART_SHARE * parts).astype(np.int64), PART_SHARE * parts - 1)
    return np.where(drawn < parts, drawn, -1)


def _column(part: str) -> str:
    return f"{Sign.UNPREDICTIVE}:{part}"


def _predicts(along: torch.Tensor, astray: torch.Tensor, margin: torch.Tensor) -> torch.Tensor:
    return (along < astray) & (along < margin)


def _after(probed: Probed, direction: torch.Tensor) -> torch.Tensor:
    """The margin after a step of a quarter of the ball; infinitely low where it is no number."""
    points = probed.ball.step(probed.images, direction.clone(), probed.guard.epsilon / 4)
    with torch.no_grad():
        margin = margins(passes(probed.network, points), probed.labels)
    return torch.where(margin.isnan(), -torch.inf, margin)


def _shuffled(slope: torch.Tensor, probed: Probed) -> torch.Tensor:
    """The entries of each sample's gradient at other places, an order a sample."""
    order = torch.from_numpy(orders(probed.ids, tuple(slope.shape[1:]), probed.seed)).to(slope.device)
    return slope.flatten(1).gather(1, order).view_as(slope)


def orders(ids: NDArray[np.int64], shape: tuple[int, ...], seed: int) -> NDArray[np.int64]:
    """A random order of the entries of each sample, (n, d): a function of its id and the seed, whatever sorts."""
    keys = ((start_noise(ids, shape, seed=seed, draw=FIRST_DRAW).reshape(len(ids), -1) + 1) * 2.0**23).astype(np.int64)
    places = np.arange(keys.shape[1])
    return np.sort(keys << 32 | places, axis=1) & 0xFFFFFFFF
