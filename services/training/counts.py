"""Per-class counts of an epoch, and the record of an epoch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClassCounts:
    """What happened to the samples of each class; every tuple but the last has K entries.

    Attributes:
        total: samples seen.
        clean: classified correctly without perturbation; None where the method never computed it.
        robust: classified correctly under the perturbation; None likewise.
        robust_loss: sum of cross-entropies under the perturbation; None on the training stream.
        confidence: sums of the soft-max of the perturbed images, K of each class, class by class; None where the method
            does not ask for them. They steer the next epoch and are kept in no record.
    """

    total: tuple[int, ...]
    clean: tuple[int, ...] | None = None
    robust: tuple[int, ...] | None = None
    robust_loss: tuple[float, ...] | None = None
    confidence: tuple[float, ...] | None = None

    def accuracy(self, kind: str) -> float | None:
        """Share over all samples of "clean" or "robust"; for "worst-class" the smallest robust share of a class."""
        right = self.clean if kind == "clean" else self.robust
        if right is None or not sum(self.total):
            return None
        if kind == "worst-class":
            return min(r / n for r, n in zip(right, self.total, strict=True) if n)
        return sum(right) / sum(self.total)


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """One epoch.

    Attributes:
        epoch: 0, 1, ...
        rate: learning rate.
        samples, loss_sum: training samples seen, and the sum of the method's loss over them.
        train: counts on the training stream while the weights moved (what CFA steers by).
        validation: counts on the held-out split after the epoch, with the weights that would be returned; None without
            a split.
        seconds: wall time, validation included.
        held_losses: sums by class of the losses that the method steers by, on the held-out split and with the epoch's
            own weights; None when it asks for none.
        averaged: whether the epoch's weights went into the average; None without averaging.
        judging: of the seconds, those in which the held-out split was judged.
    """

    epoch: int
    rate: float
    samples: int
    loss_sum: float
    train: ClassCounts
    validation: ClassCounts | None
    seconds: float
    held_losses: tuple[float, ...] | None = None
    averaged: bool | None = None
    judging: float = 0.0
