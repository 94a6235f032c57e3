"""FAAL: fairness-aware adversarial learning (Zhang et al. 2024)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from services.training.methods.method import Method
from services.training.step import Batch, RandomBudget, StepResult

if TYPE_CHECKING:
    import torch


class Faal(Method):
    """`sum_k q_k L_k`, L_k the mean loss of class k, q the worst class distribution with `KL(uniform || q) <= tau`.

    The min-max-max of the paper: images are attacked, then the class distribution is, in each batch. q maximises
    `sum_k q_k m_k`, m_k the mean margin `max_{j != y} p_j - p_y` of the perturbed images' probabilities (`by="margin"`,
    what the authors use; bounded where a loss is not) or L_k itself (`by="loss"`). It enters the loss as a constant.
    The loss is that of PGD training or of TRADES.

    Source: Zhang et al., "Towards Fairness-Aware Adversarial Learning", CVPR 2024. Of the paper only the abstract was
    to be had; direction and radius of the ball, the margin and the losses are those of the authors' code. We depart
    from it where a batch is not balanced. There the objective is a sum over samples, which multiplies m_k by the count
    of class k; and a class that the batch lacks counts as 0, above every class that is mostly right, and so takes
    weight that reaches no sample. Here m_k and L_k are means over a class, and a class that the batch lacks takes no
    part. The maximum is found by `services.training.losses.risk.likelihood_ball_weights` instead of a general
    convex solver. MART as the base, and perturbation of the weights, are left out.
    """

    version: ClassVar[int] = 2
    name: Literal["faal"] = "faal"
    base: Literal["pgd", "trades"] = "pgd"
    budget: RandomBudget = RandomBudget()
    beta: float = Field(default=6.0, ge=0)
    tau: float = Field(default=0.5, ge=0)
    by: Literal["margin", "loss"] = "margin"

    def step(self, network: torch.nn.Module, batch: Batch) -> StepResult:
        from services.training.losses.pairs import base_terms, worst_distribution
        from services.training.losses.terms import margin

        losses, clean, robust = base_terms(network, batch, self.base, self.budget, self.beta)
        judged = losses if self.by == "loss" else margin(robust.softmax(1), batch.labels)
        loss = worst_distribution(losses, judged, batch.labels, batch.classes, self.tau)
        return StepResult(loss, clean=None if clean is None else clean.detach(), robust=robust.detach())
