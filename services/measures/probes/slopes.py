"""Gradients at the images themselves, where several cheap attacks begin: each is taken once."""

from __future__ import annotations

import torch

from services.measures.attacks.autopgd import Aim
from services.measures.attacks.margins import ascent, gradient, passes
from services.measures.probes.probed import Probed
from services.records import Ascent


class Slopes:
    """By loss: its gradient (m, C, H, W) at the images of some samples, and the logits (m, K) there."""

    def __init__(self, probed: Probed) -> None:
        self._probed = probed
        self._known: dict[Ascent, tuple[torch.Tensor, torch.Tensor]] = {}

    def keep(self, loss: Ascent, slope: torch.Tensor, logits: torch.Tensor) -> None:
        """A gradient that was taken elsewhere, and the logits."""
        self._known[loss] = slope, logits

    def of(self, loss: Ascent) -> tuple[torch.Tensor, torch.Tensor]:
        """Gradient and logits: a pass with a gradient, where nobody took it."""
        if loss not in self._known:
            self._known[loss] = slope_at(self._probed, self._probed.images, loss)
        return self._known[loss]

    def select(self, probed: Probed, rows: torch.Tensor) -> Slopes:
        """Of some of the samples, which `probed` holds."""
        part = Slopes(probed)
        for loss, (slope, logits) in self._known.items():
            part.keep(loss, slope[rows], logits[rows])
        return part

    @property
    def classes(self) -> int:
        """K, by a gradient that other attacks begin with as well, where no logits are known."""
        if not self._known:
            self.of(next(loss for loss in self._probed.guard.others if loss != "dlr"))
        return next(iter(self._known.values()))[1].shape[1]


def slope_at(probed: Probed, points: torch.Tensor, loss: Ascent) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradient of a loss at points (m, C, H, W), and the logits (m, K) there: a pass with a gradient."""
    leaf = points.detach().requires_grad_(True)
    logits = passes(probed.network, leaf)
    known = logits.detach()
    return gradient(logits, leaf, _weights(known, probed.labels, loss)), known


def _weights(logits: torch.Tensor, labels: torch.Tensor, loss: Ascent) -> torch.Tensor:
    """The gradient of the loss by the logits, (m, K)."""
    if loss != "dlr":
        return ascent(logits, labels, loss)
    ones = torch.ones(len(labels), device=labels.device)
    weights: torch.Tensor = torch.nan_to_num(Aim("dlr", labels, labels, ones).rise(logits)[1])
    return weights
