"""Per-class counts of an epoch, on the training stream and on the held-out split. Counts and sums, never means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from services.training.counts import ClassCounts
from services.training.keys import Purpose, number
from services.training.losses.attack import by_cross_entropy, craft, evaluating
from services.training.methods.method import Method
from services.training.step import Batch, Budget


class Held(Protocol):
    """Labelled images on a device, read by row: `services.training.data.batches.Images`."""

    labels: Tensor

    def __len__(self) -> int: ...

    def rows(self, rows: NDArray[np.int64]) -> Tensor:
        """Rows as float32 (n, C, H, W) in [0, 1]."""
        ...


class Tally:
    """Values per sample, kept on the device and added up by class at the end, so that no step waits for a transfer."""

    def __init__(self, classes: int, *, confidence: bool = False) -> None:
        self._classes, self._confidence = classes, confidence
        self._labels: list[Tensor] = []
        self._clean: list[Tensor] = []
        self._robust: list[Tensor] = []
        self._losses: list[Tensor] = []
        self._confident: Tensor | None = None

    def step(self, labels: Tensor, clean: Tensor | None, robust: Tensor | None, *, losses: bool = False) -> None:
        """Take down a batch by its logits; `losses` asks for the robust cross-entropies as well."""
        self._labels.append(labels)
        if clean is not None:
            self._clean.append(correct(clean, labels))
        if robust is not None:
            self._robust.append(correct(robust, labels))
            if losses:
                self._losses.append(F.cross_entropy(robust, labels, reduction="none"))
            if self._confidence:
                self._add_confidence(labels, robust)

    def state(self) -> dict[str, Tensor]:
        """What was taken down so far, to go on from."""
        values = {"labels": self._labels, "clean": self._clean, "robust": self._robust}
        whole = {name: torch.cat(parts) for name, parts in values.items() if len(parts) == len(self._labels) > 0}
        return whole if self._confident is None else {**whole, "confident": self._confident}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what was taken down before; to be asked of a tally that has taken down nothing."""
        for name, values in (("labels", self._labels), ("clean", self._clean), ("robust", self._robust)):
            values += [state[name]] if name in state else []
        self._confident = state.get("confident")

    def counts(self) -> ClassCounts:
        """What was taken down. A count that not every batch had is None."""
        labels = torch.cat(self._labels)
        total = tuple(torch.bincount(labels, minlength=self._classes).tolist())
        clean, robust = self._sums(labels, self._clean), self._sums(labels, self._robust)
        confident = None if self._confident is None else tuple(self._confident.flatten().tolist())
        return ClassCounts(total, whole(clean), whole(robust), self._sums(labels, self._losses), confident)

    def _add_confidence(self, labels: Tensor, robust: Tensor) -> None:
        shares = robust.detach().softmax(1).to(torch.float64)
        if self._confident is None:
            self._confident = shares.new_zeros(self._classes, self._classes)
        self._confident.index_add_(0, labels, shares)

    def _sums(self, labels: Tensor, values: list[Tensor]) -> tuple[float, ...] | None:
        if len(values) < len(self._labels):
            return None
        added = torch.cat(values).to(torch.float64)
        sums = added.new_zeros(self._classes).index_add(0, labels, added)
        return tuple(sums.tolist())


def whole(sums: tuple[float, ...] | None) -> tuple[int, ...] | None:
    """Sums of zeros and ones as integers."""
    return None if sums is None else tuple(int(value) for value in sums)


def correct(logits: Tensor, labels: Tensor) -> Tensor:
    """(n,) bool: the label has the largest logit. A sample with a NaN or infinite logit is never correct."""
    return (logits.argmax(1) == labels) & torch.isfinite(logits).all(1)


def evaluate(network: nn.Module, held: Held, classes: int, *, attack: Budget, batch: int, seed: int) -> ClassCounts:
    """Clean and robust counts per class, in evaluation mode.

    Only correctly classified samples are attacked; a misclassified one counts as not robust, with its clean loss.
    The start of the attack is keyed by (seed, batch), so counts may move with `batch`; audits use `services.measures`.
    """
    tally = Tally(classes)
    with evaluating(network), torch.no_grad():
        for x, y, source in _batches(held, batch, seed, Purpose.VALIDATION):
            clean = network(x)
            tally.step(y, clean, _attacked(network, x, y, clean, attack, source), losses=True)
    return tally.counts()


def held_losses(
    network: nn.Module, method: Method, held: Held, classes: int, *, batch: int, seed: int
) -> tuple[float, ...] | None:
    """Sums by class of the losses that the method steers by, in evaluation mode; None when it asks for none."""
    sums = torch.zeros(classes, dtype=torch.float64, device=held.labels.device)
    with evaluating(network), torch.no_grad():
        for x, y, source in _batches(held, batch, seed, Purpose.STEERING):
            losses = method.held_losses(network, Batch(x, y, classes, source))
            if losses is None:
                return None
            sums.index_add_(0, y, losses.to(torch.float64))
    return tuple(sums.tolist())


def _batches(held: Held, batch: int, seed: int, purpose: Purpose) -> Iterator[tuple[Tensor, Tensor, torch.Generator]]:
    for index, start in enumerate(range(0, len(held), batch)):
        x = held.rows(np.arange(start, min(start + batch, len(held))))
        source = torch.Generator(x.device).manual_seed(number(seed, purpose, index))
        yield x, held.labels[start : start + batch], source


def _attacked(
    network: nn.Module, x: Tensor, y: Tensor, clean: Tensor, attack: Budget, source: torch.Generator
) -> Tensor:
    rows = torch.nonzero(correct(clean, y))[:, 0]
    logits = clean.clone()
    if len(rows):
        logits[rows] = network(craft(network, x[rows], by_cross_entropy(y[rows]), attack, source))
    return logits
