"""What a step of training is given and what it returns: the attack's budget, the batch, the loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self

from pydantic import ConfigDict, Field

from services.fields import Fields

if TYPE_CHECKING:
    import torch
    from torch import Tensor


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
        totals: training samples of each class; empty where they are not known.
    """

    images: Tensor
    labels: Tensor
    classes: int
    generator: torch.Generator
    state: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    strength: float = 1.0
    totals: tuple[int, ...] = ()


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
