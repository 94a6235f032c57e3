"""Data filtering (Chen & Lee 2024) on top of TRADES: perturbations that matter little are not computed to the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from services.training.methods.base import Batch, Budget, Method, StepResult
from services.training.methods.trades import Trades

if TYPE_CHECKING:
    import torch


class Filtered(Method):
    """TRADES in which samples that a short attack leaves safely classified keep only their clean term.

    After `probe` of the attack's steps a sample whose probability of its label still exceeds that of every other class
    by `margin` is filtered: it is attacked no further and its divergence is left out. The others go on to the last
    step.

    The paper removes adversarial examples that are "less important", found "at a minimal cost"; this criterion is our
    reading of it. With `margin` 1 nothing is filtered and the loss is that of TRADES.
    """

    name: Literal["filtered-trades"] = "filtered-trades"
    base: Trades = Trades()
    probe: int = Field(default=2, ge=1)
    margin: float = Field(default=0.5, ge=0, le=1)

    def attack(self) -> Budget:
        return self.base.budget

    def step(self, network: torch.nn.Module, batch: Batch) -> StepResult:
        from services.training.pairs import filtered_terms

        loss, clean = filtered_terms(network, batch, self.base.budget, self.base.beta, self.probe, self.margin)
        return StepResult(loss.mean(), clean=clean.detach())
