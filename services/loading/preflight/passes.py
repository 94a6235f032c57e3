"""Passes of the probe through a network, with its faults as messages."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from services.devices import is_out_of_memory, release
from services.errors import Problem


@torch.no_grad()
def run(network: Any, images: NDArray[np.float32], device: str, chunk: int) -> NDArray[np.float32]:
    """Logits (n, K) of images, `chunk` at a time; where memory runs out half as many, down to one."""
    parts: list[NDArray[np.float32]] = []
    start = 0
    while start < len(images):
        try:
            block = torch.from_numpy(images[start : start + chunk]).to(device)
            parts.append(network(block).float().cpu().numpy())
            start += chunk
            continue
        except Exception as error:
            if chunk == 1 or not is_out_of_memory(error):
                raise
        chunk //= 2
        release(device)
    return np.concatenate(parts)


def failure(name: str, images: NDArray[np.float32], error: Exception) -> Problem:
    """A network that raised: a channel mismatch by name, anything else by its own words."""
    text = " ".join(str(error).split())
    channels = re.search(r"to have (\d+) channels, but got (\d+) channels", text)
    shape = tuple(images.shape[1:])
    if channels:
        expected, got = channels.groups()
        remedy = f"set input.channels: {expected}"
        return Problem(f"{name} (input)", f"{expected} channels", f"images of {got} {shape}", remedy)
    if is_out_of_memory(error):
        remedy = "use a larger device, or more of it a worker (resources.gpus)"
        return Problem(f"{name} (memory)", "memory for one image", f"out of memory: {text[:200]}", remedy)
    actual = f"{type(error).__name__}: {text[:300]}"
    remedy = "set input.size and input.channels to what the network takes"
    if re.search(r"dtype|Input type|scalar type", text):
        remedy = "images are float32: return network.float() from the factory, or export it in single precision"
    return Problem(f"{name} (input)", f"a network that takes images {shape}", actual, remedy)
