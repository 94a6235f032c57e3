"""Averages of the weights: moving ones over epochs or steps, CFA's, which takes in fair epochs only, and equal means.

An average is what is validated, selected and returned; training itself goes on from the epoch's own weights, so it is
the same with and without one. Averaged are all floating-point entries of the state dict, batch-norm statistics among
them, as the authors of CFA do; only `swa` computes these again, on training data. Whole numbers are those of the last
epoch or step taken in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from torch import Tensor

    from services.training.counts import ClassCounts


class _Average(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    start: float = Field(default=0.25, ge=0, le=1)

    def is_due(self, epoch: int, epochs: int) -> bool:
        """Whether averaging has begun by epoch 0, 1, ..., epochs - 1."""
        return epoch >= min(round(self.start * epochs), epochs - 1)


class _Moving(_Average):
    decay: float = Field(default=0.85, ge=0, lt=1)

    def past(self, taken: int) -> float:
        """Weight of the average of so many epochs beside the next one."""
        return self.decay


class Ema(_Moving):
    """`average <- decay average + (1 - decay) weights` after each epoch; the first epoch taken in is the average.

    Attributes:
        decay: weight of the past.
        start: share of the epochs that are over before the first is taken in.
    """

    kind: Literal["ema"] = "ema"


class FairEma(_Moving):
    """The moving average of those epochs whose own weights are fair on the held-out split.

    Fairness-aware weight averaging (Wei et al. 2023, section 4.3 and Algorithm 1): an epoch is taken in if and only if
    the robust accuracy of its worst class is at least `threshold`. Decay, start (epoch 50 of 200) and threshold are
    those of section 5.1. Until an epoch qualifies there is no average, and the epoch's own weights stand for it;
    Algorithm 1 would average with the initial weights instead.
    """

    kind: Literal["fair-ema"] = "fair-ema"
    threshold: float = Field(default=0.2, ge=0, le=1)

    def is_fair(self, held: ClassCounts) -> bool:
        """Whether the worst class, among those that the split has, is robust enough."""
        worst = held.accuracy("worst-class")
        return worst is not None and worst >= self.threshold


class StepEma(_Moving):
    """`average <- decay average + (1 - decay) weights` after each step, from the weights after the first step on.

    The decay is that of Rebuffi et al., "Fixing Data Augmentation to Improve Adversarial Robustness", 2021, section 3.
    """

    kind: Literal["step-ema"] = "step-ema"
    decay: float = Field(default=0.999, ge=0, lt=1)


class Swa(_Average):
    """The mean of the weights after each epoch, all counting alike; batch norm's statistics are computed again.

    Stochastic weight averaging (Izmailov et al. 2018, Algorithm 1), from three quarters of the epochs on as there. The
    statistics are those of one pass over the clean training images, augmented, in training's batches. The rate is that
    of the recipe's schedule; the source keeps it constant, or lets it cycle, while weights are averaged.
    """

    kind: Literal["swa"] = "swa"
    start: float = Field(default=0.75, ge=0, le=1)

    def past(self, taken: int) -> float:
        """Weight of the average of so many epochs beside the next one."""
        return taken / (taken + 1)


Averaging = Annotated[Ema | FairEma | StepEma | Swa, Field(discriminator="kind")]


def averaged(average: Mapping[str, Tensor], weights: Mapping[str, Tensor], decay: float) -> dict[str, Tensor]:
    """The average with an epoch's state dict taken in; the state dict itself where there is no average yet."""
    return {
        name: decay * average[name] + (1 - decay) * value if name in average and value.is_floating_point() else value
        for name, value in weights.items()
    }
