"""Adversarial accuracy under the margin loss of Carlini and Wagner, optimised by PGD: CW-20."""

from __future__ import annotations

from typing import Literal

from services.measures.pgd import Pgd


class Cw(Pgd):
    """Survival of PGD on ``max_{j != y} z_j - z_y`` (Carlini & Wagner 2017, arXiv 1608.04644, f6 without confidence).

    This is what the adversarial training literature calls CW-20; the minimal-norm attack of the same paper is a part of
    `minimal`. Parameters, columns and guarantees are those of `pgd`.
    """

    name: Literal["cw"] = "cw"  # type: ignore[assignment]
    loss: Literal["ce", "margin"] = "margin"

    @property
    def label(self) -> str:
        """How the attack is called in keys and titles: ``cw20``."""
        loss = "-ce" if self.loss == "ce" else ""
        return f"cw{self.steps}{loss}" + (f"x{self.restarts}" if self.restarts > 1 else "")
