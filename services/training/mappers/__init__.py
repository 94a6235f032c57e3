"""Mappers between images and latent factors, as `factory:services.training.mappers:vae?weights=FILE` names them."""

from services.training.mappers.gan import conditional_gan
from services.training.mappers.samples import generated
from services.training.mappers.vae import vae

__all__ = ["conditional_gan", "generated", "vae"]
