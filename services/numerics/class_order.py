"""Whether predictions speak for another class order than the labels', beyond what honest confusion explains."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.numerics.arguments import Ints, as_indices, fault

HONEST = 2 / 3
"""Largest share of a class's samples that an honest network gives to one other class, of those given to that class or
to its own: confusion may be twice as frequent as recognition. Of two classes it is 1/2, an accuracy at chance."""
LEVEL = 5e-3
"""Probability with which an honest network is called permuted, over all orders of the classes together."""
PLAUSIBLE = 0.5
"""Least accuracy on classes that move, in their new order, and least accuracy on the others relative to it: a network
in another order is good in that order, an attacked or weak one is good in none."""


class Certainty(StrEnum):
    """How sure another class order is."""

    NONE = "none"
    POSSIBLE = "possible"
    CERTAIN = "certain"


@dataclass(frozen=True, slots=True)
class ClassOrder:
    """How well a re-ordering of the model's classes explains its predictions.

    Attributes:
        moved: classes that the re-ordering moves, ascending.
        to: (len(moved),) the model's output for each of them.
        accuracy: share of samples that is right as it stands.
        explained: share that is right after the re-ordering.
        certainty: whether the evidence survives the correction for all orders that could have been looked at.
    """

    moved: tuple[int, ...]
    to: tuple[int, ...]
    accuracy: float
    explained: float
    certainty: Certainty


@dataclass(frozen=True, slots=True)
class _Move:
    """Classes and where they go, with the natural logarithm of the number of moves of its kind."""

    classes: Ints
    to: Ints
    log_kinds: float


@dataclass(frozen=True, slots=True)
class _Counts:
    """Sparse confusion counts: sorted codes ``label * K + predicted`` with how often each occurs."""

    codes: Ints
    counts: Ints
    size: int
    samples: Ints

    @property
    def honest(self) -> float:
        """Largest honest share of samples predicted as one other class."""
        return HONEST if self.size > 2 else 0.5

    def at(self, rows: Ints, columns: Ints) -> Ints:
        """Counts of (true class, predicted class), pair by pair."""
        if not len(self.codes):
            return np.zeros(len(rows), dtype=np.int64)
        wanted = rows * self.size + columns
        place = np.minimum(np.searchsorted(self.codes, wanted), len(self.codes) - 1)
        return np.where(self.codes[place] == wanted, self.counts[place], 0)


def class_order(
    labels: NDArray[np.integer[Any]], predicted: NDArray[np.integer[Any]], n_classes: int, *, level: float = LEVEL
) -> ClassOrder:
    """Look for an order of the classes that explains predictions (N,) of labels (N,) where honest confusion does not.

    Honest is a network that predicts no class k more than twice as often as another class j than as itself. Of the
    samples predicted as k or j, those predicted as j are then stochastically below Binomial(n, 2/3), and so are their
    sums over several classes; with two classes honest is an accuracy of at least 1/2. Looked at are cycles of classes
    that are mostly predicted as the next, and moves that happen to lists: rotations of all classes, of one run of
    classes by one, reversal, and names of numbers sorted as text. With Chernoff's bound on the binomial tail and a
    union over all cycles of a length (about K^m / m) and over all moves of a list (about K^2), an honest network is
    called permuted (`CERTAIN`) with probability at most `level`. `POSSIBLE` is what passes `level` without that union,
    and an order in which the network is not good either. Predictions of -1 (not finite) are left out.

    Raises:
        MeasureError: labels or predictions that are no classes.
    """
    guess = np.asarray(predicted)
    truth = as_indices(labels, guess.size, n_classes, "labels")
    if n_classes < 2:
        raise fault("n_classes", "at least two", str(n_classes))
    kept = guess >= 0
    truth, guess = truth[kept], as_indices(guess[kept], int(kept.sum()), n_classes, "predicted")
    codes, counts = np.unique(truth * n_classes + guess, return_counts=True)
    table = _Counts(codes, counts, n_classes, np.bincount(truth, minlength=n_classes))
    every = np.arange(n_classes)
    right, total = int(table.at(every, every).sum()), max(1, len(truth))
    lists, cycles = list(_list_moves(table)), list(_cycles(table))
    for certainty, speaks in ((Certainty.CERTAIN, _after_union), (Certainty.POSSIBLE, _alone)):
        spoken = [[move for move in moves if speaks(move, table, level)] for moves in (lists, cycles)]
        if any(spoken):
            return _result(_largest(spoken[0], spoken[1], table), table, right / total, certainty)
    return ClassOrder((), (), right / total, right / total, Certainty.NONE)


def _result(move: _Move, table: _Counts, accuracy: float, certainty: Certainty) -> ClassOrder:
    total = int(table.samples.sum())
    stay, moved = (int(table.at(move.classes, to).sum()) for to in (move.classes, move.to))
    here = int(table.samples[move.classes].sum())
    others, gained = total - here, moved / here
    if gained < PLAUSIBLE or (others and (accuracy * total - stay) / others < PLAUSIBLE * gained):
        certainty = Certainty.POSSIBLE
    explained = accuracy + (moved - stay) / total
    return ClassOrder(tuple(move.classes.tolist()), tuple(move.to.tolist()), accuracy, explained, certainty)


def _after_union(move: _Move, table: _Counts, level: float) -> bool:
    return _log_tail(move, table) + move.log_kinds < math.log(level / 2)


def _alone(move: _Move, table: _Counts, level: float) -> bool:
    return _log_tail(move, table) < math.log(level)


def _log_tail(move: _Move, table: _Counts) -> float:
    """Chernoff: ``log P(Binomial(n, q) >= moved) <= -n KL(moved / n, q)`` for n = moved + stay, q the honest share."""
    stay, moved = (int(table.at(move.classes, to).sum()) for to in (move.classes, move.to))
    n, honest = moved + stay, table.honest
    if moved <= honest * n:
        return 0.0
    rest = stay * math.log(stay / (n * (1 - honest))) if stay else 0.0
    return -(moved * math.log(moved / (n * honest)) + rest)


def _largest(lists: list[_Move], cycles: list[_Move], table: _Counts) -> _Move:
    """The move that puts most samples right; cycles share no class, so they count together."""
    if cycles:
        classes, to = (np.concatenate([getattr(cycle, side) for cycle in cycles]) for side in ("classes", "to"))
        order = np.argsort(classes)
        lists = [_Move(classes[order], to[order], 0.0), *lists]
    return max(lists, key=lambda move: int(table.at(move.classes, move.to).sum()))


# --- moves of a list ----------------------------------------------------------------------------------------------


def _list_moves(table: _Counts) -> Iterator[_Move]:
    """The best rotation, the best shifted run each way, the reversed list, and numbers sorted as text."""
    size = table.size
    log_kinds = math.log(size * (size + 1) + 3)
    every = np.arange(size)
    turns = np.bincount((table.codes % size - table.codes // size) % size, table.counts, minlength=size)
    turn = 1 + int(turns[1:].argmax())
    as_text = np.array(sorted(range(size), key=str))
    for to in ((every + turn) % size, every[::-1], as_text, np.argsort(as_text)):
        moved = np.flatnonzero((to != every) & (table.samples > 0))
        if moved.size:
            yield _Move(moved, to[moved], log_kinds)
    for step in (1, -1):
        yield from _run(table, step, log_kinds)


def _run(table: _Counts, step: int, log_kinds: float) -> Iterator[_Move]:
    """The run of classes that speaks most for each being its neighbour, and its last one the first."""
    every = np.arange(table.size)[::step]
    gain = table.at(every[:-1], every[1:]) - table.honest / (1 - table.honest) * table.at(every[:-1], every[:-1])
    edges = _best_run(gain)
    run = every[edges.start : edges.stop + 1]
    to = np.roll(run, -1)
    kept = np.argsort(run)[table.samples[np.sort(run)] > 0]
    if edges.stop > edges.start and kept.size:
        yield _Move(run[kept], to[kept], log_kinds)


def _best_run(gain: NDArray[np.float64]) -> slice:
    """The run of entries with the largest sum."""
    sums = np.concatenate([[0.0], np.cumsum(gain)])
    lowest = np.minimum.accumulate(sums)
    stop = int((sums - lowest).argmax())
    return slice(int(sums[: stop + 1].argmin()), stop)


# --- cycles -------------------------------------------------------------------------------------------------------


def _cycles(table: _Counts) -> Iterator[_Move]:
    """Cycles of classes that are predicted more often as the next one than as themselves or any other."""
    following = _most_frequent(table)
    visited = np.zeros(table.size, dtype=np.int64)
    for start in np.flatnonzero(following >= 0).tolist():
        path, k = [], start
        while k >= 0 and not visited[k]:
            visited[k] = start + 1
            path.append(k)
            k = int(following[k])
        if k >= 0 and visited[k] == start + 1:
            cycle = np.array(path[path.index(k) :])
            yield _Move(cycle, following[cycle], _log_cycles(table.size, len(cycle)))


def _most_frequent(table: _Counts) -> Ints:
    """(K,) the class that each class is mostly predicted as; -1 where that is itself or there are no samples."""
    rows, columns = table.codes // table.size, table.codes % table.size
    order = np.lexsort((columns, rows != columns, -table.counts, rows))
    present, first = np.unique(rows[order], return_index=True)
    best = np.full(table.size, -1)
    best[present] = columns[order][first]
    return np.where(best == np.arange(table.size), -1, best)


def _log_cycles(size: int, length: int) -> float:
    """Logarithm of the number of cycles of a length, times 2^length so that the union holds over all lengths."""
    orders = math.lgamma(size + 1) - math.lgamma(size - length + 1)
    return orders - math.log(length) + length * math.log(2)
