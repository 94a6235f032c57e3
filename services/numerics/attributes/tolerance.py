"""Tolerance, deviation and count of an attribute projection, from the positions at which a label flips (APPS).

Each latent dimension d is moved from its centre ``mu_d`` down and up by at most one unit ``sigma_d``; the label of
sample s flips at ``a_sd^-`` and ``a_sd^+``. A direction in which it never flips is *censored* at the end of the range.

::

    Tol_sd = (a_sd^+ - a_sd^-) / sigma_d           in [0, 2]            how far the factor moves before the label does
    Dev_sd = |(a_sd^+ + a_sd^-) / 2 - mu_d|        in [0, sigma_d / 2]  how lopsided that range is
    Cou    = -sum_d P_d log P_d                    in [0, (D - 1) / e]  P_d = 1 - Tol_d / max_d Tol_d, 0 log 0 = 0

Tol and Dev of a sample are means over dimensions, those of a group means over samples. Cou is of the group's Tol_d.

Departure: the source writes one position a dimension. Read with positions averaged over samples, its deviation is
``|lean_d|`` with the signed ``lean_d = mean_s (a_sd^+ + a_sd^-) / 2 - mu_d``, where samples that lean to opposite sides
cancel; Dev_d here is the mean of the samples' own deviations, and both are given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from services.numerics.arguments import Bools, Floats, as_indices, check_level, fault
from services.numerics.intervals.means import Intervals, simultaneous
from services.records import Estimate

NO_SAMPLES = "no samples"
NO_TOLERANCE = "no dimension has any tolerance, so its shares are 0/0"

_SLACK = 1e-9
CELLS = 1 << 22
"""Elements of a block of bootstrap weights."""


@dataclass(frozen=True)
class Boundaries:
    """Where labels flip, for S samples and D dimensions.

    Attributes:
        positions: (S, D, 2), ``a^-`` and ``a^+`` in latent units.
        censored: (S, D, 2), the label did not flip in that direction and the position is the end of the range.
        centre, unit: (D,), mu and sigma > 0.
    """

    positions: Floats
    censored: Bools
    centre: Floats
    unit: Floats

    @classmethod
    def of(
        cls, positions: NDArray[Any], censored: NDArray[Any], centre: NDArray[Any], unit: NDArray[Any]
    ) -> Boundaries:
        """Check arrays of the shapes above.

        Raises:
            MeasureError: another shape, a unit that is not positive, or a position outside ``[mu - sigma, mu]`` or
                ``[mu, mu + sigma]``.
        """
        middle, width = np.asarray(centre, dtype=np.float64), np.asarray(unit, dtype=np.float64)
        places, cut = np.asarray(positions, dtype=np.float64), np.asarray(censored, dtype=bool)
        if places.ndim != 3 or places.shape[2] != 2 or not places.shape[1]:
            raise fault("positions", "shape (S, D, 2) with D >= 1", f"shape {places.shape}")
        if cut.shape != places.shape:
            raise fault("censored", f"shape {places.shape} of the positions", f"shape {cut.shape}")
        for where, values in (("centre", middle), ("unit", width)):
            if values.shape != places.shape[1:2] or not np.isfinite(values).all():
                raise fault(where, f"{places.shape[1]} finite numbers, one a dimension", f"shape {values.shape}")
        if not (width > 0).all():
            raise fault("unit", "positive numbers", f"{int((width <= 0).sum())} of {width.size} not positive")
        boundaries = cls(places, cut, middle, width)
        moves = boundaries.moves
        if wrong := int(np.count_nonzero(~((moves >= -_SLACK) & (moves <= 1.0 + _SLACK)))):
            raise fault("positions", "within one unit of the centre, each on its side", f"{wrong} outside or NaN")
        return boundaries

    @property
    def moves(self) -> Floats:
        """(S, D, 2) distances from the centre in units, down and up, each in [0, 1]."""
        away = (self.positions - self.centre[:, None]) / self.unit[:, None]
        return np.asarray(away * np.array([-1.0, 1.0]))

    @property
    def tolerances(self) -> Floats:
        """(S, D) Tol_sd in [0, 2]."""
        return np.asarray(np.clip(self.moves, 0.0, 1.0).sum(axis=2))

    @property
    def leans(self) -> Floats:
        """(S, D) signed deviation ``(a^+ + a^-) / 2 - mu`` in latent units."""
        down, up = np.moveaxis(np.clip(self.moves, 0.0, 1.0), 2, 0)
        return np.asarray(self.unit * (up - down) / 2.0)

    @property
    def deviations(self) -> Floats:
        """(S, D) Dev_sd in [0, sigma_d / 2]."""
        return np.abs(self.leans)

    def take(self, rows: NDArray[Any]) -> Boundaries:
        """Some of the samples."""
        return Boundaries(self.positions[rows], self.censored[rows], self.centre, self.unit)


@dataclass(frozen=True)
class ProjectionMetrics:
    """Tol, Dev and Cou of one group of samples.

    Attributes:
        tol, dev: means over samples and dimensions, with betting intervals (valid at any number of samples).
        cou: with a percentile interval of the seeded bootstrap, which is approximate.
        tol_by_dimension, dev_by_dimension: D each; betting intervals that hold for all D simultaneously.
        lean_by_dimension: D signed mean deviations; None without samples.
        censored_by_dimension: D shares of the 2 S directions in which the label never flipped; None without samples.
        censored: the same over all dimensions. Tol is a lower bound of the tolerance where this is not 0.
        samples: S.
        delta: 1 - the confidence of each family of intervals.
    """

    tol: Estimate
    dev: Estimate
    cou: Estimate
    tol_by_dimension: tuple[Estimate, ...]
    dev_by_dimension: tuple[Estimate, ...]
    lean_by_dimension: tuple[float | None, ...]
    censored_by_dimension: tuple[float | None, ...]
    censored: float | None
    samples: int
    delta: float


def projection_metrics(
    boundaries: Boundaries, *, delta: float = 0.05, seed: int = 0, draws: int = 1000
) -> ProjectionMetrics:
    """Tol, Dev and Cou of all samples together.

    Args:
        delta: each family (tol, dev, cou, and each of the two by dimension) misses with at most this probability.
        seed: of the bootstrap and of the order in which betting takes the samples.
        draws: bootstrap resamples.
    """
    check_level(delta, "delta")
    size, dimensions = boundaries.tolerances.shape
    if not size:
        none = Estimate(None, reason=NO_SAMPLES)
        blank = (None,) * dimensions
        return ProjectionMetrics(
            none, none, none, (none,) * dimensions, (none,) * dimensions, blank, blank, None, 0, delta
        )
    tol, dev = boundaries.tolerances, boundaries.deviations
    cut = boundaries.censored.mean(axis=(0, 2))
    return ProjectionMetrics(
        tol=_means(tol.mean(axis=1, keepdims=True), np.array([2.0]), delta, seed)[0],
        dev=_means(dev.mean(axis=1, keepdims=True), np.array([boundaries.unit.mean() / 2.0]), delta, seed)[0],
        cou=_cou_estimate(tol, delta, seed, draws),
        tol_by_dimension=_means(tol, np.full(dimensions, 2.0), delta, seed),
        dev_by_dimension=_means(dev, boundaries.unit / 2.0, delta, seed),
        lean_by_dimension=tuple(boundaries.leans.mean(axis=0).tolist()),
        censored_by_dimension=tuple(cut.tolist()),
        censored=float(cut.mean()),
        samples=size,
        delta=delta,
    )


def metrics_by_group(
    boundaries: Boundaries,
    groups: NDArray[np.integer[Any]],
    n_groups: int,
    *,
    delta: float = 0.05,
    seed: int = 0,
    draws: int = 1000,
) -> tuple[ProjectionMetrics, ...]:
    """One entry a group; each family of intervals holds for all groups with samples simultaneously (Bonferroni)."""
    index = as_indices(groups, len(boundaries.positions), n_groups, "groups")
    level = delta / max(1, len(np.unique(index)))
    return tuple(
        projection_metrics(boundaries.take(np.flatnonzero(index == k)), delta=level, seed=seed, draws=draws)
        for k in range(n_groups)
    )


def count(tolerances: NDArray[Any]) -> Floats:
    """Cou (...,) of mean tolerances (..., D) along the last axis; NaN where all are 0.

    The measure is 0 when all dimensions are equally tolerant, and when all but one have none at all.
    """
    values = np.asarray(tolerances)
    most = values.max(axis=-1, keepdims=True)
    share = 1.0 - values / np.where(most > 0, most, 1.0)
    return np.where(most[..., 0] > 0, np.abs(xlogy(share, share).sum(axis=-1)), np.nan)


def bootstrap_means(values: Floats, *, seed: int, draws: int) -> Floats:
    """(draws, D) means of resamples with replacement of rows (S, D); a block of resamples is one matrix product."""
    size = len(values)
    source = np.random.default_rng([seed, size])
    rows = max(1, CELLS // size)
    blocks = [
        source.multinomial(size, np.full(size, 1.0 / size), min(rows, draws - first)) @ values / size
        for first in range(0, draws, rows)
    ]
    return np.concatenate(blocks)


def _cou_estimate(tolerances: Floats, delta: float, seed: int, draws: int) -> Estimate:
    value = float(count(tolerances.mean(axis=0)))
    if np.isnan(value):
        return Estimate(None, reason=NO_TOLERANCE)
    resampled = count(bootstrap_means(tolerances, seed=seed, draws=draws))
    kept = resampled[np.isfinite(resampled)]
    low, high = np.quantile(kept, [delta / 2.0, 1.0 - delta / 2.0]) if kept.size else (value, value)
    lost = draws - kept.size
    return Estimate(
        value,
        float(min(low, value)),
        float(max(high, value)),
        reason=f"{lost} of {draws} resamples have no tolerance" if lost else "",
    )


def _means(values: Floats, bounds: Floats, delta: float, seed: int) -> tuple[Estimate, ...]:
    """The mean of each column (S, D) in [0, bound_d], with intervals that hold for all columns simultaneously."""
    size, columns = values.shape
    box = simultaneous(
        (values / bounds).ravel(),
        np.tile(np.arange(columns), size),
        columns,
        bound=1.0,
        delta=delta,
        seed=seed,
    )
    return tuple(within_limits(float(values[:, d].mean()), float(bounds[d]), box, d) for d in range(columns))


def within_limits(mean: float, bound: float, box: Intervals, d: int) -> Estimate:
    low, high = min(float(box.low[d]) * bound, mean), max(float(box.high[d]) * bound, mean)
    vacuous = bool(box.vacuous[d])
    return Estimate(mean, low, high, "the interval covers the whole range" if vacuous else "", vacuous)
