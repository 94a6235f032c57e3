"""ALP and CLP: cross-entropy plus a distance of the two outputs (Kannan et al. 2018, as PRBench uses them).

PRBench's Table 2 writes the squared distance of the soft-maxes, `pairing: softmax`, the default with weight 1. Its
public code takes the distance of the logits, not squared: `pairing: logits`, with a weight of 0.01 (in an earlier
commit 0.5) for ALP and 0.3 for CLP. The paper's weights for each data set were not to be had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from services.training.methods.method import Method
from services.training.step import Batch, Budget, StepResult

if TYPE_CHECKING:
    import torch


class _Pairing(Method):
    LATER: ClassVar[tuple[str, ...]] = ("pairing",)
    budget: Budget = Budget()
    weight: float = Field(default=1.0, ge=0)
    pairing: Literal["softmax", "logits"] = "softmax"

    def _paired(self, network: torch.nn.Module, batch: Batch, *, judged: str) -> StepResult:
        from torch.nn.functional import cross_entropy

        from services.training.losses.pairs import adversarial_pair
        from services.training.losses.terms import logit_distance, softmax_distance

        clean, robust = adversarial_pair(network, batch, self.budget)
        fit = cross_entropy(robust if judged == "robust" else clean, batch.labels)
        distance = softmax_distance if self.pairing == "softmax" else logit_distance
        loss = fit + self.weight * distance(clean, robust).mean()
        return StepResult(loss, clean=clean.detach(), robust=robust.detach())


class Alp(_Pairing):
    """Adversarial pairing: `mean_i CE(f(x_i'), y_i) + weight |softmax f(x_i) - softmax f(x_i')|^2`."""

    name: Literal["alp"] = "alp"

    def step(self, network: torch.nn.Module, batch: Batch) -> StepResult:
        return self._paired(network, batch, judged="robust")


class Clp(_Pairing):
    """Clean pairing: `mean_i CE(f(x_i), y_i) + weight |softmax f(x_i) - softmax f(x_i')|^2`."""

    name: Literal["clp"] = "clp"

    def step(self, network: torch.nn.Module, batch: Batch) -> StepResult:
        return self._paired(network, batch, judged="clean")
