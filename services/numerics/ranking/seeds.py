"""Several networks trained alike but for the seed, as one row: their mean, their spread, and how sure the mean is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from services.numerics.arguments import check_level, fault
from services.records import Estimate


@dataclass(frozen=True)
class Seeds:
    """n networks in one row.

    Attributes:
        mean: of the n values, with limits for another draw of samples and of seeds; see `over_seeds`.
        spread: standard deviation over the networks with n - 1 in the denominator; None for one network.
    """

    mean: Estimate
    spread: float | None


def over_seeds(
    networks: Sequence[Estimate], *, delta: float = 0.05, least: float = -np.inf, most: float = np.inf
) -> Seeds:
    """Mean and spread of a metric over networks that differ in the seed alone.

    The limits add two errors: ``mean(low) - q s / sqrt(n)`` and ``mean(high) + q s / sqrt(n)`` with ``s`` the spread
    and ``q`` the ``1 - delta / 2`` quantile of Student's t with ``n - 1`` degrees of freedom. The first part is the
    networks' own intervals, which do not shrink by averaging because the networks share their samples; the second is
    the choice of seeds, if values over seeds are about normal. With two seeds q is 12.7: two seeds say little.
    One network keeps its interval, and the row then says nothing of other seeds. The mean is undefined when one of the
    networks has no value, for the mean of the others would be of other networks.

    Args:
        least, most: the metric's range; limits beyond it are cut to it.

    Raises:
        MeasureError: no network.
    """
    check_level(delta, "delta")
    if not networks:
        raise fault("networks", "at least one", "none")
    values = [network.value for network in networks]
    if any(value is None for value in values):
        lacking = sum(value is None for value in values)
        reason = next(network.reason for network in networks if network.value is None)
        how_many = f"undefined for {lacking} of {len(values)} networks" if len(values) > 1 else ""
        return Seeds(Estimate(None, reason=": ".join(filter(None, (how_many, reason)))), None)
    if len(networks) == 1:
        return Seeds(networks[0], None)
    numbers = np.array(values)
    spread = float(numbers.std(ddof=1))
    margin = float(stdtrit(len(numbers) - 1, 1.0 - delta / 2.0)) * spread / np.sqrt(len(numbers))
    low, high = (_mean([getattr(network, side) for network in networks]) for side in ("low", "high"))
    low = None if low is None else max(least, low - margin)
    high = None if high is None else min(most, high + margin)
    return Seeds(Estimate(float(numbers.mean()), low, high), spread)


def _mean(limits: Sequence[float | None]) -> float | None:
    known = [limit for limit in limits if limit is not None]
    return float(np.mean(known)) if len(known) == len(limits) else None
