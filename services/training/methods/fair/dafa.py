"""DAFA: distance-aware fair adversarial training (Lee et al. 2024)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from services.training.methods.method import Method
from services.training.step import Batch, RandomBudget, State, StepResult

if TYPE_CHECKING:
    import torch

    from services.training.counts import EpochRecord


class Dafa(Method):
    """TRADES (or PGD) whose class k has its cross-entropy, radius and step multiplied by a weight w_k.

    A hard class is to gain from the easier classes that it resembles, and from no others. The weights are 1 during the
    share `warmup` of the epochs. After it they are set once: with p_i(j) the mean probability that the perturbed
    training images of class i gave class j in the last of those epochs,
    `w_i = 1 + scale sum_{j != i} s_ij p_i(j) p_j(j)`, s_ij = 1 where `p_i(i) < p_j(j)` (i is the harder one), else -1.
    Of TRADES the divergence is not weighted.

    Source: Lee et al., "DAFA: Distance-Aware Fair Adversarial Training", ICLR 2024. Of the paper only the abstract was
    to be had; weights, losses and constants are those of the authors' code, which sets the weights after 70 of 110
    epochs. We depart from it in three ways: the attack starts uniformly in the ball of the class, as in `trades` (it:
    at 0.001 times a normal variable); the PGD base takes weighted steps alone, where the code adds an unweighted one
    to each; and a weight below 0, which a scale above 1 may give, is 0. Others' programs take `p_j(i) p_i(i)` from the
    easier class, so that the weights sum to K; these need not.
    """

    name: Literal["dafa"] = "dafa"
    base: Literal["pgd", "trades"] = "trades"
    budget: RandomBudget = RandomBudget()
    beta: float = Field(default=6.0, ge=0)
    warmup: float = Field(default=7 / 11, gt=0, lt=1)
    scale: float = Field(default=1.0, ge=0)

    def initial_state(self, classes: int) -> State:
        return {"weights": (1.0,) * classes}

    def steers_by_confidence(self, epoch: int, epochs: int) -> bool:
        return epoch + 1 == max(1, round(self.warmup * epochs))

    def next_state(self, state: Mapping[str, tuple[float, ...]], record: EpochRecord) -> State:
        confidence = record.train.confidence
        return dict(state) if confidence is None else {"weights": self.weights(confidence, record.train.total)}

    def weights(self, confidence: tuple[float, ...], total: tuple[int, ...]) -> tuple[float, ...]:
        """w_1, ..., w_K from the sums of the probabilities (K * K) and the samples of each class."""
        classes = range(len(total))
        sums = [confidence[i * len(total) : (i + 1) * len(total)] for i in classes]
        mean = [[value / max(n, 1) for value in row] for row, n in zip(sums, total, strict=True)]
        own = [mean[k][k] for k in classes]
        moved = (sum((1 if own[i] < own[j] else -1) * mean[i][j] * own[j] for j in classes if j != i) for i in classes)
        return tuple(max(0.0, 1 + self.scale * each) for each in moved)

    def step(self, network: torch.nn.Module, batch: Batch) -> StepResult:
        from services.training.losses.pairs import craft_by_divergence, craft_by_loss
        from services.training.losses.terms import cross_entropies, divergence, of_class

        weight = of_class(batch.state["weights"], batch.labels)
        budget = self.budget.scaled(batch.strength)
        craft = craft_by_loss if self.base == "pgd" else craft_by_divergence
        perturbed = craft(network, batch, self.budget, epsilon=weight * budget.epsilon, step=weight * budget.step)
        if self.base == "pgd":
            robust = network(perturbed)
            return StepResult((weight * cross_entropies(robust, batch.labels)).mean(), robust=robust.detach())
        clean, robust = network(batch.images), network(perturbed)
        loss = weight * cross_entropies(clean, batch.labels) + self.beta * divergence(clean, robust)
        return StepResult(loss.mean(), clean=clean.detach(), robust=robust.detach())
