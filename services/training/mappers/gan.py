"""A conditional GAN with an encoder: images from noise and attributes, and back.

The latents are ``[noise (latents) | conditions]``. Conditions are numbers a sample: one-hot classes, measured
attributes, or both. The generator answers a conditional discriminator (Mirza & Osindero 2014, the non-saturating loss
of Goodfellow et al. 2014); the encoder learns to give back the latents of generated images (as InfoGAN and latent
regression do), the conditions of real ones, and noise from which real images are rebuilt.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from services.errors import ConfigError, Problem
from services.training.mapper_recipe import MapperRecipe
from services.training.mappers.adam import Adam
from services.training.mappers.blocks import Down, MapperModule, Up


class ConditionalGan(MapperModule):
    """Generator and encoder; the discriminator belongs to training alone and is not saved with the mapper."""

    def __init__(self, latents: int, conditions: int, channels: int, size: int, width: int) -> None:
        super().__init__(latents + conditions, channels, size, width)
        if conditions < 1:
            raise ConfigError(Problem("mapper.conditions", "at least 1", str(conditions), "use vae without conditions"))
        self.noise, self.conditions, self.shape = latents, conditions, (channels, size, width)
        self.down = Down(channels, size, width)
        self.head = nn.Sequential(
            nn.Linear(self.down.features, 8 * width), nn.LeakyReLU(0.2), nn.Linear(8 * width, latents + conditions)
        )
        self.up = Up(latents + conditions, channels, size, width)

    def encode(self, images: Tensor) -> Tensor:
        latents: Tensor = self.head(self.down(images))
        return latents

    def decode(self, latents: Tensor) -> Tensor:
        images: Tensor = self.up(latents)
        return images


class Critic(nn.Module):
    """The conditional discriminator: features of an image, scored with its conditions."""

    def __init__(self, conditions: int, channels: int, size: int, width: int) -> None:
        super().__init__()
        self.down = Down(channels, size, width)
        self.score = nn.Sequential(
            nn.Linear(self.down.features + conditions, 8 * width), nn.LeakyReLU(0.2), nn.Linear(8 * width, 1)
        )

    def forward(self, images: Tensor, conditions: Tensor) -> Tensor:
        """(n,) logits of being real."""
        scores: Tensor = self.score(torch.cat([self.down(images), conditions], dim=1)).squeeze(1)
        return scores


class GanObjective:
    """One step of the critic, then one of generator and encoder together."""

    def __init__(self, mapper: ConditionalGan, recipe: MapperRecipe) -> None:
        self.mapper, self.recipe = mapper, recipe
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(recipe.seed)
            self.critic = Critic(mapper.conditions, *mapper.shape).to(recipe.device)
        self.modules: dict[str, nn.Module] = {"mapper": mapper, "critic": self.critic}
        rates = {"mapper": recipe.lr, "critic": recipe.lr * recipe.critic_rate}
        self.optimizers = {
            name: Adam({name: module}, lr=rates[name], betas=(0.5, 0.999)) for name, module in self.modules.items()
        }

    def step(self, images: Tensor, conditions: Tensor | None, draw: torch.Generator) -> dict[str, float]:
        """Returns the mapper's loss and the parts of both, means over images and values."""
        if conditions is None:
            raise ConfigError(Problem("conditions", "an array (N, A) for a conditional GAN", "none"))
        mapper, recipe = self.mapper, self.recipe
        noise = torch.randn(len(images), mapper.noise, generator=draw, device=images.device)
        latents = torch.cat([noise, conditions], dim=1)
        fake = mapper.decode(latents)
        critic_loss = F.softplus(-self.critic(images, conditions)) + F.softplus(self.critic(fake.detach(), conditions))
        self.optimizers["critic"].step(critic_loss.mean())

        encoded = mapper.encode(images)
        own = encoded[:, : mapper.noise]
        noise = recipe.noise_std * torch.randn(own.shape, generator=draw, device=own.device)
        back = mapper.decode(torch.cat([own + noise, conditions], dim=1))
        adversarial = F.softplus(-self.critic(fake, conditions)).mean()
        rebuilt = F.mse_loss(back, images)
        regressed = F.mse_loss(mapper.encode(fake), latents) + F.mse_loss(encoded[:, mapper.noise :], conditions)
        penalty = own.square().mean()
        loss = recipe.adversarial * adversarial + recipe.reconstruction * rebuilt + recipe.regression * regressed
        loss = loss + recipe.latent_penalty * penalty
        self.optimizers["mapper"].step(loss)
        losses = {"loss": loss, "critic": critic_loss.mean(), "adversarial": adversarial}
        losses |= {"reconstruction": rebuilt, "regression": regressed}
        return {name: float(value.detach()) for name, value in losses.items()}


def conditional_gan(
    latents: int = 8, conditions: int = 10, channels: int = 1, size: int = 28, width: int = 16
) -> ConditionalGan:
    """A conditional GAN with an encoder, for images (channels, size, size), size a multiple of 4."""
    return ConditionalGan(latents, conditions, channels, size, width)
