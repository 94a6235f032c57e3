"""False alarms and power of the check of class order, by simulation: ``python -m benchmarks.orders [--runs 1000]``."""

from __future__ import annotations

import argparse
import sys
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from services.numerics.class_order import Certainty, class_order

Ints = NDArray[np.int64]
Kind = Literal["even", "pairs", "cycles"]
Move = Literal["none", "swap", "rotation", "run"]
KINDS: tuple[Kind, ...] = ("even", "pairs", "cycles")
SIZES = (2, 10, 100, 1000, 5000)
PER_CLASS = (2, 5, 50)
ACCURACIES = (0.1, 0.2, 0.35, 0.5, 0.76, 0.95)
WRONG, POWER = 0.01, 0.99


def honest(rng: np.random.Generator, size: int, per_class: int, accuracy: float, kind: Kind) -> tuple[Ints, Ints]:
    """Labels and predictions of a network whose errors go everywhere evenly, to a partner, or to the next class.

    The partner gets all errors, but at most twice what the label gets (of two classes: as much): the most that
    confusion can be without being another class order by definition. The rest is spread evenly.
    """
    labels = np.repeat(np.arange(size), per_class)
    other = (labels + rng.integers(1, size, labels.size)) % size
    if kind != "even" and size > 2:
        partner = (labels ^ 1 if kind == "pairs" else labels + 1) % size
        mostly = rng.random(labels.size) < min(1.0, 2 * accuracy / (1 - accuracy))
        other = np.where(mostly & (partner != labels), partner, other)
    return labels, np.where(rng.random(labels.size) < accuracy, labels, other)


def permuted(rng: np.random.Generator, size: int, move: Move) -> Ints:
    """Another order of the classes: two swapped, all rotated, or a run of at least three rotated by one."""
    order = np.arange(size)
    if move == "swap":
        pair = rng.choice(size, 2, replace=False)
        order[pair] = order[pair[::-1]]
    elif move == "rotation":
        order = np.roll(order, int(rng.integers(1, size)))
    elif move == "run":
        start, stop = sorted(rng.choice(size + 1 - min(3, size), 2)) if size > 3 else (0, 0)
        stop += min(3, size)
        order[start:stop] = np.roll(order[start:stop], int(rng.choice([-1, 1])))
    return order


def rates(size: int, per_class: int, accuracy: float, kind: Kind, move: Move, *, times: int, seed: int = 0) -> float:
    """Share of simulated networks that are called permuted with certainty."""
    rng = np.random.default_rng(seed)
    called = 0
    for _ in range(times):
        labels, guess = honest(rng, size, per_class, accuracy, kind)
        found = class_order(labels, permuted(rng, size, move)[guess], size)
        called += found.certainty is Certainty.CERTAIN
    return called / times


def main() -> int:
    """Print the table; 1 when a false alarm or a miss is more frequent than promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="networks a setting; a tenth of it from 1,000 classes")
    runs = parser.parse_args().runs
    head = ["classes", "samples a class", "false alarms", "swapped pair", "rotation", "run by one"]
    print("| " + " | ".join(head) + " |\n" + "| --- " * len(head) + "|")
    broken = False
    for size in SIZES:
        for per_class in PER_CLASS:
            times = runs if size < 1000 else max(10, runs // 10)
            settings = [(kind, a) for kind in KINDS for a in ACCURACIES if size > 2 or a >= 0.5]
            alarms = [rates(size, per_class, a, kind, "none", times=times) for kind, a in settings]
            false = f"{round(sum(alarms) * times):,} of {len(alarms) * times:,}"
            moves: tuple[Move, ...] = ("swap", "rotation", "run")
            power = [min(rates(size, per_class, a, "even", m, times=times) for a in (0.8, 0.95)) for m in moves]
            cells = [f"{size:,}", str(per_class), false, *(f"{p:.1%}" for p in power)]
            print("| " + " | ".join(cells) + " |", flush=True)
            broken |= max(alarms) > WRONG or (per_class == 50 and min(power) < POWER)
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
