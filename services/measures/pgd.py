"""Adversarial accuracy under projected gradient descent: PGD-10, PGD-20, any number of steps and radii."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from services.measures.measure import Columns, Measure
from services.measures.threats import Norm, Radii, Radius, check_radii, radius_key, radius_title
from services.records import Ascent, Column, Evidence, Series, ThreatModel

if TYPE_CHECKING:
    import torch

    from services.measures.attacks.descent import Descent
    from services.measures.attacks.survival import Survival
    from services.measures.measure import Network


class Pgd(Measure):
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
    -1 unbroken; `zero_gradient`, the share of exactly zero input gradients; `margin`, the smallest seen; `non_finite`.
    """

    gradients: ClassVar[bool] = True
    needs: ClassVar[Literal["logits", "model"]] = "model"

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

    def series(self) -> tuple[Series, ...]:
        title = self.label.replace(self.name, f"{self.name.upper()}-", 1)
        return survival_series(self, self.label, title, self.norm, self.epsilons)

    def columns(self) -> tuple[Column, ...]:
        starts = tuple(f"start {number}" for number in range(1, self.restarts + 1))
        return survival_extras(starts)

    def from_model(
        self,
        network: Network,
        images: torch.Tensor,
        labels: torch.Tensor,
        ids: NDArray[np.int64],
        *,
        seed: int,
    ) -> Columns:
        """Attack one batch; the score of a sample is a function of the network, the sample, its id and the seed."""
        from services.measures.attacks.descent import attack_curve

        survival = attack_curve(network, images, labels, ids, self.curve(), seed=seed)
        return survival_columns(self.series(), survival)

    def curve(self) -> tuple[Descent, ...]:
        from services.measures.attacks.descent import Descent

        share = 0.25 if self.norm == "Linf" else 2.5 / self.steps
        return tuple(
            Descent(epsilon, self.step_size or share * epsilon, self.steps, self.restarts, self.norm, self.loss)
            for epsilon in self.epsilons
        )


def survival_series(
    measure: Measure, label: str, title: str, norm: Norm, epsilons: tuple[float, ...]
) -> tuple[Series, ...]:
    """One binary series a radius, as every attack within a ball has."""
    return tuple(
        measure.one_series(
            f"{label}/{radius_key(norm, epsilon)}",
            f"{title} accuracy ({radius_title(norm, epsilon)})",
            binary=True,
            evidence=Evidence.ATTACK,
            label=label,
            threat=ThreatModel(norm, epsilon),
        )
        for epsilon in epsilons
    )


def survival_extras(steps: tuple[str, ...]) -> tuple[Column, ...]:
    """The columns beside the series of an attack within balls; `steps` are what can break a sample, in order."""
    return Column("broken_by", "code", ("unbroken", "misclassified", *steps), first=-1), Column("queries", "count")


def survival_columns(series: tuple[Series, ...], curve: Survival) -> Columns:
    """The score table of an attack within balls: one column a radius, and the extras."""
    scores = {each.key: row.astype(np.float64) for each, row in zip(series, curve.survived, strict=True)}
    extras = {"correct": curve.correct.astype(np.float64), "broken_by": curve.broken_by, **curve.tally.columns()}
    return {**scores, **extras}
