"""Training in which each class has a weight of its own, given once: what an audit measured, for example."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from services.errors import ConfigError, Problem
from services.training.methods.method import Method
from services.training.step import Batch, RandomBudget, StepResult

if TYPE_CHECKING:
    import torch


class Weighted(Method):
    """`mean_i w_{y_i} l_i`, with the loss l of `base`: plain cross-entropy, PGD training or TRADES.

    The weights are used as given; with a mean of 1 the loss has the size of its base's. Without any, all are 1.
    `classwise repair` gives `w_k = (1 - s_k) / mean_j (1 - s_j)`, the share of errors of each class under its series.

    Cost-sensitive learning by weights of examples (Elkan, IJCAI 2001, section 2.2), over the losses of adversarial
    training; where `wat` and `faal` move the weights while they train, here they stand still.
    """

    name: Literal["weighted"] = "weighted"
    base: Literal["erm", "pgd", "trades"] = "pgd"
    budget: RandomBudget = RandomBudget()
    beta: float = Field(default=6.0, ge=0)
    weights: tuple[Annotated[float, Field(ge=0, le=1e6)], ...] = ()

    def selected_by(self) -> Literal["clean", "robust"]:
        return "clean" if self.base == "erm" else "robust"

    def step(self, network: torch.nn.Module, batch: Batch) -> StepResult:
        from services.training.losses.pairs import base_terms
        from services.training.losses.terms import cross_entropies, of_class

        if len(self.weights) not in (0, batch.classes):
            expected = f"{batch.classes} weights, one a class"
            raise ConfigError(Problem("method weighted (weights)", expected, str(len(self.weights))))
        weights = of_class(self.weights or (1.0,) * batch.classes, batch.labels)
        if self.base == "erm":
            clean = network(batch.images)
            loss = cross_entropies(clean, batch.labels)
            return StepResult((weights * loss).mean(), clean=clean.detach())
        loss, own, robust = base_terms(network, batch, self.base, self.budget, self.beta)
        return StepResult((weights * loss).mean(), clean=None if own is None else own.detach(), robust=robust.detach())
