"""What mappers are built of: a convolutional way down to features and up to an image, for sizes divisible by 4."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from services.errors import ConfigError, Problem


class Down(nn.Sequential):
    """(n, channels, size, size) to (n, 2 width (size / 4)**2) features."""

    def __init__(self, channels: int, size: int, width: int) -> None:
        super().__init__(
            nn.Conv2d(channels, width, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
        )
        self.features = 2 * width * (size // 4) ** 2


class Up(nn.Sequential):
    """(n, inputs) to (n, channels, size, size) in [0, 1]."""

    def __init__(self, inputs: int, channels: int, size: int, width: int) -> None:
        edge = size // 4
        super().__init__(
            nn.Linear(inputs, 2 * width * edge * edge),
            nn.LeakyReLU(0.2),
            nn.Unflatten(1, (2 * width, edge, edge)),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.ConvTranspose2d(width, channels, 4, 2, 1),
            nn.Sigmoid(),
        )


class MapperModule(nn.Module):
    """A mapper that this program trains: L latents, and where the latents of its training data lie.

    Attributes:
        centre, unit: (L,), mean and standard deviation of the encoded training data; saved with the weights.
    """

    centre: Tensor
    unit: Tensor

    def __init__(self, latents: int, channels: int, size: int, width: int) -> None:
        super().__init__()
        sizes = {"latents": latents, "channels": channels, "width": width}
        problems = [Problem(f"mapper.{name}", "at least 1", str(value)) for name, value in sizes.items() if value < 1]
        if size < 4 or size % 4:
            problems.append(Problem("mapper.size", "a multiple of 4", str(size), "resize or pad the images"))
        if problems:
            raise ConfigError(problems)
        self.latents = latents
        self.register_buffer("centre", torch.zeros(latents))
        self.register_buffer("unit", torch.ones(latents))

    def encode(self, images: Tensor) -> Tensor:
        """Latents (n, L) of images (n, C, H, W) in [0, 1]."""
        raise NotImplementedError

    def decode(self, latents: Tensor) -> Tensor:
        """Images in [0, 1] of latents (n, L)."""
        raise NotImplementedError

    def forward(self, images: Tensor) -> Tensor:
        """Images and back."""
        return self.decode(self.encode(images))
