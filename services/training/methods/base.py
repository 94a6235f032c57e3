"""What a training method is: frozen parameters that turn a batch into a loss.

Parameters are a frozen pydantic model, so that a sweep file is validated by the very class that trains, and its
canonical JSON identifies a checkpoint. Modules of methods import torch inside functions or through
`services.training.losses.terms`, never here: a sweep file is validated in the driver before any heavy import.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field

from services.fields import Fields

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from services.training.counts import EpochRecord

State = dict[str, tuple[float, ...]]
"""What a class-wise method remembers from epoch to epoch: vectors of K numbers by name. It is kept in checkpoints."""


class Budget(Fields):
    """An Linf attack: radius, step and number of steps in [0, 1] pixel units (PRB B.2; MNIST: 0.3 and 0.1)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epsilon: float = Field(default=8 / 255, ge=0, le=1)
    step: float = Field(default=2 / 255, gt=0, le=1)
    steps: int = Field(default=10, ge=1, le=10_000)
    random_start: bool = True

    def scaled(self, strength: float) -> Self:
        """The same attack with radius and step multiplied by a number in (0, 1]."""
        changes = {"epsilon": self.epsilon * strength, "step": self.step * strength}
        return self if strength == 1 else self.model_copy(update=changes)


class RandomBudget(Budget):
    """A budget whose start must be random: a divergence from the clean output has no gradient at the clean image."""

    random_start: Literal[True] = True


@dataclass(frozen=True)
class Batch:
    """One step's samples.

    Attributes:
        images: (n, C, H, W) float32 in [0, 1].
        labels: (n,) int64.
        classes: K.
        generator: source of all noise of this step, on the images' device; keyed by (seed, epoch, step).
        state: the method's class-wise state of this epoch.
        strength: share of an attack's radius and step in force, in (0, 1]; below 1 while the recipe ramps up.
    """

    images: Tensor
    labels: Tensor
    classes: int
    generator: torch.Generator
    state: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    strength: float = 1.0


@dataclass(frozen=True)
class StepResult:
    """What a method returns for a batch.

    Attributes:
        loss: scalar to minimise.
        clean: logits (n, K) of the clean images where the method computed them.
        robust: logits (n, K) of the perturbed images where the method computed them for the whole batch.
    """

    loss: Tensor
    clean: Tensor | None = None
    robust: Tensor | None = None


class Method(Fields):
    """A training method and its parameters. Subclass, and implement `step`.

    Attributes:
        version: raise it whenever the same parameters train differently; it is part of the checkpoint's identity.
        needs_validation: the method steers by a held-out split, so one must be given.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: ClassVar[int] = 1
    needs_validation: ClassVar[bool] = False
    name: str

    def step(self, network: torch.nn.Module, batch: Batch) -> StepResult:
        """The loss of one batch; `network` is in training mode and maps images in [0, 1] to float32 logits."""
        raise NotImplementedError(f"{type(self).__name__} does not say how a step is made")

    def held_losses(self, network: torch.nn.Module, batch: Batch) -> Tensor | None:
        """Losses (n,) of held-out samples by which the method steers; `network` is in evaluation mode.

        Asked of methods that need validation, of the epoch's own weights; their sums by class reach `next_state` as
        `record.held_losses`. None when the counts of `record.validation` are enough.
        """
        return None

    def attack(self) -> Budget:
        """The attack by which the held-out split is judged when the recipe names none."""
        return getattr(self, "budget", Budget())

    def initial_state(self, classes: int) -> State:
        """State before the first epoch."""
        return {}

    def next_state(self, state: Mapping[str, tuple[float, ...]], record: EpochRecord) -> State:
        """State for the next epoch, from what this epoch showed. Pure, so a resumed run goes on alike."""
        return dict(state)

    def canonical(self) -> str:
        """Canonical JSON of the parameters, with the version."""
        fields: dict[str, Any] = {"version": self.version, **self.model_dump(mode="json")}
        return json.dumps(fields, sort_keys=True)
