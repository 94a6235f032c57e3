"""Probabilistic robustness: PR(x, gamma) from a fixed number of draws, and ProbAcc(rho) as sequential verdicts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from services.measures.measure import Columns
from services.measures.sampling.parameters import Draws, PerturbationMeasure, Rate
from services.records import Column, Evidence, Series

if TYPE_CHECKING:
    import torch

    from services.measures.measure import Network
    from services.measures.sampling.passes import Passes
    from services.measures.sampling.verdicts import Verdicts
    from services.numerics.intervals.sequential import Boundary


class Pr(PerturbationMeasure):
    """PR(x, gamma) = P(f(x + d) = y), estimated as the share of `draws` draws that keep the label. Range [0, 1].

    Defined for correctly classified samples: PR_D(gamma) is the mean over them (the series are conditional). Others are
    not drawn; they score 0 with `correct` False and 0 draws, so the mean over *all* samples is the accuracy-weighted
    value, accuracy times PR_D. All radii share their unit draws. Columns besides the series: `correct`, and per series
    `KEY/failures` and `KEY/draws`. A draw with NaN or infinite logits, or a tie for the top, fails.

    An estimate from n draws says little of small failure probabilities (0 failures in 100 leave up to 2.95 %): for
    "PR >= 1 - rho" use the measure `probacc`. Source: PRBench, F.2.
    """

    needs = "model"
    name: Literal["pr"] = "pr"
    draws: Draws = 100

    @property
    def most_passes(self) -> float:
        return float(self.draws)

    def series(self) -> tuple[Series, ...]:
        return tuple(
            self.one_series(
                f"pr/{self.label(radius)}",
                f"PR ({self.spoken(radius)})",
                unit="share of draws",
                conditional=True,
                **self.threat(radius),
            )
            for radius in self.radii
        )

    def columns(self) -> tuple[Column, ...]:
        return tuple(
            Column(f"{series.key}/{name}", "count") for series in self.series() for name in ("failures", "draws")
        )

    def from_model(
        self, network: Network, images: torch.Tensor, labels: torch.Tensor, ids: NDArray[np.int64], *, seed: int
    ) -> Columns:
        from services.measures.sampling.passes import Passes

        passes = Passes(network, images, labels, ids, seed)
        correct = passes.correct()
        failures = self._failures(passes, np.flatnonzero(correct))
        columns: Columns = {"correct": correct}
        for index, series in enumerate(self.series()):
            columns[series.key] = np.where(correct, 1.0 - failures[index] / self.draws, 0.0)
            columns[f"{series.key}/failures"] = failures[index]
            columns[f"{series.key}/draws"] = np.where(correct, self.draws, 0)
        return columns

    def _failures(self, passes: Passes, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """(radii, n) failures; a chunk of draws at a time, so memory does not grow with `draws`."""
        from services.measures.sampling.passes import pairs

        failures = np.zeros((len(self.radii), len(passes.ids)), dtype=np.int64)
        chunk = max(1, passes.size // max(len(rows), 1))
        for first in range(0, self.draws if len(rows) else 0, chunk):
            count = min(chunk, self.draws - first)
            which, draws = pairs(rows, np.full(len(rows), first), np.full(len(rows), count))
            failed = passes.failed(self.kind, self.radii, which, draws)
            failures[:, rows] += failed.reshape(len(self.radii), len(rows), count).sum(2)
        return failures


class VerdictMeasure(PerturbationMeasure):
    """Sequential verdicts on "the failure probability is at most `threshold`", valid at every look, a radius at a time.

    Attributes:
        alpha: the probability of a wrong verdict is at most this, for each of the two verdicts.
        max_draws: undecided after so many; left out means 100 / threshold.
    """

    needs = "model"
    alpha: Rate = 0.05
    max_draws: Annotated[int, Field(gt=0, le=1_000_000_000)] | None = None

    @property
    def threshold(self) -> float:
        raise NotImplementedError

    @property
    def variant(self) -> str:
        """The measure with the parameters that keys tell apart."""
        return self.name

    def stem(self, radius: float) -> str:
        """Series key without /certified and /possible."""
        raise NotImplementedError

    def claim(self) -> str:
        """What a certified sample has: "PR >= 0.95"."""
        raise NotImplementedError

    def boundary(self) -> Boundary:
        from services.numerics.intervals.sequential import mixture_boundary

        return mixture_boundary(self.threshold, self.alpha, self.most_draws)

    @property
    def most_draws(self) -> int:
        return self.max_draws or math.ceil(100.0 / self.threshold)

    @property
    def most_passes(self) -> float:
        return float(self.most_draws)

    def series(self) -> tuple[Series, ...]:
        return tuple(
            self.one_series(
                f"{self.stem(radius)}/{ending}",
                f"{self.claim()} {word} ({self.spoken(radius)})",
                binary=True,
                evidence=evidence,
                label=self.variant,
                brackets=self.stem(radius),
                **self.threat(radius),
            )
            for radius in self.radii
            for ending, word, evidence in (
                ("certified", "certified", Evidence.CERTIFICATE),
                ("possible", "not refuted", Evidence.ATTACK),
            )
        )

    def columns(self) -> tuple[Column, ...]:
        """By radius the verdict of each sample, and what it rests on."""
        verdicts = ("refuted", "undecided", "certified")
        return tuple(
            column
            for stem in map(self.stem, self.radii)
            for column in (
                Column(f"{stem}/verdict", "code", verdicts, first=-1),
                *(Column(f"{stem}/{name}", "count") for name in ("draws", "failures", "passes")),
            )
        )

    def from_model(
        self, network: Network, images: torch.Tensor, labels: torch.Tensor, ids: NDArray[np.int64], *, seed: int
    ) -> Columns:
        from services.measures.sampling.passes import Passes
        from services.measures.sampling.verdicts import sequential_verdicts

        passes = Passes(network, images, labels, ids, seed)
        columns: Columns = {}
        for radius in self.radii:
            verdicts = sequential_verdicts(passes.failures_at(self.kind, radius), len(ids), self.boundary())
            columns |= self._columns(self.stem(radius), verdicts)
        return columns

    @staticmethod
    def _columns(stem: str, verdicts: Verdicts) -> Columns:
        return {
            f"{stem}/certified": (verdicts.verdict > 0).astype(np.float64),
            f"{stem}/possible": (verdicts.verdict >= 0).astype(np.float64),
            f"{stem}/verdict": verdicts.verdict,
            f"{stem}/draws": verdicts.draws,
            f"{stem}/failures": verdicts.failures,
            f"{stem}/passes": verdicts.passes,
        }


class ProbAcc(VerdictMeasure):
    """ProbAcc(rho): the share of *all* samples with PR >= 1 - rho, bracketed by verdicts.

    Each sample is monitored after every draw until it is certified (failure probability below rho) or refuted (above),
    each wrongly with probability at most alpha whenever it stops, or undecided after `max_draws`. Two binary series a
    radius: `certified` (their share is the interval's lower end) and `possible` (not refuted: its upper end). A
    misclassified sample is a sample whose draws fail; no case is made of it. Columns besides: `verdict` (1, 0, -1),
    `draws` and `failures` that the verdict rests on, `passes` (images forwarded).
    """

    name: Literal["probacc"] = "probacc"
    rho: Rate = 0.05

    @property
    def threshold(self) -> float:
        return self.rho

    @property
    def variant(self) -> str:
        return self.name if self.rho == ProbAcc.model_fields["rho"].default else f"{self.name}-{self.rho:.6g}"

    def stem(self, radius: float) -> str:
        return f"{self.variant}/{self.label(radius)}"

    def claim(self) -> str:
        return f"PR >= {1.0 - self.rho:.6g}"
