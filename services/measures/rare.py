"""Failure probabilities down to one in a million, estimated per sample by multilevel splitting."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from services.measures.measure import Columns
from services.measures.sampling.parameters import PerturbationMeasure, Rate
from services.numerics.intervals.splitting import RareEvent, SplittingPlan, rare_event
from services.records import Series

if TYPE_CHECKING:
    import torch

    from services.measures.measure import Network
    from services.measures.sampling.passes import Passes
    from services.measures.sampling.perturbation import Kind

RESAMPLING_STREAM = 32


class Rare(PerturbationMeasure):
    """Decades of safety: -log10 P(f(x + d) != y), cut to [0, -log10 kappa], by adaptive multilevel splitting.

    Thousands of passes where plain sampling needs millions, but an estimate with an interval and not a certificate
    (`services.numerics.intervals.splitting`). Works for additive noise: d is a function of a
    standard normal latent. A sample whose every replicate ends below kappa / 10 is *censored*: it scores the bound, and
    its probability is given as that floor. Series a radius: the decades, and the binary `KEY/below` (upper limit
    below kappa). Columns besides: `KEY/probability`, `KEY/low`, `KEY/high` (level 1 - delta),
    `KEY/passes`, `KEY/censored`.
    """

    needs = "model"
    name: Literal["rare"] = "rare"
    perturbation: Literal["noise"] = "noise"
    kappa: Rate = 1e-6
    delta: Rate = 0.05
    particles: Annotated[int, Field(ge=8, le=100_000)] = 64
    replicates: Annotated[int, Field(ge=2, le=1_000)] = 8
    moves: Annotated[int, Field(ge=1, le=1_000)] = 2

    @property
    def plan(self) -> SplittingPlan:
        """The splitting budget."""
        return SplittingPlan(
            particles=self.particles,
            replicates=self.replicates,
            moves=self.moves,
            floor=self.kappa / 10,
            delta=self.delta,
        )

    @property
    def most_passes(self) -> float:
        levels = math.log(1.0 / self.kappa) / math.log(2.0)
        return float(self.replicates * self.particles * (1 + self.moves * levels))

    def series(self) -> tuple[Series, ...]:
        bound = -math.log10(self.kappa)
        return tuple(
            series
            for radius in self.radii
            for series in (
                self.one_series(
                    f"rare/{self.label(radius)}",
                    f"decades of safety ({self.spoken(radius)})",
                    bound,
                    unit="decades",
                    **self.threat(radius),
                ),
                self.one_series(
                    f"rare/{self.label(radius)}/below",
                    f"failure probability < {self.kappa:.4g}, estimated ({self.spoken(radius)})",
                    binary=True,
                    label="below",
                    **self.threat(radius),
                ),
            )
        )

    def from_model(
        self, network: Network, images: torch.Tensor, labels: torch.Tensor, ids: NDArray[np.int64], *, seed: int
    ) -> Columns:
        from services.measures.sampling.passes import Passes

        passes = Passes(network, images, labels, ids, seed)
        columns: Columns = {}
        for radius in self.radii:
            events = [self._estimate(passes, row, radius) for row in range(len(ids))]
            columns |= self._columns(f"rare/{self.label(radius)}", events)
        return columns

    def _estimate(self, passes: Passes, row: int, radius: float) -> RareEvent:
        """One sample; its latents and its resampling are keyed by (seed, id) alone."""
        taken, sample = 0, int(passes.ids[row])

        def normals(count: int) -> NDArray[np.float32]:
            nonlocal taken
            taken += count
            return passes.gaussian(np.full(count, row), np.arange(taken - count, taken))

        counter = [0, 0, 0, RESAMPLING_STREAM]
        rng = np.random.Generator(np.random.Philox(key=[passes.seed % 2**64, sample % 2**64], counter=counter))
        return rare_event(lambda u: _margins(passes, self.kind, row, u, radius), normals, self.plan, rng)

    def _columns(self, key: str, events: list[RareEvent]) -> Columns:
        floor = self.kappa / 10
        p = np.array([floor if event.probability is None else event.probability for event in events])
        decades = np.clip(-np.log10(np.maximum(p, floor)), 0.0, -math.log10(self.kappa))
        high = np.array([event.high for event in events])
        return {
            key: decades,
            f"{key}/below": (high < self.kappa).astype(np.float64),
            f"{key}/probability": p,
            f"{key}/low": np.array([event.low for event in events]),
            f"{key}/high": high,
            f"{key}/passes": np.array([event.passes for event in events], dtype=np.int64),
            f"{key}/censored": np.array([event.probability is None for event in events], dtype=bool),
        }


def _margins(passes: Passes, kind: Kind, row: int, latents: NDArray[np.float32], radius: float) -> NDArray[np.float64]:
    """Margins of one image under the noise of standard normal latents, a pass at a time."""
    import torch

    out = np.empty(len(latents))
    image, rows = passes.images[row], np.full(passes.size, row)
    for start in range(0, len(latents), passes.size):
        unit = torch.from_numpy(latents[start : start + passes.size]).to(image.device)
        noisy = (image + radius * _unit_ball(kind, unit).view(-1, *image.shape)).clamp_(0.0, 1.0)
        out[start : start + len(unit)] = passes.margins(noisy, rows[: len(unit)]).double().cpu().numpy()
    return out


def _unit_ball(kind: Kind, latents: torch.Tensor) -> torch.Tensor:
    """The unit draws of `services.measures.sampling.perturbation` as functions of standard normal latents."""
    import torch

    if kind == "uniform":
        return torch.erf(latents * 0.5**0.5)
    if kind == "laplace":
        return (-torch.log(torch.erfc(latents.abs() * 0.5**0.5)) * latents.sign()).clamp_(-1.0, 1.0)
    return latents.clamp(-1.0, 1.0)
