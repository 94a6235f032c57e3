"""How fast a network is here: seconds an image of a forward pass, and of one with the gradient of the image.

Beside them what it takes to sort an image's values: the unit of what attacks compute besides running the network, which
is most of what FAB costs on a small one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from services.devices import is_out_of_memory, release
from services.loading.preflight.bounds import REPEATS, TIMED

GRADIENT = 32
"""Images whose gradients are timed on a CPU, of `TIMED` that are passed; a GPU is timed on a batch."""


def measured_speed(
    network: Any, images: NDArray[np.float32], *, device: str, batch: int, gradients: bool
) -> dict[str, float | None]:
    """`forward`, `gradient` and `sort`, seconds an image; None where there are no gradients, or no memory for them.

    And `values`, how many an image has.
    """
    most = batch if device.startswith("cuda") else TIMED
    chunk = torch.from_numpy(images[: min(most, batch)]).to(device)

    def forward() -> None:
        with torch.no_grad():
            network(chunk).float().cpu()

    part = chunk if device.startswith("cuda") else chunk[:GRADIENT]

    def gradient() -> None:
        with torch.enable_grad():
            x = part.clone().requires_grad_(True)
            (torch.autograd.grad(network(x).float().sum(), x)[0]).cpu()

    def sort() -> None:
        part.flatten(1).sort(dim=1).values[:, 0].cpu()

    seconds = {
        "forward": _fastest(forward, len(chunk), device),
        "gradient": None,
        "sort": _fastest(sort, len(part), device),
        "values": images[0].size,
    }
    return {**seconds, "gradient": _fastest(gradient, len(part), device)} if gradients else seconds


def _fastest(run: Callable[[], None], count: int, device: str) -> float | None:
    """Seconds an image; None where memory runs out or the network refuses."""
    taken = []
    try:
        for _ in range(REPEATS):
            started = time.perf_counter()
            run()
            taken.append(time.perf_counter() - started)
    except Exception as error:
        if is_out_of_memory(error):
            release(device)
        return None
    return min(taken) / count
