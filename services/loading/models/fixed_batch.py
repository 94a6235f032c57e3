"""Graphs exported with a fixed batch size, served at any: padded with copies of the last image, run, and cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class FixedBatch(nn.Module):
    """Serve batches of any size through a network that takes exactly `size` images.

    Padding repeats an image of the batch, so it brings in no odd values; padded rows are dropped.
    """

    mode_is_fixed = True

    def __init__(self, network: Any, size: int) -> None:
        super().__init__()
        self.network, self.size = network, size

    def forward(self, images: Tensor) -> Any:
        count = len(images)
        padding = -count % self.size
        padded = torch.cat([images, images[-1:].expand(padding, *images.shape[1:])]) if padding else images
        return joined([self.network(part) for part in torch.split(padded, self.size)], count)


def joined(parts: Sequence[Any], count: int) -> Any:
    """Concatenate outputs of the same structure (tensor, tuple, mapping) along the batch and keep `count` rows."""
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat(list(parts))[:count]
    if isinstance(first, Mapping):
        return {key: joined([part[key] for part in parts], count) for key in first}
    if isinstance(first, tuple | list):
        return tuple(joined([part[k] for part in parts], count) for k in range(len(first)))
    return first
