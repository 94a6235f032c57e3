"""What a training run tells its caller."""

from __future__ import annotations

from dataclasses import dataclass

from services.training.evaluation import EpochRecord


@dataclass(frozen=True)
class TrainReport:
    """What a training run did. The network it was given now holds the selected weights, in evaluation mode.

    Attributes:
        records: one an epoch that ended well.
        selected: the epoch whose weights were kept; None when no epoch ended well.
        stopped: "finished", "early-stop" or "diverged".
        reason: why it stopped before its last epoch, a sentence; "" when finished.
        resumed_at: epochs that were found done; 0 for a fresh run.
        method, recipe: canonical JSON.
    """

    records: tuple[EpochRecord, ...]
    selected: int | None
    stopped: str
    reason: str
    resumed_at: int
    method: str
    recipe: str
