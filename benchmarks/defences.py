"""Defences that are known to be broken, wrapped around a network: what an audit must not take for robustness.

Each hides the gradient from an attack, or turns it elsewhere, and leaves decisions nearly as they were. `adaptive` is
what an attacker does who knows the defence: the gradient of the undefended network in the defended one's place
(backward pass differentiable approximation, Athalye, Carlini & Wagner 2018), and scores alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from benchmarks import zoo
from services.measures.apgd import Apgd
from services.measures.pgd import Pgd
from services.measures.square import Square
from services.training.architectures import small_cnn

Layer = Callable[[torch.Tensor], torch.Tensor]


class Turned(torch.autograd.Function):
    """The identity, whose backward pass is a function of the gradient."""

    @staticmethod
    def forward(context: Any, images: torch.Tensor, turn: Layer) -> torch.Tensor:
        context.turn = turn
        return images.clone()

    @staticmethod
    def backward(context: Any, *slopes: torch.Tensor) -> tuple[torch.Tensor, None]:
        return context.turn(slopes[0]), None


def turned(images: torch.Tensor, turn: Layer) -> torch.Tensor:
    result: torch.Tensor = Turned.apply(images, turn)  # type: ignore[no-untyped-call]
    return result


def quantised(images: torch.Tensor) -> torch.Tensor:
    return (images * 4).round() / 4


def thermometer(images: torch.Tensor) -> torch.Tensor:
    """How many of eight thresholds a pixel exceeds."""
    levels = torch.linspace(1 / 16, 15 / 16, 8, device=images.device)
    return (images.unsqueeze(-1) > levels).float().mean(-1) + 0 * images


def jpeg(images: torch.Tensor) -> torch.Tensor:
    """Cosine coefficients of each 8x8 block, rounded to multiples that grow with the frequency."""
    index = torch.arange(8, device=images.device, dtype=torch.float32)
    basis = torch.cos(math.pi * (2 * index + 1) * index.unsqueeze(1) / 16) * math.sqrt(0.25)
    basis[0] = math.sqrt(0.125)
    blocks = images.unfold(2, 8, 8).unfold(3, 8, 8)
    coarse = 0.1 * (1 + index + index.unsqueeze(1)) / 2
    rounded = ((basis @ blocks @ basis.T) / coarse).round() * coarse
    rows = (basis.T @ rounded @ basis).permute(0, 1, 2, 4, 3, 5)
    return rows.reshape(images.shape).clamp(0, 1)


def resized(images: torch.Tensor) -> torch.Tensor:
    """Down and up again, outside of autograd."""
    small = nn.functional.interpolate(images.detach(), scale_factor=0.75, mode="nearest")
    again = nn.functional.interpolate(small, size=images.shape[-2:], mode="bilinear", align_corners=False)
    return again + 0 * images


def detached(images: torch.Tensor) -> torch.Tensor:
    return images.detach() + 0 * images


def flipped(images: torch.Tensor) -> torch.Tensor:
    return turned(images, lambda slope: -slope)


def permuted(images: torch.Tensor) -> torch.Tensor:
    order = torch.from_numpy(np.random.default_rng(0).permutation(images[0].numel()))
    return turned(images, lambda slope: slope.flatten(1)[:, order.to(slope.device)].view_as(slope))


def half_quantised(images: torch.Tensor) -> torch.Tensor:
    """The left half rounded: the gradient of the right one is true."""
    middle = images.shape[-1] // 2
    return torch.cat([quantised(images[..., :middle]), images[..., middle:]], dim=-1)


def checkered(images: torch.Tensor) -> torch.Tensor:
    """Every other pixel rounded."""
    height, width = (torch.arange(size, device=images.device) for size in images.shape[-2:])
    return torch.where((height.unsqueeze(1) + width) % 2 == 0, quantised(images), images)


def two_channels(images: torch.Tensor) -> torch.Tensor:
    """All channels but the last rounded to six bits."""
    return torch.cat([(images[:, :-1] * 63).round() / 63, images[:, -1:]], dim=1)


def noisy(images: torch.Tensor) -> torch.Tensor:
    return images + 0.1 * torch.randn_like(images)


def rippled(images: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Waves far finer than a step of an attack, a direction a class."""
    source = torch.Generator().manual_seed(0)
    ways = torch.randn(logits.shape[1], images[0].numel(), generator=source).to(images.device)
    return logits + 0.05 * torch.sin(2e4 * (images.flatten(1) @ nn.functional.normalize(ways).T))


FRONTS: dict[str, Layer] = {
    "quantised": quantised,
    "thermometer": thermometer,
    "jpeg": jpeg,
    "resized": resized,
    "detached": detached,
    "flipped": flipped,
    "permuted": permuted,
    "half-quantised": half_quantised,
    "checkered": checkered,
    "two-channels": two_channels,
    "noisy": noisy,
}
HEADS: dict[str, Layer] = {
    "rounded": lambda logits: logits.round(),
    "rounded-softmax": lambda logits: ((logits.softmax(1) * 1000).round() / 1000).clamp(min=1e-4).log(),
    "cold": lambda logits: logits * 1e-3,
    "hot": lambda logits: logits * 1e3,
    "sigmoid": lambda logits: 2 * torch.sigmoid(logits) - 1,
    "saturated": lambda logits: 3 * (100 * logits).softmax(1),
    "dead-member": lambda logits: (logits.softmax(1) + torch.full_like(logits, 1 / logits.shape[1])).log(),
}
COLOUR = ("two-channels",)
WEAKEST = (3, 5)
"""Cat and dog of CIFAR-10."""
NAMES = ("plain", *(name for name in FRONTS if name not in COLOUR), *HEADS, "two-classes", "rippled", "smoothed")
"""Of grey images; `COLOUR` are of colour ones."""


class Defended(nn.Module):
    """A network behind one of the defences."""

    def __init__(self, network: nn.Module, defence: str, hidden: tuple[int, ...] = (0, 1)) -> None:
        super().__init__()
        self.network, self.defence = network, defence
        self.register_buffer("hidden", torch.tensor(hidden))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.defence == "two-classes":
            return self._in_two_classes(images)
        logits: torch.Tensor = self.network(FRONTS.get(self.defence, lambda same: same)(images))
        if self.defence == "rippled":
            return rippled(images, logits)
        return HEADS.get(self.defence, lambda same: same)(logits)

    def _in_two_classes(self, images: torch.Tensor) -> torch.Tensor:
        """Where the hidden classes are predicted the backward pass goes through permuted pixels."""
        with torch.no_grad():
            hidden = torch.isin(self.network(images).argmax(dim=1), self.hidden).view(-1, 1, 1, 1)
        logits: torch.Tensor = self.network(torch.where(hidden, permuted(images), images))
        return logits


class Approximated(nn.Module):
    """The defended network's answers with the gradient of the undefended one."""

    def __init__(self, defended: nn.Module, network: nn.Module) -> None:
        super().__init__()
        self.defended, self.network = defended, network

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            answers: torch.Tensor = self.defended(images)
        plain: torch.Tensor = self.network(images)
        return answers + (plain - plain.detach())


def base(file: str, width: int = 8) -> nn.Module:
    """The undefended network on 8x8 digits."""
    network = small_cnn(width=width)
    network.load_state_dict(_state(file))
    return network.eval().requires_grad_(False)


def _state(file: str) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(file)


def defended(file: str, defence: str, width: int = 8) -> nn.Module:
    """As a `factory:` source calls it."""
    return Defended(base(file, width), defence)


def defended_standing(data: str, name: str, defence: str) -> nn.Module:
    """One of the shared networks behind a defence, as a `factory:` source calls it."""
    return Defended(zoo.load(Path(data), name).requires_grad_(False), defence, WEAKEST)


def adaptive(
    model: nn.Module, network: nn.Module, images: torch.Tensor, labels: torch.Tensor, epsilon: float
) -> NDArray[np.bool_]:
    """What stands, (n,), after the gradient of the undefended network under three losses, and after Square."""
    ids, known = np.arange(len(images)), Approximated(model, network)
    attacks: list[tuple[Any, nn.Module]] = [
        (Apgd(epsilons=epsilon, steps=20, targets=3), known),
        (Pgd(epsilons=epsilon, steps=40, loss="margin", restarts=2), known),
        (Square(epsilons=epsilon, queries=500), model),
    ]
    left = np.ones(len(images), dtype=bool)
    for measure, attacked in attacks:
        if not len(rows := np.flatnonzero(left)):
            break
        columns = measure.from_model(attacked, images[rows], labels[rows], ids[rows], seed=1)
        left[rows] = columns[measure.series()[0].key] > 0
    return left
