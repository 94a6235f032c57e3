"""Which epoch to keep and when to stop, judged by a held-out split. Pure functions of the records."""

from __future__ import annotations

from collections.abc import Sequence

from services.training.counts import EpochRecord


def best_epoch(records: Sequence[EpochRecord], select: str) -> int | None:
    """The epoch with the largest held-out "clean", "robust" or "worst-class" accuracy, the earliest of equals.

    "last" is the last epoch. None when no epoch ended.
    """
    if not records:
        return None
    if select == "last":
        return records[-1].epoch
    scores = [_score(record, select) for record in records]
    return records[scores.index(max(scores))].epoch


def is_out_of_patience(records: Sequence[EpochRecord], select: str, patience: int | None) -> bool:
    """Whether the last `patience` epochs brought nothing better; with "last", robust accuracy is what counts."""
    best = best_epoch(records, "robust" if select == "last" else select) if patience else None
    return best is not None and patience is not None and records[-1].epoch - best >= patience


def _score(record: EpochRecord, select: str) -> float:
    value = record.validation.accuracy(select) if record.validation else None
    return -1.0 if value is None else value
