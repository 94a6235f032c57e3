"""Class means of the GREAT score as smooth curves over temperature, from sums at a few nodes.

A class sum is an analytic function of log T. A sigmoid margin has its nearest singularities pi / 2 from the real axis,
whatever the logits are; a softmax one where the partition function has a complex zero, for K classes no nearer than
``atan(pi / (2 log(K - 1)))``. So on each octave [T, 2 T] a Chebyshev interpolant in log T converges geometrically, at a
rate that depends neither on T nor on the number of samples. Ten nodes an octave for the sigmoid and sixteen for the
softmax keep the curve within 1e-6 of direct evaluation (with the softmax up to a thousand classes; 2e-6 at ten thousand
in the worst case, a single sample whose rivals all tie). Thousands of temperatures then cost one small matrix product.

Sums are additive over shards; nothing else travels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.numerics.arguments import Floats, Ints, check_temperature, fault
from services.numerics.great import (
    GREAT_BOUND,
    Activation,
    Logits,
    check_activation,
    check_logits,
    chunks,
    margins,
    sigmoid_margin,
)

ORDER: dict[Activation, int] = {"sigmoid": 10, "softmax": 16}
"""Nodes an octave."""

_ROOTS, _SQUARES = 2, 3
"""Temperatures reached from one exponential: 2 upwards by square roots, 3 downwards by squares, whose float32 relative
error grows to at most 8 units in the last place of a term."""

_NEGLIGIBLE = 20.0
"""Terms below exp(-20) / K are left out of a partition function of at least 1: an error below 3e-9."""

BLOCK = 1 << 16


@dataclass(frozen=True)
class TemperatureNodes:
    """Chebyshev nodes (first kind) in log T on octaves that cover [low, high].

    Attributes:
        low: lower end of the first octave.
        octaves: their number; the last one ends at ``low * 2 ** octaves >= high``.
        order: nodes an octave.
    """

    low: float
    octaves: int
    order: int

    @classmethod
    def covering(cls, low: float, high: float, *, activation: Activation) -> TemperatureNodes:
        """Nodes for temperatures in [low, high].

        Raises:
            MeasureError: temperatures that are not positive, or high <= low.
        """
        check_temperature(low)
        check_temperature(high)
        check_activation(activation)
        if high <= low:
            raise fault("high", f"a temperature above {low}", str(high))
        return cls(low, max(1, int(np.ceil(np.log2(high / low) - 1e-12))), ORDER[activation])

    @property
    def temperatures(self) -> Floats:
        """(octaves * order,) ascending; every octave is exactly twice the one before."""
        angles = (2.0 * np.arange(self.order) + 1.0) * np.pi / (2.0 * self.order)
        base = self.low * 2.0 ** (0.5 - 0.5 * np.cos(angles))
        return np.concatenate([base * 2.0**octave for octave in range(self.octaves)])

    def interpolation(self, temperatures: NDArray[Any]) -> Floats:
        """(n, octaves * order) matrix that maps values at the nodes to values at `temperatures` (n,), barycentric.

        Raises:
            MeasureError: a temperature outside the octaves.
        """
        place = np.log2(np.asarray(temperatures) / self.low)
        if place.size and not (place.min() > -1e-9 and place.max() < self.octaves + 1e-9):
            raise fault("temperatures", f"within [{self.low}, {self.low * 2.0**self.octaves}]", "others")
        octave = np.clip(np.floor(place), 0, self.octaves - 1).astype(np.int64)
        weights = self.barycentric(2.0 * (place - octave) - 1.0)
        matrix = np.zeros((place.size, self.octaves, self.order))
        matrix[np.arange(place.size), octave] = weights
        return matrix.reshape(place.size, self.octaves * self.order)

    def barycentric(self, points: NDArray[Any]) -> Floats:
        angles = (2.0 * np.arange(self.order) + 1.0) * np.pi / (2.0 * self.order)
        gaps = points[:, None] + np.cos(angles)[None, :]
        hit = np.abs(gaps) < 1e-14
        weights = np.sin(angles) * (-1.0) ** np.arange(self.order) / np.where(hit, 1.0, gaps)
        weights = np.where(hit.any(axis=1, keepdims=True), hit, weights)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def class_sums(
    logits: Logits,
    labels: NDArray[np.integer[Any]],
    n_classes: int,
    *,
    temperatures: NDArray[Any],
    activation: Activation,
) -> Floats:
    """(T, K) sums of GREAT scores by class at each temperature; shards add.

    The softmax takes its exponentials in float32 and its sums pairwise, the rest is float64: within 1e-6 of
    `great_scores` a sample. A sample's contribution does not depend on which others share its shard.

    Raises:
        MeasureError: as `great_scores`, or logits of another number of classes.
    """
    check_activation(activation)
    array, targets = check_logits(logits, labels)
    grid = np.asarray(temperatures)
    if grid.ndim != 1 or not (np.isfinite(grid).all() and (grid > 0).all()):
        raise fault("temperatures", "positive finite numbers, shape (T,)", f"shape {grid.shape}")
    if array.shape[1] != n_classes:
        raise fault("logits", f"{n_classes} classes", f"{array.shape[1]}")
    sums = np.zeros((grid.size, n_classes))
    for rows in chunks(*array.shape):
        split = margins(array[rows], targets[rows])
        kept = np.flatnonzero(split.correct)
        own, rival, classes = split.own[kept], split.rival[kept], targets[rows][kept]
        parts = None if activation == "sigmoid" else partition_functions(array[rows][kept], classes, grid)
        _add(sums, own, rival, parts, classes, grid)
    return np.asarray(GREAT_BOUND * sums)


def _add(sums: Floats, own: Floats, rival: Floats, parts: Floats | None, classes: Ints, grid: Floats) -> None:
    """Add the margins of correct samples (n,) at every temperature to `sums` (T, K), in place."""
    for i, temperature in enumerate(grid):
        if parts is None:
            margin = sigmoid_margin(own, rival, float(temperature))
        else:
            with np.errstate(over="ignore"):
                margin = -np.expm1((rival - own) / temperature) / parts[i]
        sums[i] += np.bincount(classes, weights=margin, minlength=sums.shape[1])


def partition_functions(logits: Logits, labels: Ints, temperatures: Floats) -> Floats:
    """(T, n) ``sum_j exp((z_j - z_y) / T)`` of correct samples' logits (n, K) with labels (n,).

    The label's own term is 1 and is added in float64: small terms would drown beside it in float32. Its place at the
    head of each row holds -inf instead, a term of 0 that no row ever loses.
    """
    out = np.empty((temperatures.size, labels.size))
    generations = generations_of(temperatures)
    step = max(1, BLOCK // logits.shape[1])
    for start in range(0, labels.size, step):
        block, own = logits[start : start + step], labels[start : start + step]
        line = np.arange(own.size)
        gaps = (block - block[line, own][:, None]).astype(np.float32)
        gaps[line, own] = gaps[:, 0]
        gaps[:, 0] = -np.inf
        _block_partitions(gaps, temperatures, generations, out[:, start : start + step])
    return out


def _block_partitions(gaps: NDArray[np.float32], grid: Floats, generations: list[list[Ints]], out: Floats) -> None:
    """Fill out (T, n) from gaps (n, K) <= 0; from generation to generation negligible terms are dropped for good."""
    limit = _NEGLIGIBLE + np.log(gaps.shape[1])
    starts, flat = np.arange(gaps.shape[0]) * gaps.shape[1], gaps.ravel()
    for chains in generations:
        kept = flat >= -limit * max(grid[chain[0]] for chain in chains)
        kept[starts] = True
        counts = np.add.reduceat(kept, starts)
        starts, flat = np.cumsum(counts) - counts, flat[kept]
        for chain in chains:
            for index, terms in walk_down(flat, chain, grid):
                out[index] = 1.0 + np.asarray(np.add.reduceat(terms, starts), dtype=np.float64)


def walk_down(flat: NDArray[np.float32], chain: Ints, grid: Floats) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yield exp(flat / T) along a chain of temperatures, each half the one before, from a single exponential."""
    middle = min(_ROOTS, chain.size - 1)
    terms = flat * np.float32(1.0 / grid[chain[middle]])
    np.exp(terms, out=terms)
    yield int(chain[middle]), terms
    root = terms if middle == 0 else np.sqrt(terms)
    for index in chain[:middle][::-1]:
        yield int(index), root
        if index != chain[0]:
            np.sqrt(root, out=root)
    for index in chain[middle + 1 :]:
        np.multiply(terms, terms, out=terms)
        yield int(index), terms


def generations_of(temperatures: Floats) -> list[list[Ints]]:
    """Chains of exactly halving temperatures, cut to a length that keeps float32 exact enough, hottest first.

    Generation g holds the g-th pieces of all chains, so a generation's largest temperature falls from one to the next.
    """
    order = np.argsort(-temperatures)
    places = {float(temperatures[i]): int(i) for i in order}
    length, generations = _ROOTS + 1 + _SQUARES, list[list[Ints]]()
    for i in order:
        if 2.0 * float(temperatures[i]) in places and places[float(temperatures[i])] == i:
            continue
        chain = [int(i)]
        while (below := places.get(float(temperatures[chain[-1]]) / 2.0)) is not None and below not in chain:
            chain.append(below)
        for g, start in enumerate(range(0, len(chain), length)):
            generations.extend([] for _ in range(g + 1 - len(generations)))
            generations[g].append(np.array(chain[start : start + length]))
    return sorted(generations, key=lambda chains: -max(float(temperatures[chain[0]]) for chain in chains))


@dataclass(frozen=True)
class ClassCurve:
    """One model's class means as functions of temperature.

    Attributes:
        nodes: where the sums were taken.
        sums: (T, K) sums of scores at the nodes.
        counts: (K,) samples a class.
        correct: (K,) correctly classified samples a class.
    """

    nodes: TemperatureNodes
    sums: Floats
    counts: Ints
    correct: Ints

    @classmethod
    def from_logits(
        cls,
        logits: Logits,
        labels: NDArray[np.integer[Any]],
        n_classes: int,
        *,
        nodes: TemperatureNodes,
        activation: Activation,
    ) -> ClassCurve:
        """The curve of one shard: logits (N, K), labels (N,)."""
        array, targets = check_logits(logits, labels)
        sums = class_sums(array, targets, n_classes, temperatures=nodes.temperatures, activation=activation)
        parts = [margins(array[rows], targets[rows]).correct for rows in chunks(*array.shape)]
        right = targets[np.concatenate(parts)] if parts else targets
        counts, correct = (np.bincount(t, minlength=n_classes).astype(np.int64) for t in (targets, right))
        return cls(nodes, sums, counts, correct)

    @classmethod
    def merge(cls, curves: Iterable[ClassCurve]) -> ClassCurve:
        """The curve of all shards together.

        Raises:
            MeasureError: nothing to merge, or shards taken at different nodes.
        """
        parts = list(curves)
        if not parts or any(part.nodes != parts[0].nodes for part in parts):
            raise fault("curves", "at least one shard, all at the same nodes", f"{len(parts)} shards")
        sums, counts, correct = (
            np.sum([getattr(part, name) for part in parts], axis=0) for name in ("sums", "counts", "correct")
        )
        return cls(parts[0].nodes, sums, counts, correct)

    @property
    def defined(self) -> NDArray[np.bool_]:
        """(K,) the class has samples."""
        return self.counts > 0

    @property
    def accuracies(self) -> Floats:
        """(defined classes,) clean accuracy of each class that has samples."""
        return np.asarray(self.correct[self.defined] / self.counts[self.defined])

    @property
    def accuracy(self) -> float | None:
        """Clean accuracy of all samples; None without samples."""
        return float(self.correct.sum() / self.counts.sum()) if self.counts.sum() else None

    def means(self, temperatures: NDArray[Any]) -> Floats:
        """(n, defined classes) class means in [0, sqrt(pi / 2)] at `temperatures` (n,)."""
        at_nodes = self.sums[:, self.defined] / self.counts[self.defined]
        return np.clip(self.nodes.interpolation(temperatures) @ at_nodes, 0.0, GREAT_BOUND)

    def aggregate(self, temperatures: NDArray[Any]) -> Floats:
        """(n,) mean over all samples at `temperatures` (n,)."""
        return np.asarray(self.means(temperatures) @ (self.counts[self.defined] / max(1, self.counts.sum())))


@dataclass(frozen=True)
class GroupedCurve:
    """The curves of G random groups of one model's samples, from which whole samples are drawn again.

    A group takes each sample by its id alone, so shards may be cut anywhere.
    """

    groups: tuple[ClassCurve, ...]

    @classmethod
    def from_logits(
        cls,
        logits: Logits,
        labels: NDArray[np.integer[Any]],
        ids: Ints,
        n_classes: int,
        *,
        groups: int,
        nodes: TemperatureNodes,
        activation: Activation,
    ) -> GroupedCurve:
        """The curves of one shard: logits (N, K), labels and ids (N,)."""
        group = group_of(ids, groups)
        parts = [group == g for g in range(groups)]
        return cls(
            tuple(
                ClassCurve.from_logits(logits[rows], labels[rows], n_classes, nodes=nodes, activation=activation)
                for rows in parts
            )
        )

    @classmethod
    def merge(cls, curves: Iterable[GroupedCurve]) -> GroupedCurve:
        """The curves of all shards together."""
        return cls(tuple(ClassCurve.merge(parts) for parts in zip(*(curve.groups for curve in curves), strict=True)))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Groups and classes in one axis: `sums` (T, G K), `counts` and `correct` (G K,)."""
        return {
            "sums": np.concatenate([part.sums for part in self.groups], axis=1),
            "counts": np.concatenate([part.counts for part in self.groups]),
            "correct": np.concatenate([part.correct for part in self.groups]),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], nodes: TemperatureNodes, groups: int) -> GroupedCurve:
        """What `arrays` gave."""
        sums = np.split(arrays["sums"], groups, axis=1)
        counts, correct = (np.split(arrays[name], groups) for name in ("counts", "correct"))
        return cls(tuple(ClassCurve(nodes, *part) for part in zip(sums, counts, correct, strict=True)))

    @property
    def whole(self) -> ClassCurve:
        """The curve of all samples."""
        return ClassCurve.merge(self.groups)

    def resampled(self, draw: np.random.Generator) -> ClassCurve:
        """The curve of G groups drawn with replacement, in each class by itself."""
        count, classes = len(self.groups), self.groups[0].counts.size
        weights = draw.multinomial(count, np.full(count, 1.0 / count), size=classes).T
        counts, correct = ((weights * self._stacked(name)).sum(axis=0) for name in ("counts", "correct"))
        sums = np.einsum("gk,gtk->tk", weights, self._stacked("sums"))
        return ClassCurve(self.groups[0].nodes, sums, counts, correct)

    def _stacked(self, name: str) -> NDArray[Any]:
        return np.stack([getattr(part, name) for part in self.groups])


def group_of(ids: Ints, groups: int) -> Ints:
    """(N,) the group of each sample: the high bits of its id times the golden ratio (Knuth's multiplicative hash)."""
    mixed = (np.asarray(ids).astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    return ((mixed * np.uint64(0xBF58476D1CE4E5B9) >> np.uint64(32)) % np.uint64(groups)).astype(np.int64)
