"""Adam, its state addressed by parameter name, so that it is saved beside the weights.

Written out for the reason that `sgd` is: constructing any `torch.optim` optimiser imports the compiler.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

EPSILON = 1e-8


class Adam:
    """Kingma & Ba 2015, Algorithm 1; the same as `torch.optim.Adam` without weight decay."""

    def __init__(self, modules: Mapping[str, nn.Module], *, lr: float, betas: tuple[float, float]) -> None:
        self._parameters = {f"{name}.{key}": p for name, part in modules.items() for key, p in part.named_parameters()}
        self._lr, self._betas = lr, betas
        self._first = {name: torch.zeros_like(p) for name, p in self._parameters.items()}
        self._second = {name: torch.zeros_like(p) for name, p in self._parameters.items()}
        self._steps = 0

    def state(self) -> dict[str, Tensor]:
        """Moments by parameter name and the number of steps; live tensors, not copies."""
        first = {f"first.{name}": value for name, value in self._first.items()}
        second = {f"second.{name}": value for name, value in self._second.items()}
        return {**first, **second, "steps": torch.tensor(self._steps)}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take over copies of a state."""
        for name in self._parameters:
            self._first[name].copy_(state[f"first.{name}"])
            self._second[name].copy_(state[f"second.{name}"])
        self._steps = int(state["steps"])

    def step(self, loss: Tensor) -> None:
        """Move the parameters against the gradient of the loss; no other gradients are touched."""
        parameters: list[Tensor] = list(self._parameters.values())
        gradients = list(torch.autograd.grad(loss, parameters))
        first, second = list(self._first.values()), list(self._second.values())
        self._steps += 1
        with torch.no_grad():
            beta1, beta2 = self._betas
            torch._foreach_lerp_(first, gradients, 1.0 - beta1)
            torch._foreach_mul_(second, beta2)
            torch._foreach_addcmul_(second, gradients, gradients, 1.0 - beta2)
            size = self._lr / (1.0 - beta1**self._steps)
            spread = torch._foreach_sqrt(torch._foreach_div(second, 1.0 - beta2**self._steps))
            torch._foreach_add_(spread, EPSILON)
            torch._foreach_addcdiv_(parameters, first, spread, -size)
