"""ALP and CLP: cross-entropy plus a squared distance of soft-maxes (Kannan et al. 2018, as PRB Table 2 uses them)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from services.training.methods.method import Method
from services.training.step import Batch, Budget, StepResult

if TYPE_CHECKING:
    import torch


class Alp(Method):
    """Adversarial pairing: `mean_i CE(f(x_i'), y_i) + weight |softmax f(x_i) - softmax f(x_i')|^2`."""

    name: Literal["alp"] = "alp"
    budget: Budget = Budget()
    weight: float = Field(default=1.0, ge=0)

    def step(self, network: torch.nn.Module, batch: Batch) -> StepResult:
        return _paired(network, batch, self.budget, self.weight, judged="robust")


class Clp(Method):
    """Clean pairing: `mean_i CE(f(x_i), y_i) + weight |softmax f(x_i) - softmax f(x_i')|^2`."""

    name: Literal["clp"] = "clp"
    budget: Budget = Budget()
    weight: float = Field(default=1.0, ge=0)

    def step(self, network: torch.nn.Module, batch: Batch) -> StepResult:
        return _paired(network, batch, self.budget, self.weight, judged="clean")


def _paired(network: torch.nn.Module, batch: Batch, budget: Budget, weight: float, *, judged: str) -> StepResult:
    from torch.nn.functional import cross_entropy

    from services.training.losses.pairs import adversarial_pair
    from services.training.losses.terms import softmax_distance

    clean, robust = adversarial_pair(network, batch, budget)
    fit = cross_entropy(robust if judged == "robust" else clean, batch.labels)
    loss = fit + weight * softmax_distance(clean, robust).mean()
    return StepResult(loss, clean=clean.detach(), robust=robust.detach())
