"""What is counted for each sample while it is under attack."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from services.measures.attacks.margins import Network, ascent, gradient, margins, passes


class Tally:
    """Counters of n samples, on the device of the attack; `rows` says which samples a batch of numbers belongs to.

    Attributes:
        queries: forward passes, (n,); not whole where an attack reports only its mean.
        slopes: input gradients taken, (n,).
        zeros: of these, the ones that are exactly zero in every pixel, (n,).
        margin: the smallest finite logit margin seen, (n,); infinite before the first pass.
        unreal: 1 once a logit was NaN or infinite, (n,).
        attacked: the class that a broken sample went to, (n,); -1 where there is none.
        points: the images that broke samples, (n, C, H, W), the clean image where none did; None unless they are kept.
    """

    def __init__(self, n: int, device: torch.device, points: torch.Tensor | None = None) -> None:
        self.queries = torch.zeros(n, dtype=torch.float64, device=device)
        self.slopes = torch.zeros(n, dtype=torch.int64, device=device)
        self.zeros = torch.zeros(n, dtype=torch.int64, device=device)
        self.margin = torch.full((n,), torch.inf, dtype=torch.float32, device=device)
        self.unreal = torch.zeros(n, dtype=torch.bool, device=device)
        self.attacked = torch.full((n,), -1, dtype=torch.int64, device=device)
        self.points = points

    def saw(self, rows: torch.Tensor, margin: torch.Tensor, counted: torch.Tensor | None = None) -> None:
        """One forward pass of `rows` with these margins (NaN for logits that are not finite).

        `counted` (m,) says which of them it is noted for; by default all.
        """
        if counted is None:
            counted = torch.ones_like(margin, dtype=torch.bool)
        self.queries[rows] += counted
        self.unreal[rows] |= margin.isnan() & counted
        self.margin[rows] = torch.fmin(self.margin[rows], torch.where(counted, margin.float(), torch.inf))

    def fell(self, rows: torch.Tensor, broken: torch.Tensor, rival: torch.Tensor, points: torch.Tensor) -> None:
        """Of `rows`, those that are `broken` (m,) went to the class `rival` (m,) at `points` (m, C, H, W)."""
        self.attacked[rows] = torch.where(broken, rival, self.attacked[rows])
        if self.points is not None:
            self.points[rows[broken]] = points.detach()[broken]

    def sloped(self, rows: torch.Tensor, slope: torch.Tensor, counted: torch.Tensor | None = None) -> None:
        """One input gradient (m, C, H, W) of `rows`, noted for those that are `counted`."""
        zero = slope.abs().amax(dim=(1, 2, 3)) == 0
        self.slopes[rows] += 1 if counted is None else counted
        self.zeros[rows] += zero if counted is None else zero & counted

    def columns(self) -> dict[str, NDArray[np.float64]]:
        """Extras of a score table, (n,) each, all finite.

        `zero_gradient` is the share of exactly zero input gradients (0 where none was taken); `margin` is 0 for a
        sample that never had finite logits, and `non_finite` marks it.
        """
        share = self.zeros.double() / self.slopes.clamp(min=1)
        margin = torch.where(self.margin.isfinite(), self.margin, 0.0).double()
        by_name = {"queries": self.queries, "zero_gradient": share, "margin": margin, "non_finite": self.unreal}
        return {name: values.cpu().numpy().astype(np.float64) for name, values in by_name.items()}


def margin_and_slope(
    network: Network, points: torch.Tensor, labels: torch.Tensor, tally: Tally, rows: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Margins (m,) at the points (m, C, H, W), and the gradient of their descent there; counted."""
    points = points.detach().requires_grad_()
    with torch.enable_grad():
        logits = passes(network, points)
    margin = margins(logits.detach(), labels)
    tally.saw(rows, margin)
    slope = gradient(logits, points, ascent(logits.detach(), labels, "margin"))
    tally.sloped(rows, slope)
    return margin, slope
