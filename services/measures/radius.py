"""Certified L2 radius by randomized smoothing, as published and with early stopping."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from services.measures.measure import Columns, Measure
from services.measures.parts.threats import MOST_RADII, check_pixel_units
from services.measures.sampling.parameters import Draws, Rate, Strength
from services.numerics.intervals.radius import certified_radius, largest_radius, sequential_radius
from services.records import L2_DISTANCE, Column, Evidence, Series, ThreatModel

if TYPE_CHECKING:
    import torch

    from services.measures.measure import Network
    from services.measures.sampling.passes import Passes

LARGEST_CHUNK = 1024
"""Draws of a sample per pass, at most: memory does not grow with `draws`."""


class Radius(Measure):
    """L2 radius around x within which the smoothed network keeps the right label, with probability at least 1 - alpha.

    CERTIFY of Cohen et al. 2019: `select` draws choose the class, `draws` further draws bound its probability pA from
    below, radius = sigma Phi^-1(pA). Radius 0 when pA <= 1/2 (abstain) or when the class is not the label. Noise is not
    clipped to [0, 1]. Needs 0 < radius <= sigma Phi^-1(alpha^(1/draws)), the series' bound.

    `method`:
        published  always `draws` draws, Clopper-Pearson.
        adaptive   a confidence sequence with the same guarantee at any stopping time, at most `draws` draws. Stops once
                   "radius >= r" is settled for every r of `at` (certified, or refuted at level alpha), or, with
                   `width`, once (upper - lower) <= width * upper. A sample whose selected class is not the label has
                   radius 0 already and is not drawn further.

    Columns besides: `KEY/predicted` (-1: abstained; for adaptive the selected class where it is not the label),
    `KEY/abstained`, `KEY/draws` (the `select` draws included), `correct` (the smoothed prediction is the label).
    """

    needs = "model"
    name: Literal["radius"] = "radius"
    sigma: Strength = 0.25
    method: Literal["published", "adaptive"] = "published"
    at: Annotated[tuple[Strength, ...], Field(min_length=1, max_length=MOST_RADII)] = (0.25, 0.5)
    select: Draws = 100
    draws: Draws = 100_000
    alpha: Rate = 0.001
    width: Annotated[float, Field(gt=0.0, lt=1.0)] | None = None

    @field_validator("sigma")
    @classmethod
    def _in_pixels(cls, value: float) -> float:
        check_pixel_units("sigma", (value,))
        return value

    @property
    def key(self) -> str:
        return f"radius/sigma-{self.sigma:.4g}"

    @property
    def bound(self) -> float:
        """The largest radius that `draws` draws can certify."""
        if self.method == "published":
            return largest_radius(self.draws, sigma=self.sigma, alpha=self.alpha)
        return float(sequential_radius(self.draws, self.draws, sigma=self.sigma, alpha=self.alpha)[0])

    @property
    def most_passes(self) -> float:
        return float(self.select + self.draws)

    def series(self) -> tuple[Series, ...]:
        sigma, proof = f"sigma={self.sigma:.4g}", Evidence.CERTIFICATE
        title = f"certified radius ({sigma})"
        return self.one_series(self.key, title, self.bound, unit=L2_DISTANCE, evidence=proof), *(
            self.one_series(
                f"{self.key}/at-{r:.4g}",
                f"certified accuracy at L2 {r:.4g} ({sigma})",
                binary=True,
                evidence=proof,
                label="at",
                threat=ThreatModel("L2", r),
            )
            for r in self.at
        )

    def columns(self) -> tuple[Column, ...]:
        return Column(f"{self.key}/predicted", "code"), Column(f"{self.key}/draws", "count")

    def from_model(
        self, network: Network, images: torch.Tensor, labels: torch.Tensor, ids: NDArray[np.int64], *, seed: int
    ) -> Columns:
        from services.measures.sampling.passes import Passes
        from services.measures.sampling.smoothed import selected_classes

        passes = Passes(network, images, labels, ids, seed)
        selected = selected_classes(passes, self.sigma, self.select)
        right = selected == labels.cpu().numpy()
        radius, draws = (self._published if self.method == "published" else self._adaptive)(passes, selected, right)
        abstained = (radius <= 0.0) & (draws > 0)
        score = np.where(right, radius, 0.0)
        columns: Columns = {
            self.key: np.minimum(score, self.bound),
            f"{self.key}/predicted": np.where(abstained, -1, selected),
            f"{self.key}/abstained": abstained,
            f"{self.key}/draws": draws + self.select,
            "correct": right & ~abstained,
        }
        return columns | {f"{self.key}/at-{r:.4g}": (score >= r).astype(np.float64) for r in self.at}

    def _published(
        self, passes: Passes, selected: NDArray[np.int64], right: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        from services.measures.sampling.smoothed import successes

        rows = np.flatnonzero(selected >= 0)
        hits = np.zeros(len(selected), dtype=np.int64)
        for first in range(0, self.draws, LARGEST_CHUNK):
            counts = np.full(len(rows), min(LARGEST_CHUNK, self.draws - first))
            hits[rows] += successes(passes, self.sigma, rows, self.select + first + 0 * rows, counts, selected)
        radius = certified_radius(hits, self.draws, sigma=self.sigma, alpha=self.alpha)
        return radius, np.where(selected >= 0, self.draws, 0)

    def _adaptive(
        self, passes: Passes, selected: NDArray[np.int64], right: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        from services.measures.sampling.smoothed import SmoothingRule, certify

        rule = SmoothingRule(self.sigma, self.alpha, self.at, self.width, self.draws)
        return certify(passes, rule, np.flatnonzero(right), selected, first=self.select)
