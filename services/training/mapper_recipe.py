"""How a mapper is trained."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

_OLD_NAMES = {"jolt": "noise_std", "pull": "latent_penalty"}
"""What 0.1.0 called fields; sweep files, records and the identity of checkpoints hold these names."""


class MapperRecipe(BaseModel):
    """Optimiser, length and the weights of the losses.

    Attributes:
        epochs, batch, seed, lr: of Adam; every draw is a function of (seed, epoch, step).
        holdout: share of the images that are never trained on and judge the reconstruction.
        beta: weight of the divergence (VAE).
        adversarial, reconstruction, regression: weights of the losses (conditional GAN). The reconstruction's is a mean
            over values: 10 suits 8x8 images, 28x28 ones want about 100.
        noise_std, latent_penalty: standard deviation of the noise added to encoded noise, and weight of its squared
            length (conditional GAN): they keep the class out of the noise, as a VAE's posterior and divergence do.
        critic_rate: the critic's learning rate as a share of `lr`: a small critic wins too soon otherwise.
        device: as torch spells it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    epochs: int = Field(default=20, ge=1, le=1_000_000)
    batch: int = Field(default=64, ge=2, le=2**31)
    seed: int = Field(default=0, ge=0)
    lr: float = Field(default=1e-3, gt=0, le=1e30)
    holdout: float = Field(default=0.1, gt=0, lt=1)
    beta: float = Field(default=1.0, ge=0, le=1e30)
    adversarial: float = Field(default=0.1, ge=0, le=1e30)
    reconstruction: float = Field(default=10.0, ge=0, le=1e30)
    regression: float = Field(default=0.2, ge=0, le=1e30)
    critic_rate: float = Field(default=0.2, gt=0, le=1e30)
    noise_std: float = Field(default=0.7, ge=0, le=1e30)
    latent_penalty: float = Field(default=0.05, ge=0, le=1e30)
    device: str = "cpu"

    @model_validator(mode="before")
    @classmethod
    def _old_names(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {new if (new := _OLD_NAMES.get(key, key)) not in data else key: value for key, value in data.items()}

    def canonical(self) -> str:
        """Canonical JSON with the names of 0.1.0 and without the device: where a mapper was trained is not how."""
        fields = self.model_dump(mode="json", exclude={"device"})
        for old, new in _OLD_NAMES.items():
            fields[old] = fields.pop(new)
        return json.dumps(fields, sort_keys=True)
