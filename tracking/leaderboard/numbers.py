"""What stands under a key of a leaderboard: a metric of a series, its generalisation error, or a training time.

Runs say which series they have (`tracking.mlflow.series_tag`), and a key is made from that. Only what carries no
series, runs of 0.1.0, published tables and a user's options, is read from its text, in `tracking.leaderboard.spelled`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from services.metrics import METRICS, OF_SERIES
from services.records import Series
from services.records.estimates import Estimate
from tracking.mlflow.layout import SECONDS_PER_EPOCH
from tracking.names import metric_key

AGGREGATE = "aggregate"
SHOWN = (*(metric.name for metric in OF_SERIES), "refuted")
"""Metrics of a series that runs carry."""


class Part(StrEnum):
    """What a number is of: the test samples, training minus test samples, or the training itself."""

    TEST = ""
    GAP = "ge"
    TRAINING = "train"


@dataclass(frozen=True, slots=True)
class Number:
    """One number that a row may have.

    Attributes:
        key: as MLflow has it: ``pgd20/linf-0.03137/wcr``, ``ge/clean``, ``train/seconds_per_epoch``.
        part: what it is of.
        metric: name in `services.metrics.METRICS`; of a gap and of a time what the key says.
        lens: the series over its grouping as MLflow calls it, "" for a time.
        series: None for a time.
        grouping: "class" or a column.
    """

    key: str
    part: Part
    metric: str
    lens: str = ""
    series: Series | None = None
    grouping: str = "class"

    @property
    def lower_is_better(self) -> bool:
        """Whether a smaller number is better."""
        return self.part is not Part.TEST or METRICS[self.metric].better == "lower"

    @property
    def short(self) -> str:
        """The key as a user may write it: the aggregate is meant where nothing is said."""
        return self.lens if self.part is Part.TEST and self.metric == AGGREGATE else self.key

    @property
    def range(self) -> tuple[float, float]:
        """The least and the most that it can be."""
        if self.part is Part.GAP:
            return -math.inf, math.inf
        least = -math.inf if self.metric == "fp" else 0.0
        top = METRICS[self.metric].top(self.series.bound) if self.series else None
        return least, math.inf if top is None else top

    @property
    def order(self) -> tuple[Any, ...]:
        """Sort key: the order of PRBench's Table 4, then what it lacks; radii by size."""
        family = self.series.family if self.series else ""
        place = _FAMILIES.index(family) if family in _FAMILIES else len(_FAMILIES)
        kind = _METRICS.index(self.metric) if self.part is Part.TEST and self.metric in _METRICS else len(_METRICS)
        first = self.part is not Part.TEST or self.metric == AGGREGATE
        late = self.part is not Part.TEST
        return self.part is Part.TRAINING, not first, late, place, natural(self.lens), kind, self.metric

    def limits(self, estimate: Estimate) -> tuple[float | None, float | None]:
        """What it may be for a composite: its interval, or itself where it is a time, which is as measured."""
        return (estimate.value,) * 2 if self.part is Part.TRAINING else (estimate.low, estimate.high)

    def formatted(self, value: float | None) -> str:
        """`decimals`, and of seconds three digits: ``31.2``."""
        if value is None or self.part is not Part.TRAINING:
            return decimals(value)
        return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


SECONDS = Number(metric_key(Part.TRAINING, SECONDS_PER_EPOCH), Part.TRAINING, SECONDS_PER_EPOCH)


def numbers_of_series(lens: str, series: Series, grouping: str) -> list[Number]:
    """All numbers that a run may have of a series: its metrics, and its generalisation error."""
    own = [Number(metric_key(lens, name), Part.TEST, name, lens, series, grouping) for name in SHOWN]
    return [*own, Number(metric_key(Part.GAP, lens), Part.GAP, "", lens, series, grouping)]


def decimals(value: float | None) -> str:
    """Three decimals in four or five characters: ``.834``, ``-.012``, ``1.205``, ``31.25``."""
    if value is None:
        return "–"
    return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 9.9995 else f"{value:.4g}"


def natural(text: str) -> tuple[tuple[int, float, str], ...]:
    """Sort key that compares numbers as numbers: pgd10 before pgd20, linf-0.08 before linf-0.1."""
    parts = re.split(r"(\d+(?:\.\d+)?)", text)
    return tuple((1, float(part), "") if place % 2 else (0, 0.0, part) for place, part in enumerate(parts))


_FAMILIES = (
    *("clean", "pgd", "apgd", "cw", "square", "autoattack"),
    *("great", "minimal", "pr", "probacc", "binomial", "radius"),
)
_METRICS = ("aggregate", "wcr", "nrgc", "rdi", "fp")
