"""How a network is trained, whatever the method: the part of a sweep file that all methods share."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from services.errors import ConfigError
from services.fields import unchanged
from services.training.averaging import Averaging
from services.training.invalid_fields import from_validation
from services.training.step import Budget


class Recipe(BaseModel):
    """The optimiser, its schedule, and what is recorded. The defaults are PRB B.2.

    Attributes:
        epochs, batch, seed: as they say; every draw is a function of (seed, epoch, step).
        optimizer: "sgd" or "adamw"; the other defaults are those of SGD.
        lr, momentum, nesterov, weight_decay: of the optimiser; momentum is AdamW's decay of the first moment, which has
            no nesterov.
        schedule: "steps" multiplies the rate by `decay` at each of `milestones` (shares of the epochs), "cosine" goes
            to 0 at the end, "constant" stays.
        warmup: epochs over which the rate rises linearly to `lr`.
        ramp: epochs over which an attack's radius and step rise from 0 to the method's budget, batch by batch; large
            radii (MNIST 0.3) otherwise leave a fresh network on the plateau of constant predictions.
        clip: largest gradient norm; None leaves gradients as they are.
        crop, flip: augmentation: random crop after zero padding by this many pixels, and horizontal flips.
        precision: "bfloat16" runs the network under autocast; losses, weights and gradients stay float32. There is no
            float16: its loss scaler would be one more state to resume.
        mean, std: per-channel normalisation before the network, which stays out of its weights: put the same into the
            input contract of the trained model.
        channels_last: memory format of network and images.
        device: as torch spells it.
        holdout: share of each class held out for validation when none is given.
        select: which epoch's weights are returned, judged on the held-out split; "last" needs none.
        patience: epochs without a better held-out score before training stops; None never stops early.
        attack: how the held-out split is attacked; None takes the method's own budget.
        averaging: "ema", "step-ema", "swa" or "fair-ema", or the fields of one (`{"kind": "fair-ema", "threshold":
            0.1}`): the weights' average is judged and returned in their place. None, or "none", averages nothing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    ADDED: ClassVar = ("averaging", "optimizer")
    """Fields of later versions, at their defaults no part of a trial's key. Files have them, unlike `LATER`."""

    epochs: int = Field(default=100, ge=1, le=1_000_000)
    batch: int = Field(default=128, ge=1, le=2**31)
    seed: int = Field(default=0, ge=0)
    optimizer: Literal["sgd", "adamw"] = "sgd"
    lr: float = Field(default=0.01, gt=0, le=1e30)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    nesterov: bool = False
    weight_decay: float = Field(default=3.5e-3, ge=0, le=1e30)
    schedule: Literal["steps", "cosine", "constant"] = "steps"
    milestones: tuple[float, ...] = (0.75, 0.9)
    decay: float = Field(default=0.1, gt=0, le=1)
    warmup: int = Field(default=0, ge=0)
    ramp: float = Field(default=0.0, ge=0)
    clip: float | None = Field(default=None, gt=0)
    crop: int = Field(default=0, ge=0)
    flip: bool = False
    precision: Literal["float32", "bfloat16"] = "float32"
    mean: tuple[float, ...] | None = None
    std: tuple[Annotated[float, Field(gt=0)], ...] | None = None
    channels_last: bool = False
    device: str = "cpu"
    holdout: float = Field(default=0.0, ge=0, lt=1)
    select: Literal["last", "clean", "robust", "worst-class"] = "last"
    patience: int | None = Field(default=None, ge=1)
    attack: Budget | None = None
    averaging: Averaging | None = None

    @model_validator(mode="after")
    def _of_its_optimizer(self) -> Self:
        if self.optimizer == "adamw" and self.nesterov:
            raise ValueError("no nesterov with adamw; leave it out, or take sgd")
        return self

    @field_validator("averaging", mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        if isinstance(value, str):
            return None if value == "none" else {"kind": value}
        return value

    def rate(self, epoch: int) -> float:
        """Learning rate of epoch 0, 1, ..., epochs - 1."""
        if epoch < self.warmup:
            return self.lr * (epoch + 1) / self.warmup
        if self.schedule == "cosine":
            return self.lr * (1 + math.cos(math.pi * epoch / self.epochs)) / 2
        passed = sum(epoch >= round(share * self.epochs) for share in self.milestones)
        return self.lr * self.decay**passed if self.schedule == "steps" else self.lr

    def strength(self, epoch: int, step: int, steps: int) -> float:
        """Share of the attack's budget in force at a step of an epoch of so many steps."""
        return 1.0 if self.ramp == 0 else min(1.0, (epoch + (step + 1) / steps) / self.ramp)

    def canonical(self) -> str:
        """Canonical JSON, without the device: where a network was trained is not how."""
        exclude = {"device", *unchanged(self, self.ADDED)}
        return json.dumps(self.model_dump(mode="json", exclude=exclude), sort_keys=True)

    def changed(self, **knobs: Any) -> Recipe:
        """A copy with some fields replaced, validated.

        Raises:
            ConfigError: a field is unknown or out of range.
        """
        try:
            return Recipe.model_validate({**self.model_dump(), **knobs})
        except ValidationError as error:
            raise ConfigError(from_validation(error, "recipe")) from error
