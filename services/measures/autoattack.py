"""Adversarial accuracy under AutoAttack, standard version, Linf and L2."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from services.errors import MeasureError, Problem
from services.measures.measure import BACKWARD, SORTS, SORTS_FAB
from services.measures.parts.ball_attack import BallAttack, survival_extras, survival_series
from services.measures.parts.threats import Norm, Radii, check_radii
from services.records import Ascent, Column, Series

if TYPE_CHECKING:
    import torch

    from services.measures.attacks.packaged import Plan
    from services.measures.attacks.survival import Survival
    from services.measures.measure import Network

AttackName = Literal["apgd-ce", "apgd-t", "fab-t", "square"]


PASSES: dict[AttackName, float] = {
    "apgd-ce": 100 * BACKWARD,
    "apgd-t": 900 * BACKWARD,
    "fab-t": 900 * BACKWARD,
    "square": 5000.0,
}
"""The package's own numbers of steps, for a sample that stands to the end."""


class AutoAttackSurvival(BallAttack):
    """Survival of AutoAttack (Croce & Hein 2020) as its package `pyautoattack` runs it.

    One binary series a radius. For one batch the survivors are those of the package run alone with the same seed on the
    same batch. The package's random starts depend on a sample's place in its batch, so unlike our own attacks the
    result may differ for a few samples when the batch size changes; the same shard in the same batches gives the same.

    Attributes:
        epsilons: radii in [0, 1] pixel units; a sample broken at one counts as broken at every larger one.
        norm: "Linf" or "L2".
        attacks: of the standard version, in order; all four by default.

    Extra columns: `correct`; `broken_by`, 0 misclassified, -1 unbroken, else 1 apgd-ce, 2 apgd-t, 3 fab-t, 4 square,
    5 apgd-dlr (which stands in for apgd-t where there are 3 classes); `queries`, the images passed while the sample was
    attacked over the samples attacked with it, the package's own checks included; `non_finite`; `attacked`.
    """

    gradients: ClassVar[bool] = True
    batch_dependent: ClassVar[bool] = True
    unknown: ClassVar[tuple[str, ...]] = ("zero_gradient", "margin")
    pass_cost: ClassVar[float] = 2.0

    name: Literal["autoattack"] = "autoattack"
    epsilons: Radii = (8 / 255,)
    norm: Norm = "Linf"
    attacks: tuple[AttackName, ...] = Field(default=("apgd-ce", "apgd-t", "fab-t", "square"), min_length=1)

    @model_validator(mode="after")
    def _radii_in_order(self) -> Self:
        object.__setattr__(self, "epsilons", check_radii(self.epsilons, self.norm))
        return self

    @property
    def ascents(self) -> tuple[Ascent, ...]:
        return ("ce", "dlr") if set(self.attacks) != {"square"} else ()

    @property
    def most_passes(self) -> float:
        return sum(PASSES[name] for name in self.attacks)

    @property
    def most_sorts(self) -> float:
        fab = PASSES["fab-t"] / BACKWARD if "fab-t" in self.attacks else 0.0
        return super().most_sorts + (SORTS_FAB - SORTS) * fab

    def series(self) -> tuple[Series, ...]:
        whole = len(self.attacks) == 4
        label = "autoattack" if whole else "autoattack-" + "-".join(name.replace("-", "") for name in self.attacks)
        title = "AutoAttack" if whole else f"AutoAttack ({', '.join(self.attacks)})"
        return survival_series(self, label, title, self.norm, self.epsilons)

    def columns(self) -> tuple[Column, ...]:
        return survival_extras(("apgd-ce", "apgd-t", "fab-t", "square", "apgd-dlr"))

    def plan(self, classes: int) -> Plan:
        """The attacks that can run on a network of K classes, with a note when some cannot."""
        from services.measures.attacks.packaged import plan_for

        if classes < 2:
            raise MeasureError(Problem(self.name, "a network with at least 2 classes", f"{classes}"))
        plan = plan_for(classes, self.attacks)
        if not plan.attacks:
            raise MeasureError(
                Problem(self.name, f"an attack that runs on {classes} classes", plan.note, "add apgd-ce")
            )
        return plan

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
        """Attack one batch with the package's generator seeded by `seed`; the global generators stay as they were."""
        import torch

        from services.measures.attacks.packaged import Packaged
        from services.measures.attacks.survival import survive

        with torch.no_grad():
            plan = self.plan(network(images[:1]).shape[1])
        curve = [
            [Packaged(network, images, labels, name, plan.targets, epsilon, self.norm, seed) for name in plan.attacks]
            for epsilon in self.epsilons
        ]
        return survive(network, images, labels, curve, keep=keep)
