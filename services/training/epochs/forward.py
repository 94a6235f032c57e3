"""The network as methods see it: images in [0, 1] in, float32 logits out."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from services.training.recipe import Recipe


class Forward(nn.Module):
    """The network behind normalisation, under autocast, its logits as float32, in the memory format asked for."""

    def __init__(self, network: nn.Module, recipe: Recipe) -> None:
        super().__init__()
        self.network = network
        self._device = torch.device(recipe.device).type
        self._low = recipe.precision == "bfloat16"
        self._normal = None if recipe.mean is None or recipe.std is None else _vectors(recipe)
        self._format = torch.channels_last if recipe.channels_last else torch.contiguous_format

    def forward(self, images: Tensor) -> Tensor:
        if self._normal is not None:
            images = (images - self._normal[0]) / self._normal[1]
        with torch.autocast(self._device, torch.bfloat16, enabled=self._low):
            logits: Tensor = self.network(images.contiguous(memory_format=self._format))
        return logits.float()


def _vectors(recipe: Recipe) -> tuple[Tensor, Tensor]:
    mean, std = (torch.tensor(values, device=recipe.device).view(1, -1, 1, 1) for values in (recipe.mean, recipe.std))
    return mean, std
