"""Workers that train one network together: each takes its part of every batch, and gradients are averaged.

Gradients are averaged by one call after the backward pass rather than by torch's `DistributedDataParallel`: a step of
adversarial training runs the network a dozen times, differentiates most of them by the images alone, and switches
between training and evaluation mode, which that wrapper's bookkeeping does not bear.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from services.errors import one_line
from services.training.counts import ClassCounts

T = TypeVar("T")
N = TypeVar("N", int, float)


class Peers(Protocol):
    """What a run needs of the workers it shares its batches with. All of them make the same calls in the same order."""

    @property
    def rank(self) -> int:
        """This worker's place; the first, 0, writes checkpoints and judges the held-out split."""
        ...

    @property
    def size(self) -> int:
        """How many there are."""
        ...

    def average(self, tensors: Iterable[Tensor], share: float) -> None:
        """Replace tensors by the sum over all workers of `share` times the worker's own."""
        ...

    def gather(self, value: T) -> list[T]:
        """Every worker's value, by rank."""
        ...

    def agree(self, value: T) -> T:
        """The first worker's value."""
        ...


class PeerLost(Exception):
    """A worker that the others share their batches with is gone."""


class Alone:
    """One worker."""

    rank, size = 0, 1

    def average(self, tensors: Iterable[Tensor], share: float) -> None:
        """Nothing to average with."""

    def gather(self, value: T) -> list[T]:
        """The value."""
        return [value]

    def agree(self, value: T) -> T:
        """The value."""
        return value


class Group:
    """The workers of torch's default process group, which their starter has set up."""

    def __init__(self) -> None:
        import torch.distributed as group

        self._group: Any = group
        self.rank, self.size = int(group.get_rank()), int(group.get_world_size())

    def average(self, tensors: Iterable[Tensor], share: float) -> None:
        """One message for all tensors; every worker ends with the same bits."""
        parts = list(tensors)
        if not parts:
            return
        flat = torch.cat([part.reshape(-1) for part in parts]).mul_(share)
        with _together():
            self._group.all_reduce(flat)
        for part, mean in zip(parts, torch.split(flat, [part.numel() for part in parts]), strict=True):
            part.copy_(mean.view_as(part))

    def gather(self, value: T) -> list[T]:
        """Every worker's value, by rank."""
        values: list[Any] = [None] * self.size
        with _together():
            self._group.all_gather_object(values, value)
        return values

    def agree(self, value: T) -> T:
        """The first worker's value."""
        box: list[Any] = [value]
        with _together():
            self._group.broadcast_object_list(box, src=0)
        agreed: T = box[0]
        return agreed


@contextmanager
def _together() -> Iterator[None]:
    """Whatever a collective call raises, it comes of another worker that is gone."""
    try:
        yield
    except RuntimeError as error:
        raise PeerLost(one_line(error, 300)) from error


def added(parts: Sequence[ClassCounts]) -> ClassCounts:
    """The counts of all workers; a count that one of them lacks is None."""
    if len(parts) == 1:
        return parts[0]
    return ClassCounts(
        _sums([part.total for part in parts]) or (),
        _sums([part.clean for part in parts]),
        _sums([part.robust for part in parts]),
        _sums([part.robust_loss for part in parts]),
        _sums([part.confidence for part in parts]),
    )


def _sums(rows: Sequence[tuple[N, ...] | None]) -> tuple[N, ...] | None:
    known = [row for row in rows if row is not None]
    return tuple(sum(values) for values in zip(*known, strict=True)) if len(known) == len(rows) else None
