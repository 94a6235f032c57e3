"""What a network makes of an image before its last layer, and attributes of the image itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from services.measures.attacks.margins import Network, passes
from services.measures.measure import Columns
from services.numerics.attributes.pixels import pixel_attributes

WIDEST = 256
"""Numbers of an embedding; wider ones are projected to as many by a fixed Gaussian matrix."""


def embeddings(network: Network, module: Any, images: torch.Tensor) -> Columns:
    """`embedding` (n, D): what goes into the last linear layer that ran; the logits where there is none to be seen.

    Columns beside it: `services.numerics.attributes.pixels` under ``pixel:NAME``.

    Args:
        network: what runs the images and is counted.
        module: the same network as a module whose layers can be watched; anything else is not watched.
    """
    last: list[torch.Tensor] = []

    def watch(layer: Any, inputs: tuple[torch.Tensor, ...], output: Any) -> None:
        last[:] = [inputs[0].detach()]

    layers = [layer for layer in module.modules() if isinstance(layer, torch.nn.Linear)] if _watched(module) else []
    hooks = [layer.register_forward_hook(watch) for layer in layers]
    try:
        with torch.no_grad():
            logits = passes(network, images)
    finally:
        for hook in hooks:
            hook.remove()
    seen = bool(last) and last[0].ndim > 1 and len(last[0]) >= len(images)
    values = last[0][: len(images)] if seen else logits
    flat = torch.nan_to_num(values.flatten(1).float(), posinf=0.0, neginf=0.0).cpu().numpy()
    measured = pixel_attributes(images.cpu().numpy())
    return {"embedding": _narrowed(flat), **{f"pixel:{name}": column for name, column in measured.items()}}


def _watched(module: Any) -> bool:
    return isinstance(module, torch.nn.Module) and not isinstance(module, torch.jit.ScriptModule)


def _narrowed(values: np.ndarray) -> np.ndarray:
    width = values.shape[1]
    if width <= WIDEST:
        return values.astype(np.float32)
    draw = np.random.default_rng(np.random.SeedSequence([width, 29]))
    projection = draw.standard_normal((width, WIDEST)).astype(np.float32) / np.float32(np.sqrt(WIDEST))
    return np.asarray(values @ projection, dtype=np.float32)
