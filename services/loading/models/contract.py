"""From images in [0, 1] to float32 logits, whatever the network itself expects and returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from services.errors import PreflightError, Problem
from services.loading.models.outputs import PROBABILITY_FLOOR, SIGMOID_CEILING, other_width
from services.records import InputContract, Outputs

LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in a grey value (ITU-R BT.601, as Pillow uses)."""


class ContractedNetwork(nn.Module):
    """Images (n, C, H, W) float32 in [0, 1] to logits (n, K) float32, differentiable in the images.

    In order: resize, channels and their order, value range, normalisation, network, output, offsets. The network stays
    in evaluation mode whatever `train()` is called, and its parameters ask for no gradient.

    Args:
        network: the network, or any callable of a batch.
        contract: what it expects.
        outputs: what its numbers are; see `as_logits`.
        output: index, key or attribute of the logits where it returns a tuple, mapping or record.
        where: the model's name, for messages.
        offsets: (K,) added to the logits; empty for none.
    """

    def __init__(
        self,
        network: Any,
        contract: InputContract,
        outputs: Outputs = "logits",
        output: str | int | None = None,
        where: str = "model",
        offsets: Sequence[float] = (),
    ) -> None:
        super().__init__()
        self.mean: Tensor | None
        self.std: Tensor | None
        self.offsets: Tensor | None
        self.network = network
        self.contract, self.outputs, self.output, self.where = contract, outputs, output, where
        self.register_buffer("mean", _per_channel(contract.mean), persistent=False)
        self.register_buffer("std", _per_channel(contract.std), persistent=False)
        added = torch.tensor(offsets, dtype=torch.float32) if len(offsets) else None
        self.register_buffer("offsets", added, persistent=False)
        self.train(False)
        self.requires_grad_(False)

    def train(self, mode: bool = True) -> ContractedNetwork:
        """Evaluation mode, always."""
        if isinstance(self.network, nn.Module) and _can_switch(self.network):
            self.network.eval()
        self.training = False
        return self

    def under(self, contract: InputContract) -> ContractedNetwork:
        """The same network, asked by another contract."""
        offsets = () if self.offsets is None else self.offsets.tolist()
        return ContractedNetwork(self.network, contract, self.outputs, self.output, self.where, offsets)

    def forward(self, images: Tensor) -> Tensor:
        return self.to_logits(self.raw(images), len(images))

    def raw(self, images: Tensor) -> Any:
        """What the network itself returns for images in [0, 1]."""
        prepared = self.prepare(images)
        with torch.set_grad_enabled(torch.is_grad_enabled()):  # a graph that fails within `no_grad` would leave it on
            return self.network(prepared)

    def prepare(self, images: Tensor) -> Tensor:
        """Images in [0, 1] as the network expects them."""
        contract = self.contract
        if contract.size is not None and tuple(images.shape[2:]) != tuple(contract.size):
            images = F.interpolate(images, contract.size, mode="bilinear", antialias=True, align_corners=False)
        images = _with_channels(images, contract.channels)
        if contract.channel_order == "BGR" and images.shape[1] == 3:
            images = images.flip(1)
        if (contract.low, contract.high) != (0.0, 1.0):
            images = images * (contract.high - contract.low) + contract.low
        if self.mean is not None:
            images = images - self.mean
        return images if self.std is None else images / self.std

    def to_logits(self, raw: Any, count: int) -> Tensor:
        """Pick the output, check its shape, and turn it into float32 logits."""
        picked = raw if self.output is None else _pick(raw, self.output, self.where)
        if not isinstance(picked, Tensor):
            raise PreflightError(_not_a_tensor(picked, self.where))
        if picked.ndim != 2 or len(picked) != count:
            actual = f"shape {tuple(picked.shape)} for {count} images"
            raise PreflightError(Problem(f"{self.where} (output)", "logits (n, K)", actual, "wrap the network"))
        if not picked.is_floating_point():
            actual = str(picked.dtype).removeprefix("torch.")
            raise PreflightError(Problem(f"{self.where} (output)", "floating logits", actual, "wrap the network"))
        return self.shifted(as_logits(picked.float(), self.outputs))

    def shifted(self, logits: Tensor) -> Tensor:
        """With the offsets added."""
        if self.offsets is None:
            return logits
        if logits.shape[1] != len(self.offsets):
            raise PreflightError(other_width(self.where, logits.shape[1], len(self.offsets)))
        return logits + self.offsets


def as_logits(scores: Tensor, outputs: Outputs) -> Tensor:
    """Logits (n, K) of declared outputs, differentiable.

    Probabilities p become log p, percentages log(p / 100), both floored at `PROBABILITY_FLOOR`; sigmoids become
    log p - log(1 - p) with p at most `SIGMOID_CEILING`; logits and log-probabilities are logits already.
    """
    if outputs in ("logits", "log-probabilities"):
        return scores
    values = (scores / 100 if outputs == "percentages" else scores).clamp_min(PROBABILITY_FLOOR)
    if outputs == "sigmoid":
        return values.log() - torch.log1p(-values.clamp_max(SIGMOID_CEILING))
    return values.log()


class Graphable(nn.Module):
    """The same without any look at the output: a graph traced through `to_logits` would serve one batch size only."""

    def __init__(self, contracted: ContractedNetwork) -> None:
        super().__init__()
        self.contracted = contracted

    def forward(self, images: Tensor) -> Tensor:
        raw: Tensor = self.contracted.raw(images)
        logits = as_logits(raw.float(), self.contracted.outputs)
        return logits if self.contracted.offsets is None else logits + self.contracted.offsets


def _per_channel(values: tuple[float, ...] | None) -> Tensor | None:
    return None if values is None else torch.tensor(values, dtype=torch.float32).view(1, -1, 1, 1)


def _can_switch(network: nn.Module) -> bool:
    """An exported graph raises when its mode is switched: the mode was fixed when it was traced."""
    return not getattr(network, "mode_is_fixed", False)


def _with_channels(images: Tensor, channels: int | None) -> Tensor:
    if channels is None or images.shape[1] == channels:
        return images
    if channels == 3:
        return images.expand(-1, 3, -1, -1)
    return (images * images.new_tensor(LUMA).view(1, 3, 1, 1)).sum(dim=1, keepdim=True)


def _pick(raw: Any, output: str | int, where: str) -> Any:
    try:
        if isinstance(output, int):
            return raw[output]
        return raw[output] if isinstance(raw, Mapping) else getattr(raw, output)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        actual = _describe(raw)
        raise PreflightError(Problem(f"{where} (output)", f"an output {output!r}", actual, "set `output`")) from error


def _not_a_tensor(raw: Any, where: str) -> Problem:
    remedy = "set `output` to the index, key or attribute of the logits"
    return Problem(f"{where} (output)", "one tensor of logits (n, K)", _describe(raw), remedy)


def _describe(raw: Any) -> str:
    name = type(raw).__name__
    if isinstance(raw, Mapping):
        return f"a {name} with keys {', '.join(map(repr, raw))}"
    return f"a {name} of {len(raw)}" if isinstance(raw, tuple | list) else f"a {name}"
