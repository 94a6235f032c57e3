"""Training on random corruptions: uniform, Gaussian or Laplace noise within the ball (PRB Table 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from services.training.methods.method import Method
from services.training.step import Batch, Budget, StepResult

if TYPE_CHECKING:
    import torch


class Corruption(Method):
    """`mean_i CE(f(x_i + d_i), y_i)`, one random d a sample, within `radius` and clipped so that x + d is in [0, 1].

    Gaussian and Laplace noise have the scale `spread`, sigma or b, in [0, 1] pixel units, and are clipped to the
    radius. The default, the radius, is what PRBench says of its measure PR (F.2). Its public code trains with sigma 1,
    whose clipped noise is almost always at the radius (root mean square .99 of it, .72 with the default), and with b
    the radius: `spread: 1` of `kind: gaussian` is that code.
    """

    LATER: ClassVar[tuple[str, ...]] = ("spread",)
    name: Literal["corruption"] = "corruption"
    kind: Literal["uniform", "gaussian", "laplace"] = "uniform"
    radius: float = Field(default=8 / 255, ge=0, le=1)
    spread: float | None = Field(default=None, gt=0, le=1e6)

    @model_validator(mode="after")
    def _of_its_kind(self) -> Self:
        if self.kind == "uniform" and self.spread is not None:
            raise ValueError("no spread for uniform noise, which fills the radius; leave it out, or change kind")
        return self

    def attack(self) -> Budget:
        return Budget(epsilon=self.radius, step=max(self.radius / 4, 1e-6))

    def step(self, network: torch.nn.Module, batch: Batch) -> StepResult:
        from torch.nn.functional import cross_entropy

        from services.training.losses.perturbations import perturbed

        logits = network(perturbed(batch.images, self.kind, self.radius, batch.generator, spread=self.spread))
        return StepResult(cross_entropy(logits, batch.labels))
