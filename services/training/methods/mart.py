"""MART: misclassification aware adversarial training (Wang et al. 2020)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from services.training.methods.method import Method
from services.training.step import Batch, Budget, StepResult

if TYPE_CHECKING:
    import torch


class Mart(Method):
    """`mean_i BCE(f(x_i'), y_i) + weight KL(f(x_i) || f(x_i')) (1 - p_y(x_i))`, x' by cross-entropy.

    BCE is the boosted cross-entropy `-log p_y - log(1 - max_{j != y} p_j)`. Gradients flow through the factor
    `1 - p_y` too.

    Source: Wang et al., "Improving Adversarial Robustness Requires Revisiting Misclassified Examples", ICLR 2020, and
    PRBench (Table 2) for the weight 5. The paper's text was not to be had; the terms, the direction of KL and the
    weight are those of the authors' code. That code has `log(1.0001 - p)` where `log(1 - p)` is exact here down to
    `losses.MART_FLOOR`, and starts its attack at 0.001 times a normal variable, here uniformly in the ball.
    """

    name: Literal["mart"] = "mart"
    budget: Budget = Budget()
    weight: float = Field(default=5.0, ge=0)

    def step(self, network: torch.nn.Module, batch: Batch) -> StepResult:
        from services.training.losses.pairs import adversarial_pair
        from services.training.losses.terms import boosted_cross_entropy, divergence, misclassification_weight

        clean, robust = adversarial_pair(network, batch, self.budget)
        pulled = divergence(clean, robust) * misclassification_weight(clean, batch.labels)
        loss = boosted_cross_entropy(robust, batch.labels) + self.weight * pulled
        return StepResult(loss.mean(), clean=clean.detach(), robust=robust.detach())
