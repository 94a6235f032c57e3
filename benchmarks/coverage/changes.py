"""The same samples in two audits: limits of differences, p-values, the class that lost most, and families of flags."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.coverage.data import LEVELS, SLACK, Floats, stacked
from benchmarks.coverage.judge import Cell, cell
from services.numerics.change import Changes, changes, decide

SIZES = (1, 2, 3, 5, 30)


@dataclass(frozen=True)
class Pairs:
    """A score before and after: its values, and how likely each pair is."""

    name: str
    support: Floats
    chance: Floats

    @property
    def difference(self) -> float:
        """True mean difference."""
        return float((self.chance * (self.support[None, :] - self.support[:, None])).sum())

    @property
    def binary(self) -> bool:
        return bool(np.isin(self.support, (0.0, 1.0)).all())

    def draw(self, rng: np.random.Generator, size: tuple[int, ...]) -> tuple[Floats, Floats]:
        """Scores before and after, of this size."""
        flat = rng.choice(self.chance.size, size, p=self.chance.ravel())
        before, after = np.divmod(flat, self.support.size)
        return self.support[before], self.support[after]


def pairs(name: str, support: tuple[float, ...], chance: tuple[tuple[float, ...], ...]) -> Pairs:
    """Rows are the score before, columns the score after."""
    return Pairs(name, np.array(support), np.array(chance))


KINDS = (
    pairs("0 or 1, nothing changed", (0.0, 1.0), ((0.3, 0.0), (0.0, 0.7))),
    pairs("0 or 1, few flips either way", (0.0, 1.0), ((0.3, 0.02), (0.02, 0.66))),
    pairs("0 or 1, fair coins", (0.0, 1.0), ((0.25, 0.25), (0.25, 0.25))),
    pairs("all 0", (0.0, 1.0), ((1.0, 0.0), (0.0, 0.0))),
    pairs("0.2 up, 0.8 down at most", (0.0, 0.2, 0.8, 1.0), ((0, 0.4, 0, 0), (0, 0.5, 0, 0), (0.1, 0, 0, 0), (0,) * 4)),
    pairs("three values, alike", (0.0, 0.5, 1.0), ((0.1, 0.1, 0.1), (0.1, 0.2, 0.1), (0.1, 0.1, 0.1))),
)
"""None of them changes the mean."""
FALLS = pairs("0 or 1, one in ten is lost", (0.0, 1.0), ((0.2, 0.0), (0.1, 0.7)))
"""The mean falls by 0.1."""
WORST = (
    # class sizes, what became of each class
    ((1, 1, 1, 1), (KINDS[2], KINDS[5], KINDS[1], FALLS)),
    ((2, 3, 5, 2), (KINDS[2], KINDS[5], KINDS[1], FALLS)),
    ((1, 5, 30, 30), (KINDS[2], KINDS[5], KINDS[1], FALLS)),
    ((200, 200, 300), (KINDS[0], KINDS[0], FALLS)),
)


def cells(runs: int) -> Iterator[Cell]:
    """All of it."""
    for index, kind in enumerate((*KINDS, FALLS)):
        for n in SIZES:
            yield from of_one(kind, n, runs, np.random.default_rng([10, index, n]))
    for sizes, kinds in WORST:
        yield from of_worst(sizes, kinds, runs, np.random.default_rng([11, *sizes]))
    for n in SIZES:
        yield from of_family(n, runs, np.random.default_rng([12, n]))
    for half in (1, 5, 50):
        for moved in (0.1, 0.5, 1.0):
            yield from of_fixed_sizes(half, moved, runs, np.random.default_rng([13, half, int(10 * moved)]))


def of_one(kind: Pairs, n: int, runs: int, rng: np.random.Generator) -> Iterator[Cell]:
    """Limits of one mean difference, and, where it is 0, the p-values of both directions."""
    before, after = kind.draw(rng, (runs * n,))
    groups, setting = np.repeat(np.arange(runs), n), f"n = {n}, {kind.name}"
    for level in LEVELS:
        tests = changes(before, after, groups, runs, bound=1.0, alpha=level, binary=kind.binary)
        yield cell("a difference, lower limit", setting, level, tests.low > kind.difference + SLACK)
        yield cell("a difference, upper limit", setting, level, tests.high < kind.difference - SLACK)
        mixed = changes(before, after, groups, runs, bound=1.0, alpha=level, stratified=True)
        yield cell(
            "a difference, empirical Bernstein, lower limit", setting, level, mixed.low > kind.difference + SLACK
        )
        if kind is not FALLS:
            for test in (tests, mixed):
                yield cell(f'"worse" by {test.test}', setting, level, test.worse <= level)
                yield cell(f'"better" by {test.test}', setting, level, test.better <= level)


def of_worst(sizes: tuple[int, ...], kinds: tuple[Pairs, ...], runs: int, rng: np.random.Generator) -> Iterator[Cell]:
    """The class that lost most: the last, for the others did not change."""
    size, setting = len(sizes), f"classes of {', '.join(map(str, sizes))}"
    drawn = [kind.draw(rng, (runs, count)) for kind, count in zip(kinds, sizes, strict=True)]
    before, after = (np.concatenate([pair[side] for pair in drawn], axis=1).ravel() for side in (0, 1))
    groups = stacked(np.repeat(np.arange(size), sizes), size, runs)
    truth = min(kind.difference for kind in kinds)

    def limits(alpha: float) -> Changes:
        return changes(before, after, groups, size * runs, bound=1.0, alpha=alpha)

    for level in LEVELS:
        low, high = limits(level).low.reshape(runs, size), limits(level / size).high.reshape(runs, size)
        yield cell("largest loss of any class, lower limit", setting, level, low.min(axis=1) > truth + SLACK)
        yield cell("largest loss of any class, upper limit", setting, level, high.min(axis=1) < truth - SLACK)


def of_family(n: int, runs: int, rng: np.random.Generator) -> Iterator[Cell]:
    """One or more false flags among all classes and the whole of a 0/1 and of another score that depends on it."""
    worse, better = family(n, runs, rng, fall=False)
    setting = f"two scores of 6 classes of {n} and their whole"
    for level in LEVELS:
        flags = [decide(down, up, level) for down, up in zip(worse, better, strict=True)]
        wrong = [any(flag != "not separated" for flag, _ in run) for run in flags]
        yield cell("any false flag (Holm)", setting, level, wrong)


def family(n: int, runs: int, rng: np.random.Generator, *, fall: bool) -> tuple[Floats, Floats]:
    """p-values (runs, 14) of "worse" and "better"; with `fall`, class 5 alone loses a tenth of what it had right."""
    labels = np.repeat(np.arange(6), n)
    right = rng.random((2, runs, labels.size)) < np.linspace(0.3, 0.95, 6)[labels]
    if fall:
        right[1] = right[0] & ((labels != 5) | (rng.random((runs, labels.size)) > 0.1))
    other = right * rng.choice([0.5, 1.0], right.shape[1:] if fall else right.shape)
    results = []
    for scores, binary in ((right.astype(np.float64), True), (other, False)):
        for groups, count in ((stacked(labels, 6, runs), 6), (np.repeat(np.arange(runs), labels.size), 1)):
            before, after = scores.reshape(2, -1)
            results.append(changes(before, after, groups, count * runs, bound=1.0, alpha=0.001, binary=binary))
    return tuple(  # type: ignore[return-value]
        np.concatenate([getattr(each, side).reshape(runs, -1) for each in results], axis=1)
        for side in ("worse", "better")
    )


def of_fixed_sizes(half: int, moved: float, runs: int, rng: np.random.Generator) -> Iterator[Cell]:
    """The whole of two classes of fixed sizes of which one gains what the other loses: no two pairs of one mean.

    Empirical Bernstein asks for independence alone. Betting, which `paired` uses for the whole, asks for one mean; here
    it takes the pairs in a random order, and is reported.
    """
    before = np.tile(np.repeat([0.0, 1.0], half), (runs, 1))
    after = np.where(rng.random(before.shape) < moved, 1.0 - before, before)
    order = rng.permuted(np.tile(np.arange(2 * half), (runs, 1)), axis=1)
    before, after = (np.take_along_axis(x, order, axis=1).ravel() for x in (before, after))
    groups = np.repeat(np.arange(runs), 2 * half)
    setting = f"{half} + {half} fixed, {100 * moved:g} % of one rise and of the other fall"
    for level in LEVELS:
        for stratified in (True, False):
            tests = changes(before, after, groups, runs, bound=1.0, alpha=level, stratified=stratified)
            name = "a difference, class sizes fixed" + ("" if stratified else " (betting)")
            yield cell(f"{name}, lower limit", setting, level, tests.low > SLACK, exact=stratified)
            yield cell(f"{name}, upper limit", setting, level, tests.high < -SLACK, exact=stratified)
            if stratified:
                yield cell(f'"worse" by {tests.test}, class sizes fixed', setting, level, tests.worse <= level)
