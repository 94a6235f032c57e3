"""Clean accuracy, and how good the probabilities are: measures of logits that nothing was done to."""

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


class Brier(Measure):
    """Brier's score of the soft-max probabilities p, turned so that 1 is perfect: ``1 - sum_k (p_k - [k = y])^2 / 2``.

    In [0, 1], and the larger the better; a proper score, so only the true probabilities maximise its mean (Brier 1950).
    Its column `confidence`, the largest probability, is what the expected calibration error of the audit is made of
    (`services.numerics.calibration_error`). A sample whose logits are not finite scores 0 with confidence 1.
    """

    needs: ClassVar[Literal["logits", "model"]] = "logits"
    name: Literal["brier"] = "brier"

    def series(self) -> tuple[Series, ...]:
        return (self.one_series("brier", "Brier score (1 is perfect)", unit="1 - squared error / 2"),)

    def from_logits(self, logits: NDArray[np.floating[Any]], labels: NDArray[np.integer[Any]]) -> Columns:
        """Columns `brier` in [0, 1], `confidence` in [0, 1] and `correct`, each (n,)."""
        array, targets = check_logits(logits, labels)
        split = margins(array, targets)
        finite, correct = split.finite, split.correct
        shifted = np.where(finite[:, None], array, 0.0).astype(np.float64)
        shares = np.exp(shifted - shifted.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        confidence = np.where(finite, shares.max(axis=1), 1.0)
        shares[np.arange(len(targets)), targets] -= 1.0
        score = 1.0 - np.square(shares).sum(axis=1) / 2
        return {"brier": np.where(finite, score, 0.0), "confidence": confidence, "correct": correct}
