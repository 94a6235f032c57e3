"""What a training run reports to its caller."""

from __future__ import annotations

from dataclasses import dataclass

from services.training.counts import EpochRecord


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

    @property
    def averaged(self) -> int | None:
        """Epochs in the average that was returned; 0: the selected epoch's own weights were. None without averaging."""
        done = [
            record.averaged for record in self.records if self.selected is not None and record.epoch <= self.selected
        ]
        return sum(map(bool, done)) if done and done[-1] is not None else None
