"""CFA: class-wise calibrated budgets and regularisation (Wei et al. 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from services.training.methods.method import Method
from services.training.step import Batch, RandomBudget, State, StepResult

if TYPE_CHECKING:
    import torch

    from services.training.counts import EpochRecord


class Cfa(Method):
    """Adversarial training whose radius, and for TRADES whose beta, is set for each class by how robust it is.

    With `t_k` the training robust accuracy of class k in the last epoch: `epsilon_k = (radius_base + t_k) epsilon` (the
    class-wise calibrated margin, eq. 6) and `beta_k = (beta_base + t_k) beta` (the class-wise calibrated
    regularisation, eq. 7), so a hard class gets an easier task. The TRADES loss of a sample is then
    `(CE + beta_k KL) / (1 + beta_k)` (eq. 8). `t_k` counts the perturbed images of the epoch as they were trained on,
    within radius epsilon_k. During the first `warmup` epochs the classes are alike. The third part, fairness-aware
    weight averaging, is not of the loss: set `averaging: fair-ema` in the recipe.

    Source: Wei et al., "CFA: Class-wise Calibrated Fair Adversarial Training", CVPR 2023, and the authors' code.
    `radius_base` is 0.5 for PGD and 0.3 for TRADES unless given (section 5.1). `warmup` is 0 as in Algorithm 1; the
    authors' code waits for 10 epochs. We depart from both at the start of the TRADES attack alone: uniform in the ball
    of the class, as in `trades`.
    """

    name: Literal["cfa"] = "cfa"
    base: Literal["pgd", "trades"] = "pgd"
    budget: RandomBudget = RandomBudget()
    beta: float = Field(default=6.0, ge=0)
    radius_base: float = Field(default=0.5, ge=0)
    beta_base: float = Field(default=0.5, ge=0)
    warmup: int = Field(default=0, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _radius_of_base(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and fields.get("base") == "trades":
            return {"radius_base": 0.3, **fields}
        return fields

    def next_state(self, state: Mapping[str, tuple[float, ...]], record: EpochRecord) -> State:
        counts = record.train
        if record.epoch + 1 < self.warmup or counts.robust is None:
            return {}
        before = state.get("robust", (0.5,) * len(counts.total))
        shares = zip(counts.robust, counts.total, before, strict=True)
        return {"robust": tuple(right / n if n else old for right, n, old in shares)}

    def radii(self, robust: tuple[float, ...]) -> tuple[float, ...]:
        """epsilon_k from the robust accuracies of the classes."""
        return tuple((self.radius_base + share) * self.budget.epsilon for share in robust)

    def betas(self, robust: tuple[float, ...]) -> tuple[float, ...]:
        """beta_k from the robust accuracies of the classes."""
        return tuple((self.beta_base + share) * self.beta for share in robust)

    def step(self, network: torch.nn.Module, batch: Batch) -> StepResult:
        from services.training.losses.pairs import class_wise_terms

        robust = batch.state.get("robust", (1 - self.radius_base,) * batch.classes)
        betas = self.betas(robust if batch.state else (1 - self.beta_base,) * batch.classes)
        weights = betas if self.base == "trades" else None
        loss, clean, perturbed = class_wise_terms(network, batch, self.budget, self.radii(robust), weights)
        return StepResult(loss.mean(), clean=None if clean is None else clean.detach(), robust=perturbed.detach())
