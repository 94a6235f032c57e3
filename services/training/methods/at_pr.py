"""AT-PR: adversarial training for probabilistic robustness (Zhang et al. 2025)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from services.training.methods.base import Batch, Method, RandomBudget, StepResult

if TYPE_CHECKING:
    import torch


class AtPr(Method):
    """`mean_i CE(f(x_i'), y_i)`, x' the one of several PGD candidates that lies farthest beyond the boundary.

    Candidates start at independent random points. How far one lies is read off the logits, `max_{j != y} z_j - z_y`: a
    perturbation deep in the wrong region stands for a larger share of harmful perturbations than one at its edge.
    """

    name: Literal["at-pr"] = "at-pr"
    budget: RandomBudget = RandomBudget()
    candidates: int = Field(default=5, ge=1)

    def step(self, network: torch.nn.Module, batch: Batch) -> StepResult:
        from torch.nn.functional import cross_entropy

        from services.training.pairs import farthest

        robust = network(farthest(network, batch, self.budget, self.candidates))
        return StepResult(cross_entropy(robust, batch.labels), robust=robust.detach())
