"""WAT: worst-class adversarial training by a no-regret game (Li & Liu 2023)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from services.errors import ConfigError, Problem
from services.training.methods.method import Method
from services.training.step import Batch, RandomBudget, State, StepResult

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from services.training.counts import EpochRecord


class Wat(Method):
    """TRADES (or PGD) with weights on the classes and on their average, played by Hedge against the network.

    There are K + 1 actions: the classes, and the mean over all samples, which keeps average robustness in the game.
    After epoch t action k costs c_k(t), the mean of the base's own loss on the held-out split; then
    `w_k = K exp(eta sum_t c_k(t)) / sum_j exp(eta sum_t c_j(t))`, and the loss of a sample is multiplied by
    `w_y + w_{K+1}`. Under equal costs that factor is `2 K / (K + 1)`: the loss is about twice that of the base.

    Source: Li & Liu, "WAT: Improve the Worst-class Robustness in Adversarial Training", AAAI 2023. Of the paper only
    the abstract was to be had; actions, costs, weights and eta are those of the authors' code. We depart from that code
    in two ways: it gives the first epoch the weights 1 and not K / (K + 1), and it divides the sums of a class by K-ths
    of the split, as if all classes were equally large, where we divide by the size of the class. PGD as the base is
    ours.
    """

    version: ClassVar[int] = 2
    name: Literal["wat"] = "wat"
    needs_validation: ClassVar[bool] = True
    base: Literal["pgd", "trades"] = "trades"
    budget: RandomBudget = RandomBudget()
    beta: float = Field(default=6.0, ge=0)
    eta: float = Field(default=0.1, ge=0)

    def initial_state(self, classes: int) -> State:
        return {"costs": (0.0,) * (classes + 1)}

    def held_losses(self, network: torch.nn.Module, batch: Batch) -> Tensor:
        from services.training.losses.pairs import base_terms

        return base_terms(network, batch, self.base, self.budget, self.beta)[0]

    def next_state(self, state: Mapping[str, tuple[float, ...]], record: EpochRecord) -> State:
        held, sums = record.validation, record.held_losses
        if held is None or sums is None:
            raise ConfigError(Problem("method wat", "its losses on a held-out split", "none"))
        costs = [loss / n if n else 0.0 for loss, n in zip(sums, held.total, strict=True)]
        costs.append(sum(sums) / sum(held.total))
        return {"costs": tuple(old + new for old, new in zip(state["costs"], costs, strict=True))}

    def weights(self, costs: tuple[float, ...]) -> tuple[float, ...]:
        """w_1, ..., w_{K+1} from the sums of the costs; they add up to K."""
        raised = [math.exp(self.eta * (cost - max(costs))) for cost in costs]
        return tuple((len(costs) - 1) * value / sum(raised) for value in raised)

    def step(self, network: torch.nn.Module, batch: Batch) -> StepResult:
        from services.training.losses.pairs import base_terms
        from services.training.losses.terms import of_class

        *of_classes, of_mean = self.weights(batch.state["costs"])
        loss, clean, robust = base_terms(network, batch, self.base, self.budget, self.beta)
        weighted = loss * (of_class(of_classes, batch.labels) + of_mean)
        return StepResult(weighted.mean(), clean=None if clean is None else clean.detach(), robust=robust.detach())
