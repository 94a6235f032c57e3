"""Adversarial accuracy under projected gradient descent: PGD-10, PGD-20, any number of steps and radii."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from services.measures.measure import BACKWARD
from services.measures.parts.ball_attack import BallAttack, survival_extras, survival_series
from services.measures.parts.threats import Norm, Radii, Radius, check_radii
from services.records import Ascent, Column, Series

if TYPE_CHECKING:
    import torch

    from services.measures.attacks.descent import Descent
    from services.measures.attacks.survival import Survival
    from services.measures.measure import Network


class Pgd(BallAttack):
    """Survival of PGD: 1 for a sample that is classified correctly at every point the attack tries, else 0.

    One series a radius. The denominator is all samples; a misclassified sample, and one whose logits are NaN or
    infinite anywhere on the way, scores 0. Source: Madry et al. 2018, eq. 2.1 and section 4.

    Attributes:
        steps: gradient steps after the random start.
        epsilons: radii in [0, 1] pixel units; ``"8/255"`` is read as the fraction. A sample broken at one counts as
            broken at every larger one and is not attacked again.
        norm: of the ball and of the step.
        step_size: length of a step; by default epsilon / 4 for Linf (2/255 at 8/255) and 2.5 epsilon / steps for L2
            (the rule of Madry's robustness library).
        restarts: random starts.
        loss: "ce" is cross-entropy; "margin" is the largest other logit minus the label's, which is `cw`'s.

    Extra columns: `correct`; `queries`, forward passes; `broken_by`, 0 misclassified, the number of the restart from 1,
    -1 unbroken; `zero_gradient`, the share of exactly zero input gradients; `margin`, the smallest seen; `non_finite`;
    `attacked`.
    """

    gradients: ClassVar[bool] = True

    name: Literal["pgd"] = "pgd"
    steps: int = Field(default=20, ge=1, le=10_000)
    epsilons: Radii = (8 / 255,)
    norm: Norm = "Linf"
    step_size: Radius | None = None
    restarts: int = Field(default=1, ge=1, le=1_000)
    loss: Literal["ce", "margin"] = "ce"

    @model_validator(mode="after")
    def _radii_in_order(self) -> Self:
        object.__setattr__(self, "epsilons", check_radii(self.epsilons, self.norm))
        return self

    @property
    def label(self) -> str:
        """How the attack is called in keys and titles: ``pgd20``, ``pgd20x5`` for five restarts."""
        loss = "-margin" if self.loss == "margin" else ""
        return f"pgd{self.steps}{loss}" + (f"x{self.restarts}" if self.restarts > 1 else "")

    @property
    def ascents(self) -> tuple[Ascent, ...]:
        return (self.loss,)

    @property
    def most_passes(self) -> float:
        return float(BACKWARD * self.steps * self.restarts)

    def series(self) -> tuple[Series, ...]:
        title = self.label.replace(self.name, f"{self.name.upper()}-", 1)
        return survival_series(self, self.label, title, self.norm, self.epsilons)

    def columns(self) -> tuple[Column, ...]:
        starts = tuple(f"start {number}" for number in range(1, self.restarts + 1))
        return survival_extras(starts)

    def survival(
        self,
        network: Network,
        images: torch.Tensor,
        labels: torch.Tensor,
        ids: NDArray[np.int64],
        *,
        seed: int,
        keep: bool = False,
    ) -> Survival:
        from services.measures.attacks.descent import attack_curve

        return attack_curve(network, images, labels, ids, self.curve(), seed=seed, keep=keep)

    def curve(self) -> tuple[Descent, ...]:
        from services.measures.attacks.descent import Descent

        share = 0.25 if self.norm == "Linf" else 2.5 / self.steps
        return tuple(
            Descent(epsilon, self.step_size or share * epsilon, self.steps, self.restarts, self.norm, self.loss)
            for epsilon in self.epsilons
        )
