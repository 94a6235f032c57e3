"""AdamW, its state addressed by parameter name; the step is `torch.optim`'s own function, for the reason of `sgd`."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from services.training.epochs.sgd import ByName

EPSILON = 1e-8


class AdamW(ByName):
    """Loshchilov & Hutter 2019, Algorithm 2; the same as `torch.optim.AdamW`.

    `w <- w - lr (m / (sqrt(v) + 1e-8) + weight_decay w)` with the bias-corrected moving averages m of gradients, decay
    `momentum`, and v of their squares, decay 0.999. Parameters without a gradient are passed over.
    """

    def __init__(self, network: nn.Module, *, momentum: float, weight_decay: float) -> None:
        super().__init__(network)
        self._momentum, self._weight_decay = momentum, weight_decay
        self._moments: dict[str, tuple[Tensor, Tensor, Tensor]] = {}

    def state(self) -> dict[str, Tensor]:
        """Moments and steps by parameter name; live tensors, not copies."""
        parts = ("first", "second", "steps")
        return {f"{part}.{name}": row[i] for name, row in self._moments.items() for i, part in enumerate(parts)}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take over copies of a state."""
        self._moments = {
            name: (
                torch.empty_like(p, requires_grad=False).copy_(state[f"first.{name}"]),
                torch.empty_like(p, requires_grad=False).copy_(state[f"second.{name}"]),
                state[f"steps.{name}"].clone(),
            )
            for name, p in self._parameters.items()
            if f"steps.{name}" in state
        }

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Move the weights by their gradients."""
        moved = self._moved()
        for name, p in moved.items():
            if name not in self._moments:
                zeros = (torch.zeros_like(p), torch.zeros_like(p))
                self._moments[name] = (*zeros, torch.zeros(()))  # steps stay on the host, as torch has them
        rows = [self._moments[name] for name in moved]
        adamw(
            list(moved.values()),
            [p.grad for p in moved.values() if p.grad is not None],
            [row[0] for row in rows],
            [row[1] for row in rows],
            [],
            [row[2] for row in rows],
            foreach=True,
            amsgrad=False,
            beta1=self._momentum,
            beta2=0.999,
            lr=lr,
            weight_decay=self._weight_decay,
            eps=EPSILON,
            maximize=False,
        )
