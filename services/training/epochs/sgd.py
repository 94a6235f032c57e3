"""Stochastic gradient descent with momentum, its state addressed by parameter name.

The step is `torch.optim`'s own function; constructing its class imports the compiler: 5 to 18 seconds in every fresh
worker, longer than the demo's whole training.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim.sgd import sgd


class ByName:
    """The trainable parameters of a network by name."""

    def __init__(self, network: nn.Module) -> None:
        self._parameters = {name: p for name, p in network.named_parameters() if p.requires_grad}

    def clear(self) -> None:
        """Forget all gradients."""
        for parameter in self._parameters.values():
            parameter.grad = None

    def _moved(self) -> dict[str, nn.Parameter]:
        """Those that have a gradient."""
        return {name: p for name, p in self._parameters.items() if p.grad is not None}


class Sgd(ByName):
    """`v <- momentum v + d` with `d = g + weight_decay w`; `w <- w - lr v` (Nesterov: `w <- w - lr (d + momentum v)`).

    The same as `torch.optim.SGD` with dampening 0; the first step starts from v = g. Parameters without a gradient are
    passed over.
    """

    def __init__(self, network: nn.Module, *, momentum: float, weight_decay: float, nesterov: bool) -> None:
        super().__init__(network)
        self._momentum, self._weight_decay, self._nesterov = momentum, weight_decay, nesterov
        self._buffers: dict[str, Tensor] = {}

    def state(self) -> dict[str, Tensor]:
        """The momentum buffers by parameter name; live tensors, not copies."""
        return dict(self._buffers)

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take over copies of momentum buffers."""
        self._buffers = {
            name: torch.empty_like(p, requires_grad=False).copy_(state[name])
            for name, p in self._parameters.items()
            if name in state
        }

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Move the weights by their gradients, which are spent: they come out with the decay added."""
        moved = self._moved()
        gradients = [p.grad for p in moved.values() if p.grad is not None]
        buffers = [self._buffers.get(name) for name in moved]
        sgd(
            list(moved.values()),
            gradients,
            buffers,
            foreach=True,
            weight_decay=self._weight_decay,
            momentum=self._momentum,
            lr=lr,
            dampening=0.0,
            nesterov=self._nesterov,
            maximize=False,
        )
        self._buffers.update({name: buffer for name, buffer in zip(moved, buffers, strict=True) if buffer is not None})
