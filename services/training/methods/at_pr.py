"""AT-PR: adversarial training for probabilistic robustness (Zhang et al. 2025)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from services.training.methods.method import Method
from services.training.step import Batch, Budget, RandomBudget, StepResult

if TYPE_CHECKING:
    import torch


class AtPr(Method):
    """`mean_i CE(f(x_i'), y_i)`, x' the one of several PGD candidates that lies farthest beyond the boundary.

    A perturbation deep in the wrong region stands for a larger share of harmful perturbations than one at its edge. How
    deep is measured by going back: steps of the attack's length down the sign of the cross-entropy's gradient, at most
    `retreat` of them, until the label is predicted; the Linf distance covered counts. The first candidate is the
    budget's attack. The others draw their radius from `[epsilon - radius_spread, epsilon]`, their step from
    `step +- step_spread` and their number of steps from `steps + steps_spread`, once for the batch. Of candidates that
    are equally far the first is kept, so an image that none of them gets wrong has that of the budget.

    Source: Zhang et al., "Adversarial Training for Probabilistic Robustness", ICCV 2025, and PRBench (its
    Table 2) for the five candidates. Of the paper only the abstract was to be had; the search, the distance and the
    constants are those of the authors' code. We depart from that code in two ways: each sample goes back until it is
    right, where the code stops all of them when nine in ten are, so that samples do not depend on their batch; and the
    search runs in evaluation mode, as all attacks here do.
    """

    version: ClassVar[int] = 2
    name: Literal["at-pr"] = "at-pr"
    budget: RandomBudget = RandomBudget()
    candidates: int = Field(default=5, ge=1)
    radius_spread: float = Field(default=0.02, ge=0)
    step_spread: float = Field(default=0.003, ge=0)
    steps_spread: tuple[int, int] = (-2, 5)
    retreat: int = Field(default=70, ge=1)

    def drawn(self, generator: torch.Generator) -> list[Budget]:
        """The candidates' budgets; radii and steps below 0 are cut to it, numbers of steps below 1 to that."""
        import torch

        rows = torch.rand(self.candidates - 1, 3, generator=generator, device=generator.device).tolist()
        return [self.budget, *(self._moved(*row) for row in rows)]

    def _moved(self, radius: float, step: float, steps: float) -> Budget:
        low, high = self.steps_spread
        moved = {
            "epsilon": max(0.0, self.budget.epsilon - self.radius_spread * radius),
            "step": max(0.0, self.budget.step + self.step_spread * (2 * step - 1)),
            "steps": max(1, self.budget.steps + low + int(steps * (high - low + 1))),
        }
        return self.budget.model_copy(update=moved)

    def step(self, network: torch.nn.Module, batch: Batch) -> StepResult:
        from torch.nn.functional import cross_entropy

        from services.training.losses.boundary import farthest

        robust = network(farthest(network, batch, self.drawn(batch.generator), self.retreat))
        return StepResult(cross_entropy(robust, batch.labels), robust=robust.detach())
