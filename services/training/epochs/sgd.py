"""Stochastic gradient descent with momentum, its state addressed by parameter name.

Written out because constructing any `torch.optim` optimiser imports the compiler: 5 to 18 seconds in every fresh worker
for what are four lines of arithmetic, and longer than the demo's whole training.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


class Sgd:
    """`v <- momentum v + d` with `d = g + weight_decay w`; `w <- w - lr v` (Nesterov: `w <- w - lr (d + momentum v)`).

    The same as `torch.optim.SGD` with dampening 0; the first step starts from v = g. Parameters without a gradient are
    passed over.
    """

    def __init__(self, network: nn.Module, *, momentum: float, weight_decay: float, nesterov: bool) -> None:
        self._parameters = {name: p for name, p in network.named_parameters() if p.requires_grad}
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

    def clear(self) -> None:
        """Forget all gradients."""
        for parameter in self._parameters.values():
            parameter.grad = None

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Move the weights by their gradients, which are spent: they come out with the decay added."""
        moved = {name: p for name, p in self._parameters.items() if p.grad is not None}
        weights: list[Tensor] = list(moved.values())
        gradients: list[Tensor] = [p.grad for p in moved.values() if p.grad is not None]
        if not weights:
            return
        if self._weight_decay:
            torch._foreach_add_(gradients, weights, alpha=self._weight_decay)
        if self._momentum:
            gradients = self._with_momentum(list(moved), gradients)
        torch._foreach_add_(weights, gradients, alpha=-lr)

    def _with_momentum(self, names: list[str], gradients: list[Tensor]) -> list[Tensor]:
        known = [name for name in names if name in self._buffers]
        buffers = [self._buffers[name] for name in known]
        if buffers:
            torch._foreach_mul_(buffers, self._momentum)
            torch._foreach_add_(buffers, [g for name, g in zip(names, gradients, strict=True) if name in self._buffers])
        for name, gradient in zip(names, gradients, strict=True):
            if name not in self._buffers:
                self._buffers[name] = gradient.clone()
        moments = [self._buffers[name] for name in names]
        return list(torch._foreach_add(gradients, moments, alpha=self._momentum)) if self._nesterov else moments
