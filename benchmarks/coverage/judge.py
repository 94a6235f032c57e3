"""Counts of misses, held to what was promised, and the tables of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from benchmarks.binomial import clopper_pearson

FALSE_ALARM = 1e-3
"""Chance that a run blames any promise though all miss exactly as often as allowed, shared by all settings."""


@dataclass(frozen=True)
class Cell:
    """One promise in one setting.

    Attributes:
        promise: which interval, bound or test.
        setting: the data.
        level: it misses with at most this probability.
        misses, runs: how often it missed, in how many data sets.
        exact: it promises this for the numbers of samples there are; others are reported and not held to it.
    """

    promise: str
    setting: str
    level: float
    misses: int
    runs: int
    exact: bool = True

    @property
    def rate(self) -> float:
        """Share of data sets in which it missed."""
        return self.misses / self.runs

    @property
    def p_value(self) -> float:
        """Chance of so many misses or more if it missed with probability `level`."""
        return float(binom.sf(self.misses - 1, self.runs, self.level))

    def __str__(self) -> str:
        low, high = clopper_pearson(self.misses, self.runs, 0.05)
        return f"{percent(self.rate)} ({percent(low)} to {percent(high)})"


def cell(promise: str, setting: str, level: float, missed: Iterable[bool] | np.ndarray, *, exact: bool = True) -> Cell:
    """A cell from one flag a data set."""
    flags = np.asarray(missed, dtype=bool)
    return Cell(promise, setting, level, int(flags.sum()), flags.size, exact)


def broken(cells: Sequence[Cell]) -> list[Cell]:
    """Promises that missed more often than `level`, by more than the simulation's own error."""
    held = [each for each in cells if each.exact]
    return [each for each in held if each.p_value < FALSE_ALARM / len(held)]


def percent(share: float) -> str:
    """Per cent with two digits that count."""
    return f"{100 * share:.2f}" if share < 0.1 else f"{100 * share:.1f}"


def table(cells: Sequence[Cell]) -> str:
    """Markdown: a row a promise, and for each level the worst of its settings with 95 % limits.

    † marks what is approximate or not proven, and so reported alone.
    """
    levels = sorted({each.level for each in cells})
    head = ["promise", "settings", "data sets each", *(f"{100 * level:g} % promised" for level in levels), "worst in"]
    lines = [head, ["---"] * len(head)]
    for promise in dict.fromkeys(each.promise for each in cells):
        mine = [each for each in cells if each.promise == promise]
        worst = {level: max(_at(mine, level), key=lambda each: each.rate, default=None) for level in levels}
        messages = [str(each or "") for each in worst.values()]
        close = max((each for each in worst.values() if each), key=lambda each: each.rate / each.level)
        runs = sorted({each.runs for each in mine})
        many = f"{runs[0]:,}" if len(runs) == 1 else f"{runs[0]:,} to {runs[-1]:,}"
        where = close.setting if close.misses else "–"
        name = promise if mine[0].exact else f"{promise} †"
        lines.append([name, str(len({each.setting for each in mine})), many, *messages, where])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _at(cells: Sequence[Cell], level: float) -> list[Cell]:
    return [each for each in cells if each.level == level]
