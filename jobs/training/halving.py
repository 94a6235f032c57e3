"""Successive halving of a sweep: after a few epochs the weaker part of it stops, and again after some more.

Jamieson and Talwalkar 2016, as in Algorithm 1 of Li et al. 2018 (Hyperband) with one bracket: at each rung the best
``1 / factor`` of the combinations go on. All are compared at the same epoch, so that what stops is a function of the
sweep file. ASHA (Li et al. 2020), and so Ray Tune's scheduler, decides as trials arrive: it keeps workers busier where
there are more of them than trials that go on, and stops others in another run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal

from jobs.training.sweep_tree import HalvingConfig
from jobs.training.sweepfile import Trial, label_of
from services.records.trials import EpochPoint

By = Literal["clean", "robust", "worst-class"]


def rungs(config: HalvingConfig | None, trials: Sequence[Trial]) -> list[int]:
    """Epochs after which combinations are compared: first, first * factor, ..., below the most of any trial."""
    ends: list[int] = []
    most = max((trial.recipe.epochs for trial in trials), default=0)
    while config is not None and (at := config.first * config.factor ** len(ends)) < most:
        ends.append(at)
    return ends


def stopped(
    config: HalvingConfig, rung: int, trials: Sequence[Trial], points: Mapping[str, Sequence[EpochPoint]]
) -> dict[str, str]:
    """Trials that stop at a rung, each with the reason.

    A combination is a method with an architecture on a data set; its score is the mean over its seeds of the best
    held-out score within the rung's epochs. Of each data set's combinations ``ceil(n / factor)`` go on; those that have
    ended by themselves count, and of equal ones the first in the sweep file goes on.

    Args:
        trials: those that were not stopped before.
        points: their epochs so far by name; a trial without any has no score, and its combination is the last.
    """
    sets: dict[str, dict[tuple[str, str], list[Trial]]] = defaultdict(dict)
    for trial in trials:
        pair = trial.method.label, label_of(trial.architecture)
        sets[label_of(trial.dataset)].setdefault(pair, []).append(trial)
    reasons: dict[str, str] = {}
    for combinations in sets.values():
        means = {pair: _mean(config.by, rung, seeds, points) for pair, seeds in combinations.items()}
        ranked = sorted(combinations, key=lambda pair: -means[pair])
        kept = -(-len(ranked) // config.factor)
        for place, pair in enumerate(ranked[kept:], kept + 1):
            shown = f"held-out {config.by} accuracy {means[pair]:.3f} after {rung} epochs is number {place}"
            reason = f"{shown} of {len(ranked)}, and {kept} went on (halving)"
            reasons |= {trial.name: reason for trial in combinations[pair] if trial.recipe.epochs > rung}
    return reasons


def _mean(by: By, rung: int, seeds: Sequence[Trial], points: Mapping[str, Sequence[EpochPoint]]) -> float:
    best = [max((_score(by, point) for point in points.get(trial.name, ())[:rung]), default=-1.0) for trial in seeds]
    return sum(best) / len(best)


def _score(by: By, point: EpochPoint) -> float:
    held = point.validation
    value = None if held is None else {"clean": held.clean, "robust": held.robust}.get(by, held.worst_class)
    return -1.0 if value is None else value
