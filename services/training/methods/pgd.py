"""PGD adversarial training (Madry et al. 2018, eq. 2.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from services.training.methods.method import Method
from services.training.step import Batch, Budget, StepResult

if TYPE_CHECKING:
    import torch


class Pgd(Method):
    """`mean_i max_{|d| <= epsilon} CE(f(x_i + d), y_i)`, the maximum approximated by projected gradient ascent."""

    name: Literal["pgd"] = "pgd"
    budget: Budget = Budget()

    def step(self, network: torch.nn.Module, batch: Batch) -> StepResult:
        from torch.nn.functional import cross_entropy

        from services.training.losses.pairs import craft_by_loss

        logits = network(craft_by_loss(network, batch, self.budget))
        return StepResult(cross_entropy(logits, batch.labels), robust=logits.detach())
