"""ERM: cross-entropy on clean images, the reference without any defence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from services.training.methods.method import Method
from services.training.step import Batch, StepResult

if TYPE_CHECKING:
    import torch


class Erm(Method):
    """Empirical risk minimisation: `mean_i CE(f(x_i), y_i)`."""

    name: Literal["erm"] = "erm"

    def selected_by(self) -> Literal["clean", "robust"]:
        return "clean"

    def step(self, network: torch.nn.Module, batch: Batch) -> StepResult:
        from torch.nn.functional import cross_entropy

        logits = network(batch.images)
        return StepResult(cross_entropy(logits, batch.labels), clean=logits.detach())
