"""KL-PGD: the attack of TRADES with the loss of PGD training (PRB Table 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from services.training.methods.method import Method
from services.training.step import Batch, RandomBudget, StepResult

if TYPE_CHECKING:
    import torch


class KlPgd(Method):
    """`mean_i CE(f(x_i'), y_i)`, x' the ascent of `KL(f(x_i) || f(x_i'))`, which needs no label."""

    name: Literal["kl-pgd"] = "kl-pgd"
    budget: RandomBudget = RandomBudget()

    def step(self, network: torch.nn.Module, batch: Batch) -> StepResult:
        from torch.nn.functional import cross_entropy

        from services.training.losses.pairs import craft_by_divergence

        robust = network(craft_by_divergence(network, batch, self.budget))
        return StepResult(cross_entropy(robust, batch.labels), robust=robust.detach())
