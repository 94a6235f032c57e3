"""Adversarial accuracy under Auto-PGD: cross-entropy and targeted DLR, both free of the logits' scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from services.errors import MeasureError, Problem
from services.measures.measure import BACKWARD
from services.measures.parts.ball_attack import BallAttack, survival_extras, survival_series
from services.measures.parts.threats import Norm, Radii, check_radii
from services.records import Ascent, Column, Series

if TYPE_CHECKING:
    import torch

    from services.measures.attacks.autopgd import Schedule
    from services.measures.attacks.survival import Survival
    from services.measures.measure import Network

LossName = Literal["ce", "dlr-t"]


class Apgd(BallAttack):
    """Survival of APGD (Croce & Hein 2020, arXiv 2003.01690, Algorithm 1): step sizes that halve by themselves.

    One series a radius; the denominator is all samples. Multiplying all logits by a number or adding one to them does
    not change the attack: the targeted DLR loss (eq. 7) is a ratio, and the cross-entropy is taken of logits divided by
    their spread on the clean image. Departures from the authors' package: `services.measures.attacks.autopgd`.

    Attributes:
        steps: gradient steps of each run.
        epsilons: radii in [0, 1] pixel units; a sample broken at one counts as broken at every larger one.
        norm: of the ball and of the step.
        restarts: how many times all runs are made, from other random starts.
        targets: classes that "dlr-t" aims at, one run each, the most likely on the clean image first; K - 1 at most.
        losses: what is run, in order. With three classes the untargeted DLR (eq. 6) stands in for "dlr-t"; with two it
            is left out, for it has no third logit to divide by.

    Extra columns: `correct`; `broken_by`, 0 misclassified, -1 unbroken, else 1 ce, 2 dlr-t, 3 dlr; `queries`, forward
    passes; `zero_gradient`, the share of exactly zero input gradients; `margin`, the smallest seen; `non_finite`;
    `attacked`.
    """

    gradients: ClassVar[bool] = True

    name: Literal["apgd"] = "apgd"
    steps: int = Field(default=30, ge=1, le=10_000)
    epsilons: Radii = (8 / 255,)
    norm: Norm = "Linf"
    restarts: int = Field(default=1, ge=1, le=1_000)
    targets: int = Field(default=9, ge=1, le=1_000)
    losses: tuple[LossName, ...] = Field(default=("ce", "dlr-t"), min_length=1)

    @model_validator(mode="after")
    def _radii_in_order(self) -> Self:
        object.__setattr__(self, "epsilons", check_radii(self.epsilons, self.norm))
        if len(set(self.losses)) < len(self.losses):
            raise ValueError(f"expected each loss once, got {list(self.losses)}; use restarts to repeat them")
        return self

    @property
    def label(self) -> str:
        """How the attack is called in keys and titles: ``apgd30``, ``apgd30-ce``, ``apgd30-t3x5``."""
        losses = "" if len(self.losses) == 2 else "-" + self.losses[0].replace("-", "")
        targets = f"-t{self.targets}" if self.targets != 9 and "dlr-t" in self.losses else ""
        return f"apgd{self.steps}{losses}{targets}" + (f"x{self.restarts}" if self.restarts > 1 else "")

    @property
    def ascents(self) -> tuple[Ascent, ...]:
        return tuple("ce" if loss == "ce" else "dlr" for loss in self.losses)

    @property
    def most_passes(self) -> float:
        runs = sum(self.targets if loss == "dlr-t" else 1 for loss in self.losses)
        return float(BACKWARD * self.steps * self.restarts * runs)

    def series(self) -> tuple[Series, ...]:
        return survival_series(self, self.label, self.label.replace("apgd", "APGD-", 1), self.norm, self.epsilons)

    def columns(self) -> tuple[Column, ...]:
        return survival_extras(("ce", "dlr-t", "dlr"))

    def schedule(self, classes: int) -> Schedule:
        """The runs that fit a network of K classes.

        Raises:
            MeasureError: fewer than 2 classes, or none of the losses is defined for 2.
        """
        from services.measures.attacks.autopgd import Schedule

        if classes < 2:
            raise MeasureError(Problem(self.name, "a network with at least 2 classes", f"{classes}"))
        whole = Schedule(self.epsilons, self.steps, self.restarts, self.targets, self.losses, self.norm)
        fitted = whole.fitted(classes)
        if not fitted.losses:
            remedy = "add ce to losses"
            raise MeasureError(Problem(self.name, "a loss that 2 classes define", "dlr-t, which needs 3", remedy))
        return fitted

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
        from services.measures.attacks.autopgd import Outlook, attack_curve

        outlook = Outlook.of(network, images)
        schedule = self.schedule(outlook.ranked.shape[1])
        return attack_curve(network, images, labels, ids, schedule, outlook, seed=seed, keep=keep)
