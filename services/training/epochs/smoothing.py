"""What averages of the weights need of a network: a moving average by step, and batch norm's statistics again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from services.training.losses.attack import evaluating


class StepAverage:
    """`average <- decay average + (1 - decay) weights` of a network on its device, after each step.

    Args:
        network: whose state dict is averaged, its floating-point entries; others are those of the last step.
        decay: weight of the past.
        average: state dict to go on from; empty to begin with the weights after the first step.
    """

    def __init__(self, network: nn.Module, decay: float, average: Mapping[str, Tensor]) -> None:
        self._live = network.state_dict()
        self._decay = decay
        self._kept = {
            name: average[name].to(value.device, copy=True) for name, value in self._live.items() if name in average
        }

    @torch.no_grad()
    def step(self) -> None:
        """Take in the weights of now."""
        if not self._kept:
            self._kept = {name: value.clone() for name, value in self._live.items()}
            return
        moving = [name for name, value in self._live.items() if value.is_floating_point()]
        kept, live = ([side[name] for name in moving] for side in (self._kept, self._live))
        torch._foreach_lerp_(kept, live, 1 - self._decay)
        for name, value in self._live.items():
            if not value.is_floating_point():
                self._kept[name].copy_(value)

    def state(self) -> dict[str, Tensor]:
        """The average as a state dict; live tensors, not copies."""
        return dict(self._kept)


@torch.no_grad()
def recompute_batch_norm(network: nn.Module, forward: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Set batch norm's running statistics to the means of those of the batches; other layers are in evaluation mode.

    `forward` is `network` as it takes images in [0, 1]. A network without batch norm is left alone.
    """
    norms = [module for module in network.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    with evaluating(forward):
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # torch: the cumulative mean
            norm.train()
        for images, _ in batches:
            forward(images)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
