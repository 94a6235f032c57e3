"""The exact binomial verdict of BIN at a failure level kappa, made valid under monitoring."""

from __future__ import annotations

from typing import Literal

from services.measures.probabilistic import VerdictMeasure
from services.measures.sampling.parameters import Rate

SIL_BANDS: tuple[tuple[int, float, float], ...] = ((4, 1e-5, 1e-4), (3, 1e-4, 1e-3), (2, 1e-3, 1e-2), (1, 1e-2, 1e-1))
"""IEC 61508-1 table 2, low demand mode: (level, from, below) of the average probability of failure on demand."""


def sil_band(kappa: float) -> str:
    """The band in which a system lies whose failure probability is certified below kappa: "SIL 2" for kappa = 1e-2.

    A name for the order of magnitude, not a certification: the standard asks far more than this number. A bound of 0.1
    reaches SIL 1, one above 0.1 "below SIL 1"; a bound at or below 1e-5 "beyond SIL 4", as the table ends there.
    """
    if kappa <= SIL_BANDS[0][1]:
        return "beyond SIL 4"
    return next((f"SIL {level}" for level, _, below in SIL_BANDS if kappa <= below), "below SIL 1")


class Binomial(VerdictMeasure):
    """Is the failure probability below kappa? A verdict per sample at level alpha under continuous monitoring.

    BIN repeats the exact test after every draw, which errs in far more than alpha of the runs; here the stopping
    boundary of `services.numerics.intervals.sequential` takes its place, with the same data and question. Zero
    failures certify kappa after about 1.3 times the draws that one single look would need: 3,800 for 1e-3, 379,000 for
    1e-5; `max_draws` left out means 100 / kappa. Titles name the IEC 61508 band of kappa. Series and columns as
    `probacc`. For kappa below 1e-4 the measure `rare` estimates with thousands of passes, without a certificate.
    """

    name: Literal["binomial"] = "binomial"
    kappa: Rate = 1e-2

    @property
    def threshold(self) -> float:
        return self.kappa

    def stem(self, radius: float) -> str:
        return f"binomial/{self.label(radius)}/kappa-{self.kappa:.4g}"

    def claim(self) -> str:
        return f"failure probability < {self.kappa:.4g} [{sil_band(self.kappa)}]"
