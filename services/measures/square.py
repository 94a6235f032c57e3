"""Adversarial accuracy under a black-box attack, to hold against the gradient attacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from services.measures.parts.ball_attack import BallAttack, survival_extras, survival_series
from services.measures.parts.threats import Radii, check_radii
from services.records import Column, Series

if TYPE_CHECKING:
    import torch

    from services.measures.attacks.survival import Survival
    from services.measures.measure import Network


class Square(BallAttack):
    """Survival of the Square attack in Linf balls: it reads scores only, so a black box can be asked too.

    One binary series a radius. Andriushchenko et al. 2020, with the schedule stretched to the budget of queries.

    Attributes:
        queries: forward passes a sample.
        epsilons: radii in [0, 1] pixel units; a sample broken at one counts as broken at every larger one.

    Extra columns: `correct`, `queries`, `broken_by` (0 misclassified, 1 broken, -1 not), `margin`, `non_finite`,
    `attacked`.
    """

    unknown: ClassVar[tuple[str, ...]] = ("zero_gradient",)
    pass_cost: ClassVar[float] = 1.0

    name: Literal["square"] = "square"
    queries: int = Field(default=500, ge=1, le=100_000)
    epsilons: Radii = (8 / 255,)

    @model_validator(mode="after")
    def _radii_in_order(self) -> Self:
        object.__setattr__(self, "epsilons", check_radii(self.epsilons, "Linf"))
        return self

    @property
    def most_passes(self) -> float:
        return float(self.queries)

    def series(self) -> tuple[Series, ...]:
        return survival_series(self, f"square{self.queries}", f"Square-{self.queries}", "Linf", self.epsilons)

    def columns(self) -> tuple[Column, ...]:
        return survival_extras(("square",))

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
        from services.measures.attacks.square_search import SquareSearch
        from services.measures.attacks.survival import survive

        curve = [[SquareSearch(network, images, labels, ids, epsilon, self.queries, seed)] for epsilon in self.epsilons]
        return survive(network, images, labels, curve, keep=keep)
