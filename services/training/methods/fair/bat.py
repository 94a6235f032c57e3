"""BAT: balance adversarial training (Sun et al. 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from services.training.methods.method import Method
from services.training.step import Batch, RandomBudget, StepResult

if TYPE_CHECKING:
    import torch


class Bat(Method):
    """`CE(f(a), y) + beta KL(f(x) || f(b)) + uniformity (KL(f(a) || u) + KL(f(b) || u))`, u the uniform distribution.

    Source-class fairness: a is the last point of the attack before any is misclassified, b the second that is, so that
    the attack's strength follows how hard each sample, and with it each class, is to attack. Target-class fairness: the
    last term keeps the predictions at both points from leaning to some classes.

    Source: Sun et al., "Improving Robust Fairness via Balance Adversarial Training", AAAI 2023. Of the paper only the
    abstract was to be had; the loss and both points are those of the authors' code (their `stop_to_lastclean`, and
    `stop_to_firstadv` with tau = 1), with its constants. We depart from that code in three ways. Both points come from
    one attack, where it runs two, that differ by their noise only. Its start is uniform in the ball instead of 0.001
    times a normal variable, as in `trades`. And the end of the attack counts as correct only if it is, where the code
    does not look.
    """

    name: Literal["bat"] = "bat"
    budget: RandomBudget = RandomBudget()
    beta: float = Field(default=6.0, ge=0)
    uniformity: float = Field(default=1.0, ge=0)

    def step(self, network: torch.nn.Module, batch: Batch) -> StepResult:
        from services.training.losses.boundary import balanced_terms

        loss, clean, beyond = balanced_terms(network, batch, self.budget, self.beta, self.uniformity)
        return StepResult(loss.mean(), clean=clean.detach(), robust=beyond.detach())
