"""AWP: adversarial weight perturbation around PGD training or TRADES (Wu et al. 2020)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from services.training.methods.method import Method
from services.training.step import Batch, RandomBudget, StepResult

if TYPE_CHECKING:
    import torch


class Awp(Method):
    """The base's loss at weights w + v, v the step that raises this loss, of length `gamma |w_l|` in each layer l.

    Images are attacked at w. For each weight of two dimensions and more, `v_l = gamma |w_l| g_l / |g_l|` with g the
    gradient of the loss on these images; the update of w is the gradient at w + v. Batch norm counts the pass at w + v
    alone.

    Source: Wu, Xia & Wang, "Adversarial Weight Perturbation Helps Robust Generalization", NeurIPS 2020, and the
    authors' code, with one step: `gamma` is 0.01 for PGD and 0.005 for TRADES unless given. We depart from that code in
    three ways: it perturbs from epoch 10 on in TRADES, "for accelerating", we from the first; its weight decay is taken
    of w + v, ours of w; and its TRADES attack starts at 0.001 times a normal variable, ours uniformly in the ball.
    Where workers share a batch, each perturbs by the gradient of its part.
    """

    name: Literal["awp"] = "awp"
    base: Literal["pgd", "trades"] = "trades"
    budget: RandomBudget = RandomBudget()
    beta: float = Field(default=6.0, ge=0)
    gamma: float = Field(default=0.005, ge=0, lt=1)

    @model_validator(mode="before")
    @classmethod
    def _gamma_of_base(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and fields.get("base") == "pgd":
            return {"gamma": 0.01, **fields}
        return fields

    def step(self, network: torch.nn.Module, batch: Batch) -> StepResult:
        from services.training.losses.pairs import craft_by_divergence, craft_by_loss
        from services.training.losses.terms import cross_entropies, divergence
        from services.training.losses.weights import raised

        craft = craft_by_loss if self.base == "pgd" else craft_by_divergence
        perturbed = craft(network, batch, self.budget)

        def terms(at: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
            if self.base == "pgd":
                robust = at(perturbed)
                return cross_entropies(robust, batch.labels).mean(), None, robust
            clean, robust = at(batch.images), at(perturbed)
            return (cross_entropies(clean, batch.labels) + self.beta * divergence(clean, robust)).mean(), clean, robust

        loss, clean, robust = terms(raised(network, lambda at: terms(at)[0], self.gamma))
        return StepResult(loss, clean=None if clean is None else clean.detach(), robust=robust.detach())
