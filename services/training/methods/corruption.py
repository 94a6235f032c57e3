"""Training on random corruptions: uniform, Gaussian or Laplace noise within the ball (PRB Table 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from services.training.methods.method import Method
from services.training.step import Batch, Budget, StepResult

if TYPE_CHECKING:
    import torch


class Corruption(Method):
    """`mean_i CE(f(x_i + d_i), y_i)`, one random d a sample, within `radius` and clipped so that x + d is in [0, 1]."""

    name: Literal["corruption"] = "corruption"
    kind: Literal["uniform", "gaussian", "laplace"] = "uniform"
    radius: float = Field(default=8 / 255, ge=0, le=1)

    def attack(self) -> Budget:
        return Budget(epsilon=self.radius, step=max(self.radius / 4, 1e-6))

    def step(self, network: torch.nn.Module, batch: Batch) -> StepResult:
        from torch.nn.functional import cross_entropy

        from services.training.losses.perturbations import perturbed

        logits = network(perturbed(batch.images, self.kind, self.radius, batch.generator))
        return StepResult(cross_entropy(logits, batch.labels))
