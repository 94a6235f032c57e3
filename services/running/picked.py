"""Tasks of a measure on rows that are no plain range: picked ones, or what picked ones have left of a range."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.records import ShardTask
from services.storage.picks import ROW, Columns, kept_rows


@dataclass(frozen=True)
class Picked:
    """What is to be measured.

    Attributes:
        rows: (n,) of the samples.
        kept: columns of further rows of the range, measured before; None for a shard of picked rows.
    """

    rows: NDArray[np.int64]
    kept: Columns | None

    @classmethod
    def of(cls, task: ShardTask) -> Picked:
        """From a task's payload."""
        payload = json.loads(task.payload)
        if "rows" in payload:
            return cls(np.array(payload["rows"], dtype=np.int64), None)
        kept = kept_rows(payload["kept"], task.start, task.stop)
        rows = np.setdiff1d(np.arange(task.start, task.stop), kept.get(ROW, np.zeros(0, dtype=np.int64)))
        return cls(rows, kept)

    def joined(self, columns: Columns) -> Columns:
        """What is written: of picked rows with their numbers, of a range as if all of it had been measured at once."""
        if self.kept is None:
            return {ROW: self.rows, **columns}
        if not self.kept:
            return columns
        rows = np.concatenate([self.kept[ROW], self.rows])
        order = np.argsort(rows)
        if not len(self.rows):
            return {name: values[order] for name, values in self.kept.items() if name != ROW}
        return {name: np.concatenate([self.kept[name], values])[order] for name, values in columns.items()}
