"""The beta-VAE (Higgins et al. 2017): factors that a larger beta presses to be independent."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from services.training.mapper_recipe import MapperRecipe
from services.training.mappers.adam import Adam
from services.training.mappers.blocks import Down, MapperModule, Up


class Vae(MapperModule):
    """`encode` gives the posterior's mean, so that a mapper used as a measure draws nothing."""

    def __init__(self, latents: int, channels: int, size: int, width: int) -> None:
        super().__init__(latents, channels, size, width)
        self.down = Down(channels, size, width)
        self.hidden = nn.Sequential(nn.Linear(self.down.features, 8 * width), nn.LeakyReLU(0.2))
        self.posterior = nn.Linear(8 * width, 2 * latents)
        self.up = Up(latents, channels, size, width)

    def encode(self, images: Tensor) -> Tensor:
        return self.moments(images)[0]

    def moments(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of the posterior, (n, L) each."""
        mean, log_variance = self.posterior(self.hidden(self.down(images))).chunk(2, dim=1)
        return mean, log_variance.clamp(-10.0, 10.0)

    def decode(self, latents: Tensor) -> Tensor:
        images: Tensor = self.up(latents)
        return images


class VaeObjective:
    """``E[-log p(x | z)] + beta KL(q(z | x) || N(0, 1))`` an image, with a Bernoulli likelihood a value."""

    def __init__(self, mapper: Vae, recipe: MapperRecipe) -> None:
        self.mapper, self.recipe = mapper, recipe
        self.modules: dict[str, nn.Module] = {"mapper": mapper}
        self.optimizers = {"mapper": Adam({"mapper": mapper}, lr=recipe.lr, betas=(0.9, 0.999))}

    def step(self, images: Tensor, conditions: Tensor | None, draw: torch.Generator) -> dict[str, float]:
        """One step; returns the loss and its parts, an image; no step where what comes back is not finite."""
        mean, log_variance = self.mapper.moments(images)
        noise = torch.randn(mean.shape, generator=draw, device=mean.device)
        back = self.mapper.decode(mean + noise * (log_variance / 2.0).exp())
        if not bool(back.isfinite().all()):  # the likelihood would raise, and not say why
            return {"loss": math.nan}
        likelihood = F.binary_cross_entropy(back, images, reduction="sum") / len(images)
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1.0 - log_variance).sum() / len(images)
        loss = likelihood + self.recipe.beta * divergence
        self.optimizers["mapper"].step(loss)
        losses = {"loss": loss, "reconstruction": likelihood, "divergence": divergence}
        return {name: float(value.detach()) for name, value in losses.items()}


def vae(latents: int = 10, channels: int = 1, size: int = 28, width: int = 16) -> Vae:
    """A beta-VAE for images (channels, size, size), size a multiple of 4."""
    return Vae(latents, channels, size, width)
