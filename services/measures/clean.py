"""Clean accuracy as a measure: 1 for a sample whose label's logit is strictly the largest, else 0."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from services.measures.measure import Columns, Measure
from services.numerics.great import check_logits, chunks, margins, predictions
from services.records import PREDICTED, Column, Series


class Clean(Measure):
    """Correctness on unperturbed samples. A tie for the top, and a NaN or infinite logit, are not correct."""

    needs: ClassVar[Literal["logits", "model"]] = "logits"
    name: Literal["clean"] = "clean"

    def series(self) -> tuple[Series, ...]:
        return (self.one_series("clean", "clean accuracy", binary=True, unit="share of samples"),)

    def columns(self) -> tuple[Column, ...]:
        return (Column(PREDICTED, "code"),)

    def from_logits(self, logits: NDArray[np.floating[Any]], labels: NDArray[np.integer[Any]]) -> Columns:
        """Columns `clean` (0.0 or 1.0), `predicted` (-1 where not finite), `correct` and `finite`, each (n,)."""
        array, targets = check_logits(logits, labels)
        parts = [margins(array[rows], targets[rows]) for rows in chunks(*array.shape)]
        correct = np.concatenate([part.correct for part in parts]) if parts else np.zeros(0, dtype=bool)
        return {
            "clean": correct.astype(np.float64),
            PREDICTED: predictions(array),
            "correct": correct,
            "finite": np.concatenate([part.finite for part in parts]) if parts else np.zeros(0, dtype=bool),
        }
