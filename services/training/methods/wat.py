"""WAT: worst-class adversarial training by a no-regret game (Li & Liu 2023)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from services.errors import ConfigError, Problem
from services.training.methods.base import Batch, Method, RandomBudget, State, StepResult

if TYPE_CHECKING:
    import torch

    from services.training.evaluation import EpochRecord


class Wat(Method):
    """TRADES (or PGD) with class weights played by Hedge against the network.

    `w_k ~ exp(eta sum_t l_k(t))`, l_k(t) the mean robust loss of class k on the held-out split after epoch t, cut at
    log K, the loss of a guess, so that one bad epoch does not decide. The loss of a sample is multiplied by `K w_y`.
    """

    name: Literal["wat"] = "wat"
    needs_validation: ClassVar[bool] = True
    base: Literal["pgd", "trades"] = "trades"
    budget: RandomBudget = RandomBudget()
    beta: float = Field(default=6.0, ge=0)
    eta: float = Field(default=0.1, ge=0)

    def initial_state(self, classes: int) -> State:
        return {"losses": (0.0,) * classes}

    def next_state(self, state: Mapping[str, tuple[float, ...]], record: EpochRecord) -> State:
        held = record.validation
        if held is None or held.robust_loss is None:
            raise ConfigError(Problem("method wat", "robust losses on a held-out split", "none"))
        cap = math.log(max(len(held.total), 2))
        rows = zip(state["losses"], held.robust_loss, held.total, strict=True)
        return {"losses": tuple(old + min(loss / n, cap) if n else old for old, loss, n in rows)}

    def weights(self, losses: tuple[float, ...]) -> tuple[float, ...]:
        """`K w_k`: 1 on average."""
        raised = [math.exp(self.eta * (loss - max(losses))) for loss in losses]
        return tuple(len(losses) * value / sum(raised) for value in raised)

    def step(self, network: torch.nn.Module, batch: Batch) -> StepResult:
        from services.training.losses import of_class
        from services.training.pairs import base_terms

        loss, clean, robust = base_terms(network, batch, self.base, self.budget, self.beta)
        weighted = loss * of_class(self.weights(batch.state["losses"]), batch.labels)
        return StepResult(weighted.mean(), clean=None if clean is None else clean.detach(), robust=robust.detach())
