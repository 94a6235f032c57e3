"""FRL: fair robust learning by class weights and class radii (Xu et al. 2021)."""

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

    from services.training.counts import EpochRecord

Vector = tuple[float, ...]
SMALLEST_RADIUS, LARGEST_RADIUS = 0.98, 3.0
"""Of the budget's radius, for a class."""


class Frl(Method):
    """TRADES under the constraints that no class errs more than all samples do, by more than `bound`.

    After each epoch the held-out split gives, for class k, the clean error `n_k` and the boundary error `b_k` (right
    without and wrong under the attack), and n and b of all samples. Multipliers move by how far a constraint is
    broken: `l_k += rate (n_k - n - bound)`, `m_k += 2 rate (b_k - b - bound)`, `r_k += margin_rate (b_k - b - bound)`.
    The first two are cut at 0 and scaled to a sum of at most `limit`. Then, with u_k = 1 / K + l_k - mean(l) and
    v_k = 1 / K + m_k - mean(m), the loss of a batch is
    `sum_i (u_y CE(f(x_i), y_i) + beta v_y KL(f(x_i) || f(x_i'))) / sum_i (u_y + v_y)`, and the radius of class k is
    the budget's times `exp(2 r_k)`, between 0.98 and 3. `rate` is halved every `halve` epochs.

    Source: Xu, Liu, Li, Jain & Tang, "To be Robust or to be Fair: Towards Fairness in Adversarial Training", ICML 2021,
    and the authors' code, whose numbers are the defaults: it starts from a network that was trained by PGD (`init`),
    with beta 1. `reweight` and `remargin` alone are the paper's variants. We depart from that code in four ways: the
    first epoch has no weights (it measures before it), the split is attacked by the recipe's attack (it: PGD-20), the
    attack starts uniformly in the ball of the class (it: at 0.001 times a normal variable), and a class that the split
    lacks keeps its multipliers.
    """

    name: Literal["frl"] = "frl"
    needs_validation: ClassVar[bool] = True
    budget: RandomBudget = RandomBudget()
    beta: float = Field(default=1.0, ge=0)
    bound: float = Field(default=0.1, ge=0, le=1)
    rate: float = Field(default=0.05, ge=0)
    margin_rate: float = Field(default=0.1, ge=0)
    limit: float = Field(default=0.5, ge=0, lt=1)
    halve: int = Field(default=40, ge=1)
    reweight: bool = True
    remargin: bool = True

    def initial_state(self, classes: int) -> State:
        return dict.fromkeys(("clean", "boundary", "margin"), (0.0,) * classes)

    def next_state(self, state: Mapping[str, Vector], record: EpochRecord) -> State:
        held = record.validation
        if held is None or held.clean is None or held.robust is None:
            raise ConfigError(Problem("method frl", "clean and attacked images of a held-out split", "none"))
        wrong = [n - right for n, right in zip(held.total, held.clean, strict=True)]
        crossed = [right - stays for right, stays in zip(held.clean, held.robust, strict=True)]
        rate = self.rate * 0.5 ** ((record.epoch + 2) // self.halve)
        clean, boundary = (self._broken(errors, held.total) for errors in (wrong, crossed))
        return {
            "clean": self._scaled(_moved(state["clean"], clean, rate)),
            "boundary": self._scaled(_moved(state["boundary"], boundary, 2 * rate)),
            "margin": _moved(state["margin"], boundary, self.margin_rate),
        }

    def weights(self, multipliers: Vector) -> Vector:
        """u_k or v_k; all 1 / K without `reweight`."""
        count = len(multipliers)
        mean = sum(multipliers) / count
        return tuple(1 / count + (each - mean if self.reweight else 0.0) for each in multipliers)

    def radii(self, multipliers: Vector) -> Vector:
        """Radius of each class; that of the budget without `remargin`."""
        factors = (min(max(math.exp(2 * each), SMALLEST_RADIUS), LARGEST_RADIUS) for each in multipliers)
        return tuple(self.budget.epsilon * (factor if self.remargin else 1.0) for factor in factors)

    def step(self, network: torch.nn.Module, batch: Batch) -> StepResult:
        from services.training.losses.pairs import craft_by_divergence
        from services.training.losses.terms import cross_entropies, divergence, of_class

        radius = of_class(self.radii(batch.state["margin"]), batch.labels) * batch.strength
        perturbed = craft_by_divergence(network, batch, self.budget, epsilon=radius)
        clean, robust = network(batch.images), network(perturbed)
        ours, theirs = (of_class(self.weights(batch.state[each]), batch.labels) for each in ("clean", "boundary"))
        terms = ours * cross_entropies(clean, batch.labels) + self.beta * theirs * divergence(clean, robust)
        loss = terms.sum() / (ours + theirs).sum()
        return StepResult(loss, clean=clean.detach(), robust=robust.detach())

    def _broken(self, errors: list[int], total: tuple[int, ...]) -> Vector:
        """By how much each class breaks its constraint; 0 where it has no samples."""
        overall = sum(errors) / sum(total)
        return tuple(each / n - overall - self.bound if n else 0.0 for each, n in zip(errors, total, strict=True))

    def _scaled(self, multipliers: Vector) -> Vector:
        positive = [max(each, 0.0) for each in multipliers]
        factor = min(1.0, self.limit / sum(positive)) if sum(positive) else 1.0
        return tuple(factor * each for each in positive)


def _moved(multipliers: Vector, broken: Vector, rate: float) -> Vector:
    return tuple(each + rate * gap for each, gap in zip(multipliers, broken, strict=True))
