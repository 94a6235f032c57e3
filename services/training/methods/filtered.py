"""Data filtering (Chen & Lee 2024) on top of TRADES: perturbations that matter little are not computed to the end."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from services.training.methods.method import Method
from services.training.methods.trades import Trades
from services.training.step import Batch, Budget, StepResult

if TYPE_CHECKING:
    import torch


class Filtered(Method):
    """TRADES in which samples that a short attack does not hurt keep only their clean term.

    After `probe` of the attack's steps a sample is filtered if its cross-entropy is below that of the clean image
    (`by="loss"`), or if the probability of its label exceeds that of every other class by `margin` (`by="lead"`). It is
    attacked no further and its divergence is left out. The others go on to the last step; one that goes on alone
    passes with its clean image. With `by="lead"` and `margin` 1 nothing is filtered and the loss is that of TRADES.

    Source: Chen & Lee, "Data filtering for efficient adversarial training", Pattern Recognition 2024, named by
    PRBench (Table 2). Of the paper only the abstract was to be had: it removes adversarial examples that are "less
    important", found "at a minimal cost". The rule by loss is that of `trades_loss_efficient_2` in PRBench's public
    code, whose name suggests that it stands for this paper but which does not say so; it compares the means of a whole
    batch after one step and filters all samples or none, here each sample is compared. The rule by lead is our own.
    """

    version: ClassVar[int] = 3
    name: Literal["filtered-trades"] = "filtered-trades"
    base: Trades = Trades()
    by: Literal["loss", "lead"] = "loss"
    probe: int = Field(default=1, ge=1)
    margin: float = Field(default=0.5, ge=0, le=1)

    def attack(self) -> Budget:
        return self.base.budget

    def step(self, network: torch.nn.Module, batch: Batch) -> StepResult:
        from services.training.losses.pairs import filtered_terms, hurt, unsafe

        rule = hurt if self.by == "loss" else partial(unsafe, gap=self.margin)
        loss, clean = filtered_terms(network, batch, self.base.budget, self.base.beta, self.probe, rule)
        return StepResult(loss.mean(), clean=clean.detach())
