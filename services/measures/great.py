"""The local GREAT score as a measure (GREAT Theorem 1, GF 3.1)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from services.measures.measure import Columns, Measure
from services.numerics.great import GREAT_BOUND, great_scores, offset_free_scores, predictions
from services.records import L2_DISTANCE, Column, Evidence, Series


class Great(Measure):
    """``sqrt(pi / 2) * max(s_y - max_{j != y} s_j, 0)`` with s the activation of ``logits / temperature``.

    A claim about the L2 distance to the nearest adversarial example *in expectation under a generator*, not a
    certificate of one sample: an audit tests it (`services.numerics.evidence.refutation`).

    Attributes:
        activation: "sigmoid" as GF on CIFAR-10, "softmax" as GF on ImageNet; the choice decides how large scores are.
        temperature: T > 0. An audit that calibrates fills it in.
    """

    needs: ClassVar[Literal["logits", "model"]] = "logits"
    name: Literal["great"] = "great"
    activation: Literal["sigmoid", "softmax"] = "sigmoid"
    temperature: float = Field(default=1.0, gt=0.0, allow_inf_nan=False)

    @property
    def key(self) -> str:
        """The series' key: `great`, or `great-softmax`."""
        return "great" if self.activation == "sigmoid" else "great-softmax"

    def series(self) -> tuple[Series, ...]:
        title = f"GREAT score ({self.activation}, T={self.temperature:g})"
        evidence = Evidence.CLAIM
        return (self.one_series(self.key, title, GREAT_BOUND, unit=L2_DISTANCE, evidence=evidence, label=self.key),)

    def columns(self) -> tuple[Column, ...]:
        return (Column("predicted", "code"),)

    def from_logits(self, logits: NDArray[np.floating[Any]], labels: NDArray[np.integer[Any]]) -> Columns:
        """The series' column in [0, sqrt(pi / 2)] and `predicted`, `correct`, `saturated`, `finite`, `offset_free`."""
        great = great_scores(logits, labels, temperature=self.temperature, activation=self.activation)
        return {
            self.key: great.scores,
            "predicted": predictions(logits),
            "correct": great.correct,
            "saturated": great.saturated,
            "finite": great.finite,
            "offset_free": offset_free_scores(logits, labels, temperature=self.temperature, activation=self.activation),
        }
