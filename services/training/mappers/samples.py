"""Labelled samples of a conditional mapper: what the GREAT score's theorem asks for, as a `generator:` source.

``generator:services.training.mappers:generated?weights=FILE&n=1000&latents=8&conditions=10&size=28``
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from services.errors import Problem, SourceError
from services.loading.models.weights import load_weights
from services.training.keys import Purpose, generator
from services.training.mappers.gan import conditional_gan

BLOCK = 256


def generated(
    weights: str,
    n: int = 1000,
    classes: int | None = None,
    names: str | None = None,
    seed: int = 0,
    latents: int = 8,
    conditions: int = 10,
    channels: int = 1,
    size: int = 28,
    width: int = 16,
) -> tuple[NDArray[np.uint8], NDArray[np.int64]] | tuple[NDArray[np.uint8], NDArray[np.int64], tuple[str, ...]]:
    """Images (n, C, H, W) uint8 and the classes (n,) that they were asked to show; the same for the same arguments.

    The first `classes` conditions are the one-hot class and cycle through the classes; the others are drawn from a
    normal distribution with the mean and spread that the mapper learned, noise from a standard one. Pixels are rounded
    to whole numbers, so that machines which differ in the last bit of a sum agree on all but rare ones.

    Args:
        weights: of a `conditional_gan` with the same latents, conditions, channels, size and width.
        classes: default, all conditions are classes.
        names: of the classes, joined by commas.
    """
    count = conditions if classes is None else classes
    listed = tuple(str(names).split(",")) if names is not None else None
    problems = [
        Problem(f"generated ({where})", expected, actual)
        for where, expected, actual, wrong in (
            ("classes", f"at least 2, at most {conditions} conditions", str(count), not 2 <= count <= conditions),
            ("names", f"{count} names", str(len(listed or ())), listed is not None and len(listed) != count),
            ("n", f"at least {count}, one a class", str(n), n < count),
        )
        if wrong
    ]
    if problems:
        raise SourceError(problems)
    mapper = conditional_gan(latents, conditions, channels, size, width).eval()
    load_weights(mapper, Path(weights).expanduser(), where=f"generated ({weights})")
    labels = np.arange(n, dtype=np.int64) % count
    draws = generator(seed, Purpose.NOISE).standard_normal((n, latents + conditions))
    codes = mapper.centre.double().numpy() + mapper.unit.double().numpy() * draws
    codes[:, :latents] = draws[:, :latents]
    codes[:, latents : latents + count] = np.eye(count)[labels]
    images = _decoded(mapper, codes.astype(np.float32))
    return (images, labels) if listed is None else (images, labels, listed)


@torch.no_grad()
def _decoded(mapper: Any, latents: NDArray[np.float32]) -> NDArray[np.uint8]:
    blocks = [mapper.decode(torch.from_numpy(latents[i : i + BLOCK])) for i in range(0, len(latents), BLOCK)]
    return np.rint(torch.cat(blocks).numpy() * 255.0).astype(np.uint8)
