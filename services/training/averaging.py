"""Averages of the weights over epochs: the exponential moving average, and CFA's, which takes in fair epochs only.

An average is what is validated, selected and returned; training itself goes on from the epoch's own weights, so it is
the same with and without one. Averaged are all floating-point entries of the state dict, batch-norm statistics among
them, as the authors of CFA do; nothing is recomputed on training data. Whole numbers are those of the last epoch taken
in.
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

    decay: float = Field(default=0.85, ge=0, lt=1)
    start: float = Field(default=0.25, ge=0, le=1)

    def is_due(self, epoch: int, epochs: int) -> bool:
        """Whether averaging has begun by epoch 0, 1, ..., epochs - 1."""
        return epoch >= min(round(self.start * epochs), epochs - 1)


class Ema(_Average):
    """`average <- decay average + (1 - decay) weights` after each epoch; the first epoch taken in is the average.

    Attributes:
        decay: weight of the past.
        start: share of the epochs that are over before the first is taken in.
    """

    kind: Literal["ema"] = "ema"


class FairEma(_Average):
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


Averaging = Annotated[Ema | FairEma, Field(discriminator="kind")]


def averaged(average: Mapping[str, Tensor], weights: Mapping[str, Tensor], decay: float) -> dict[str, Tensor]:
    """The average with an epoch's state dict taken in; the state dict itself where there is no average yet."""
    return {
        name: decay * average[name] + (1 - decay) * value if name in average and value.is_floating_point() else value
        for name, value in weights.items()
    }
