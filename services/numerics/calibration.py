"""Which temperature? Four policies and what a reader must know before trusting the answer (GF 3.4).

* ``fixed``: the temperature given.
* ``fleet-accuracy``: Definition 6 as printed, ``argmax_T Spearman_m(Omega^(T)(f_m), accuracy(f_m))`` over M models.
* ``class-accuracy``: what GF's published T* = 2.70 and 0.871 come from, ``argmax_T mean_m Spearman_k(Omega_k^(T)(f_m),
  accuracy_k(f_m))``.
* ``ranking-stability``: eq. 9, ``argmax_T mean_m min_{|T' - T| <= d} Spearman_k(Omega_k^(T)(f_m),
Omega_k^(T')(f_m))``, the
  mean over models as in the published code. The inner minimum is taken over T +/- d and T +/- d/2.

As T -> 0 a score tends to B * accuracy, so any policy that correlates scores with accuracies is drawn to small T.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from services.numerics.arguments import Floats, check_temperature, fault
from services.numerics.great import Activation
from services.numerics.ranking.ranks import spearman, spearman_rows
from services.numerics.temperature import ClassCurve, GroupedCurve, TemperatureNodes
from services.records import CalibrationResult, Estimate

Policy = Literal["fixed", "fleet-accuracy", "class-accuracy", "ranking-stability"]
POLICIES: tuple[Policy, ...] = ("fixed", "fleet-accuracy", "class-accuracy", "ranking-stability")

_SAME = 1e-9
"""Objectives this close are equal: rank correlations move in far larger steps."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Temperatures searched: [low, high] by `step`, then around the best one by `fine_step`.

    Attributes:
        window: coarse steps on either side of the best one that the fine search covers.
        neighbourhood: d of ranking-stability.
    """

    low: float = 0.01
    high: float = 10.0
    step: float = 0.1
    fine_step: float = 0.001
    window: int = 5
    neighbourhood: float = 0.05

    def nodes(self, activation: Activation, *, also: float = 1.0) -> TemperatureNodes:
        """The nodes from which every temperature of the grid, T = 1 and `also` can be interpolated."""
        ends = (self.low, self.high, 1.0, also)
        return TemperatureNodes.covering(min(ends), max(*ends, 1.0001 * min(ends)), activation=activation)

    def coarse(self) -> Floats:
        """low, low + step, ..., and high itself."""
        if not (0.0 < self.low < self.high and self.step > 0.0 and self.fine_step > 0.0):
            raise fault("grid", "0 < low < high and positive steps", str(self))
        return self._between(self.low, self.high, self.step)

    def fine(self, best: float) -> Floats:
        """The neighbourhood of `best` by `fine_step`."""
        reach = self.window * self.step
        return self._between(max(self.low, best - reach), min(self.high, best + reach), self.fine_step)

    @staticmethod
    def _between(low: float, high: float, step: float) -> Floats:
        count = int(np.floor((high - low) / step)) + 1
        return np.unique(np.append(np.round(low + step * np.arange(count), 12), high))


def fleet_accuracy(curves: Sequence[ClassCurve], temperatures: Floats, grid: Grid) -> Floats:
    """(n,) Spearman over models of aggregate score and clean accuracy; NaN where one of them is constant."""
    scores = np.stack([curve.aggregate(temperatures) for curve in curves], axis=1)
    return spearman_rows(scores, np.array([curve.accuracy for curve in curves])[None, :])


def class_accuracy(curves: Sequence[ClassCurve], temperatures: Floats, grid: Grid) -> Floats:
    """(n,) mean over models of Spearman over classes of score and accuracy; models where it is undefined stay out."""
    return mean_defined([spearman_rows(c.means(temperatures), c.accuracies[None, :]) for c in curves])


def ranking_stability(curves: Sequence[ClassCurve], temperatures: Floats, grid: Grid) -> Floats:
    """(n,) mean over models of the smallest Spearman between class scores at T and at its neighbours."""
    return mean_defined([stability_of(curve, temperatures, grid) for curve in curves])


def stability_of(curve: ClassCurve, temperatures: Floats, grid: Grid) -> Floats:
    here = curve.means(temperatures)
    shifts = grid.neighbourhood * np.array([-1.0, -0.5, 0.5, 1.0])
    near = [curve.means(np.clip(temperatures + shift, grid.low, grid.high)) for shift in shifts]
    return np.asarray(np.min([spearman_rows(here, there) for there in near], axis=0))


def mean_defined(rows: list[Floats]) -> Floats:
    table = np.array(rows)
    known = ~np.isnan(table)
    out = np.full(table.shape[1], np.nan)
    np.divide(np.where(known, table, 0.0).sum(axis=0), known.sum(axis=0), out=out, where=known.any(axis=0))
    return out


Objective = Callable[[Sequence[ClassCurve], Floats, Grid], Floats]
_OBJECTIVES: dict[str, Objective] = {
    "fleet-accuracy": fleet_accuracy,
    "class-accuracy": class_accuracy,
    "ranking-stability": ranking_stability,
}


def calibrate(
    policy: Policy,
    curves: Sequence[ClassCurve],
    *,
    grid: Grid | None = None,
    reference: Sequence[float | None] = (),
    temperature: float = 1.0,
) -> CalibrationResult:
    """Choose a temperature for a fleet of M models and say how far to trust it.

    Args:
        curves: one a model, at nodes that cover the grid and T = 1 (`Grid.nodes`).
        grid: default: Definition 6's, 0.01..10 by 0.1, then by 0.001. GF's published run: 0.1..3.0 by 0.05, then 0.005.
        reference: M robust accuracies, None where a model declares none; () when none does.
        temperature: the answer of "fixed".

    Returns:
        The smallest temperature that reaches the best objective, its plateau (the stretch of the grid around it that
        keeps that value), whether the plateau touches the grid's edge, and the rank correlations with the reference.
        Undefined with a reason when the policy has too little to go by.

    Raises:
        MeasureError: an unknown policy, a malformed grid, or a reference of another length.
    """
    if policy not in POLICIES:
        raise fault("policy", f"one of {', '.join(POLICIES)}", repr(policy))
    if reference and len(reference) != len(curves):
        raise fault("reference", f"{len(curves)} values, one a model", str(len(reference)))
    search = grid or Grid()
    if policy == "fixed":
        check_temperature(temperature)
        return _report(CalibrationResult(policy, temperature), curves, reference)
    reason = _too_little(policy, curves)
    if reason:
        return CalibrationResult(policy, None, reason=reason)
    return _report(_search(policy, curves, search), curves, reference)


RESAMPLES = 200


def resampled_range(
    policy: Policy, curves: Sequence[GroupedCurve], *, grid: Grid, seed: int = 0, level: float = 0.95
) -> tuple[float, float] | None:
    """Between which temperatures other samples of this size would choose: percentiles of `RESAMPLES` bootstrap draws.

    Groups of samples are drawn with replacement within each class, for all models the same way, for they share their
    samples; each draw chooses by the coarse grid alone, so ends are known to its step. None where nothing can be drawn
    (one group), for the policy "fixed", or where fewer than half of the draws define a choice.
    """
    if policy == "fixed" or not curves or len(curves[0].groups) < 2:
        return None
    coarse, chosen = grid.coarse(), []
    for number in range(RESAMPLES):
        drawn = [curve.resampled(np.random.default_rng([seed, number])) for curve in curves]
        if _too_little(policy, drawn):
            continue
        values = _OBJECTIVES[policy](drawn, coarse, grid)
        if not np.isnan(values).all():
            chosen.append(float(coarse[np.flatnonzero(values >= np.nanmax(values) - _SAME)[0]]))
    if len(chosen) < RESAMPLES / 2:
        return None
    low, high = np.quantile(chosen, [(1 - level) / 2, (1 + level) / 2], method="inverted_cdf")
    return float(low), float(high)


def _too_little(policy: Policy, curves: Sequence[ClassCurve]) -> str:
    if not curves or any(not curve.counts.sum() for curve in curves):
        return "a model has no samples" if curves else "there are no models"
    if policy == "fleet-accuracy":
        if len(curves) < 3:
            return f"a rank correlation over models needs at least 3, there are {len(curves)}"
        if len({curve.accuracy for curve in curves}) == 1:
            return "all models have the same clean accuracy"
        return ""
    classes = max(int(curve.defined.sum()) for curve in curves)
    return f"a rank correlation over classes needs at least 3, there are {classes}" if classes < 3 else ""


def _search(policy: Policy, curves: Sequence[ClassCurve], grid: Grid) -> CalibrationResult:
    objective, coarse = _OBJECTIVES[policy], grid.coarse()
    values = objective(curves, coarse, grid)
    if np.isnan(values).all():
        return CalibrationResult(policy, None, reason="scores or accuracies are all alike at every temperature")
    fine = grid.fine(float(coarse[int(np.nanargmax(values))]))
    every, first = np.unique(np.concatenate([coarse, fine]), return_index=True)
    curve = np.concatenate([values, objective(curves, fine, grid)])[first]
    best = int(np.flatnonzero(curve >= np.nanmax(curve) - _SAME)[0])
    left, right = plateau_around(curve, best)
    return CalibrationResult(
        policy,
        float(every[best]),
        objective=float(curve[best]),
        at_edge=left == 0 or right == every.size - 1,
        plateau=(float(every[left]), float(every[right])),
        best_share=float(np.mean(values >= np.nanmax(curve) - _SAME)),
        grid=tuple(float(t) for t in every),
        curve=tuple(None if np.isnan(v) else float(v) for v in curve),
    )


MANY = 0.05
"""A share of the grid from which equal choices are worth a sentence."""


def plateau_around(curve: Floats, best: int) -> tuple[int, int]:
    left = right = best
    same = np.abs(curve - curve[best]) <= _SAME
    while left > 0 and same[left - 1]:
        left -= 1
    while right < curve.size - 1 and same[right + 1]:
        right += 1
    return left, right


def _report(
    result: CalibrationResult, curves: Sequence[ClassCurve], reference: Sequence[float | None]
) -> CalibrationResult:
    """Add the correlations with the reference ranking, and the sentences a reader needs."""
    if result.temperature is None:
        return result
    known = [
        (c, r)
        for c, r in zip(curves, reference or [None] * len(curves), strict=True)
        if r is not None and c.accuracy is not None
    ]
    truth = np.array([r for _, r in known])
    temperatures = np.array([result.temperature, 1.0])
    scores = np.array([curve.aggregate(temperatures) for curve, _ in known]).reshape(len(known), 2)
    after, before = (spearman(scores[:, column], truth) for column in (0, 1))
    alone = spearman(np.array([curve.accuracy for curve, _ in known]), truth)
    return CalibrationResult(
        result.policy,
        result.temperature,
        objective=result.objective,
        at_edge=result.at_edge,
        plateau=result.plateau,
        best_share=result.best_share,
        reference=after.value,
        reference_before=before.value,
        reference_accuracy=alone.value,
        grid=result.grid,
        curve=result.curve,
        notes=calibration_notes(result, after, before, alone, len(known)),
    )


def calibration_notes(
    result: CalibrationResult, after: Estimate, before: Estimate, alone: Estimate, models: int
) -> tuple[str, ...]:
    """The plain sentences of a calibration: edge, plateau, and what it does to the reference ranking."""
    notes = []
    if result.plateau and result.plateau[1] > result.plateau[0]:
        notes.append(
            f"The objective keeps its best value from T = {result.plateau[0]:g} to {result.plateau[1]:g}: "
            f"T = {result.temperature:g} is one of many equal choices."
        )
    if result.best_share is not None and result.best_share >= MANY:
        notes.append(f"It has that value on {100 * result.best_share:.0f} % of the grid, there and elsewhere.")
    if result.at_edge:
        notes.append("The best temperature reaches the edge of the grid: the grid chose it, not the objective.")
    if after.value is None:
        notes.append(f"No reference ranking was checked: {models} models declare a robust accuracy; {after.reason}.")
        return tuple(notes)
    if before.value is not None and after.value < before.value - _SAME:
        notes.append(
            "Calibration lowers the rank correlation with the reference robust accuracies "
            f"from {before.value:.3f} to {after.value:.3f}."
        )
    if alone.value is not None and alone.value > after.value + _SAME:
        notes.append(
            f"Clean accuracy alone ranks closer to the reference ({alone.value:.3f}) "
            f"than the scores do ({after.value:.3f})."
        )
    return tuple(notes)
