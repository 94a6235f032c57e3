"""FAAL: fairness-aware adversarial learning (Zhang et al. 2024)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from services.training.methods.base import Batch, Budget, Method, StepResult

if TYPE_CHECKING:
    import torch


class Faal(Method):
    """`max_q sum_k q_k L_k` over class distributions with `KL(q || uniform) <= tau`, L_k the robust loss of class k.

    The min-max-max of the paper: images are attacked, then the class distribution is, in each batch. q is found from
    the classes' mean margin of probabilities (`by="margin"`, bounded where cross-entropy is not) or from their loss, by
    `services.training.risk.kl_ball_weights` instead of a general convex solver. Classes that a batch lacks take no
    part.
    """

    name: Literal["faal"] = "faal"
    budget: Budget = Budget()
    tau: float = Field(default=0.5, ge=0)
    by: Literal["margin", "loss"] = "margin"

    def step(self, network: torch.nn.Module, batch: Batch) -> StepResult:
        from services.training.pairs import craft_by_loss, worst_distribution

        robust = network(craft_by_loss(network, batch, self.budget))
        loss = worst_distribution(robust, batch.labels, batch.classes, self.tau, self.by)
        return StepResult(loss, robust=robust.detach())
