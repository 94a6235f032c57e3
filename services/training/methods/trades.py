"""TRADES (Zhang et al. 2019, eq. 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from services.training.methods.method import Method
from services.training.step import Batch, RandomBudget, StepResult

if TYPE_CHECKING:
    import torch


class Trades(Method):
    """`mean_i CE(f(x_i), y_i) + beta KL(f(x_i) || f(x_i'))`, x' the ascent of that divergence.

    The start is uniform in the ball, where the authors' code adds 0.001 times a normal variable: at the clean image
    itself the divergence has no gradient.
    """

    name: Literal["trades"] = "trades"
    budget: RandomBudget = RandomBudget()
    beta: float = Field(default=6.0, ge=0)

    def step(self, network: torch.nn.Module, batch: Batch) -> StepResult:
        from services.training.losses.pairs import trades_terms

        loss, clean, robust = trades_terms(network, batch, self.budget, self.beta)
        return StepResult(loss.mean(), clean=clean.detach(), robust=robust.detach())
