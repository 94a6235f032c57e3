"""Logit adjustment: the loss of a balanced classifier on unbalanced classes (Menon et al. 2021)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from services.errors import ConfigError, Problem
from services.training.methods.method import Method
from services.training.step import Batch, RandomBudget, StepResult

if TYPE_CHECKING:
    import torch


class LogitAdjusted(Method):
    """`mean_i CE(f(x_i) + tau log pi, y_i)`, pi the shares of the classes among the training samples.

    A rare class must win by a margin, so that the network without the added term, which is what is returned, is that of
    equally frequent classes. With tau 1 it is the balanced soft-max. `rates`, one positive number a class, take the
    place of the shares: how often an audit's confusion matrix has each class predicted, for example. Equal numbers
    change nothing. With `base: pgd` the images are attacked; `trades` adds `beta KL(f(x_i) || f(x_i'))`. Attacks and
    divergence see the logits as they are.

    Source: Menon et al., "Long-tail learning via logit adjustment", ICLR 2021, eq. 10; with tau 1 Ren et al., "Balanced
    meta-softmax", NeurIPS 2020, eq. 4. The adversarial bases are ours.
    """

    name: Literal["logit-adjusted"] = "logit-adjusted"
    base: Literal["erm", "pgd", "trades"] = "erm"
    budget: RandomBudget = RandomBudget()
    beta: float = Field(default=6.0, ge=0)
    tau: float = Field(default=1.0, ge=0)
    rates: tuple[Annotated[float, Field(gt=0, le=1e9)], ...] = ()

    def selected_by(self) -> Literal["clean", "robust"]:
        return "clean" if self.base == "erm" else "robust"

    def step(self, network: torch.nn.Module, batch: Batch) -> StepResult:
        from services.training.losses.pairs import craft_by_divergence, craft_by_loss
        from services.training.losses.terms import cross_entropies, divergence

        added = self._added(batch)
        if self.base == "erm":
            clean = network(batch.images)
            return StepResult(cross_entropies(clean + added, batch.labels).mean(), clean=clean.detach())
        if self.base == "pgd":
            robust = network(craft_by_loss(network, batch, self.budget))
            return StepResult(cross_entropies(robust + added, batch.labels).mean(), robust=robust.detach())
        perturbed = craft_by_divergence(network, batch, self.budget)
        clean, robust = network(batch.images), network(perturbed)
        loss = cross_entropies(clean + added, batch.labels) + self.beta * divergence(clean, robust)
        return StepResult(loss.mean(), clean=clean.detach(), robust=robust.detach())

    def _added(self, batch: Batch) -> torch.Tensor:
        import torch

        rates = self.rates or batch.totals or (1,) * batch.classes
        if len(rates) != batch.classes:
            expected = f"{batch.classes} positive numbers, one a class"
            raise ConfigError(Problem("method logit-adjusted (rates)", expected, str(len(rates))))
        whole = sum(rates)
        logs = [self.tau * math.log(rate / whole) for rate in rates]
        return torch.tensor(logs, device=batch.labels.device)
