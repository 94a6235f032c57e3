"""Weights moved to where a loss is larger, for methods that train against such moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

LEAST = 1e-20
"""Norm below which a gradient counts as this long, so that one of zero moves nothing."""

Loss = Callable[[nn.Module], Tensor]
"""Maps a network to a scalar."""


class At(nn.Module):
    """A network with some of its parameters and buffers replaced; gradients reach what the replacements are made of."""

    def __init__(self, network: nn.Module, replaced: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._call = (network, dict(replaced))  # no submodule: it has no parameters of its own

    def forward(self, images: Tensor) -> Tensor:
        network, replaced = self._call
        logits: Tensor = functional_call(network, replaced, (images,))
        return logits


def raised(network: nn.Module, loss: Loss, share: float) -> nn.Module:
    """The network at w + v, `v_l = share |w_l| g_l / |g_l|` for each weight l of two dimensions or more.

    g is the gradient of `loss` at w, computed without a trace in the network: neither gradients nor batch norm's
    statistics. The gradient of what is computed with the result is that at w + v, and arrives at w.
    """
    weights = {
        name: value
        for name, value in network.named_parameters()
        if value.requires_grad and value.dim() > 1 and name.rsplit(".", 1)[-1] == "weight"
    }
    aside = {name: value.clone() for name, value in network.named_buffers()}
    gradients = torch.autograd.grad(loss(At(network, aside)), list(weights.values()), allow_unused=True)
    moved = {
        name: value + share * (value.detach().norm() / g.norm().clamp(min=LEAST)) * g
        for (name, value), g in zip(weights.items(), gradients, strict=True)
        if g is not None
    }
    return At(network, moved)
