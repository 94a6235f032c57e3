"""What guards the numbers of `services.numerics`: each ratio is measured against its peer in the same run.

Run from the repository: ``python -m benchmarks.numerics`` (about two minutes; ``--quick`` leaves out the ImageNet-sized
calibration). Data are synthetic and seeded; nothing is read or written.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from benchmarks.coverage.joined import one_sided
from services.numerics.calibration import POLICIES, Grid, calibrate
from services.numerics.disparity import nrgc
from services.numerics.great import GREAT_BOUND, Activation, great_scores
from services.numerics.intervals.disparity import nrgc_range
from services.numerics.intervals.means import Method, simultaneous
from services.numerics.profile import Profile
from services.numerics.temperature import ClassCurve

FAILED: list[str] = []
METHODS: tuple[Method, ...] = ("hoeffding", "empirical-bernstein", "betting")


def check(name: str, value: float, limit: float, *, at_least: bool = False) -> None:
    """Print one guarded number, and remember it when it misses its limit."""
    kept = value >= limit if at_least else value <= limit
    FAILED.extend([] if kept else [name])
    print(f"{'ok  ' if kept else 'MISS'} {name}: {value:.4g} ({'at least' if at_least else 'at most'} {limit:g})")


def best_time(call: Callable[[], object], repeats: int) -> float:
    """Smallest CPU seconds of one call."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def fleet(models: int, n: int, k: int, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Float32 logits (n, k) of models of rising accuracy, and labels."""
    out = []
    for index in range(models):
        rng = np.random.default_rng([seed, index])
        labels = np.arange(n) % k
        logits = rng.normal(scale=2.0, size=(n, k)).astype(np.float32)
        logits[np.arange(n), labels] += rng.uniform(3, 6 + 0.3 * index, n).astype(np.float32) + np.log(k / 10)
        out.append((logits, labels))
    return out


def published_way(logits: np.ndarray, labels: np.ndarray, k: int) -> np.ndarray:
    """Class means the way of the published code: activations at once, then a Python loop over samples."""
    probabilities = 1.0 / (1.0 + np.exp(-logits))
    predictions = logits.argmax(axis=1)
    scores = np.zeros(len(labels))
    for i in range(len(labels)):
        others = np.ones(k, dtype=bool)
        others[labels[i]] = False
        gap = probabilities[i, labels[i]] - probabilities[i, others].max()
        scores[i] = GREAT_BOUND * gap if gap > 0 else 0.0
    means = []
    for c in range(k):
        kept = scores[labels == c]
        means.append((np.mean(kept), np.std(kept, ddof=1), np.mean(predictions[labels == c] == c)))
    return np.array(means)[:, 0]


def naive_way(logits: np.ndarray, labels: np.ndarray, k: int) -> np.ndarray:
    """Class means sample by sample, activation included."""
    sums, counts = np.zeros(k), np.zeros(k)
    for z, y in zip(logits, labels, strict=True):
        s = 1.0 / (1.0 + np.exp(-z))
        sums[y] += GREAT_BOUND * max(s[y] - np.delete(s, y).max(), 0.0)
        counts[y] += 1
    return np.asarray(sums / counts)


def scoring() -> None:
    logits, labels = fleet(1, 10_000, 10)[0]

    def ours() -> np.ndarray:
        scores = great_scores(logits, labels, temperature=1.0, activation="sigmoid").scores
        return Profile.from_scores(scores, labels, 10, bound=GREAT_BOUND).means

    mine = best_time(lambda: [ours() for _ in range(20)], 10) / 20
    published = best_time(lambda: published_way(logits, labels, 10), 3)
    naive = best_time(lambda: naive_way(logits, labels, 10), 3)
    check("class means: largest deviation from the loop", np.abs(ours() - naive_way(logits, labels, 10)).max(), 1e-6)
    print(f"     10,000 x 10 logits to profiles: {mine * 1e3:.2f} ms, loop {naive * 1e3:.0f} ms")
    print(
        f"     the published loop over ready-made activations: {published * 1e3:.0f} ms, {published / mine:.0f} times"
    )
    check("scoring: times faster than the per-sample loop", naive / mine, 200, at_least=True)


def gini() -> None:
    means = np.random.default_rng(0).beta(2, 3, 1000)
    square = lambda: np.abs(means[:, None] - means[None, :]).sum() / (2 * 1000**2 * means.mean())  # noqa: E731
    mine = best_time(lambda: [nrgc(means) for _ in range(200)], 5) / 200
    check("NRGC, K = 1000: milliseconds", mine * 1e3, 1.0)
    print(f"     by all pairs: {best_time(square, 5) * 1e3:.2f} ms")
    check("NRGC: deviation from all pairs", abs((nrgc(means) or 0.0) - square()), 1e-12)
    low, high = np.maximum(means - 0.1, 0), means + 0.1
    print(f"     range of NRGC over a box, K = 1000: {best_time(lambda: nrgc_range(low, high), 5) * 1e3:.1f} ms")


def deviation(curve: ClassCurve, logits: np.ndarray, labels: np.ndarray, activation: Activation) -> float:
    """Largest difference of a class mean from direct evaluation, on a sample of the grid."""
    worst = 0.0
    for temperature in (0.01, 0.11, 0.7, 1.0, 2.71, 10.0):
        scores = great_scores(logits, labels, temperature=temperature, activation=activation).scores
        direct = Profile.from_scores(scores, labels, curve.counts.size, bound=GREAT_BOUND).means
        worst = max(worst, float(np.abs(curve.means(np.array([temperature]))[0] - direct[curve.defined]).max()))
    return worst


def calibration(models: int, n: int, k: int, activation: Activation, limit: float) -> None:
    data, grid = fleet(models, n, k), Grid()
    start = time.process_time()
    nodes = grid.nodes(activation)
    curves = [ClassCurve.from_logits(z, y, k, nodes=nodes, activation=activation) for z, y in data]
    middle = time.process_time()
    results = [calibrate(policy, curves, grid=grid) for policy in POLICIES]
    spent = time.process_time() - start
    name = f"calibration {models} x {n:,} x {k:,} {activation}"
    print(
        f"     sums at {nodes.temperatures.size} nodes {middle - start:.2f} s; "
        f"all policies {spent - middle + start:.2f} s"
    )
    check(f"{name}: CPU seconds for {len(results[1].grid)} temperatures", spent, limit)
    check(f"{name}: deviation from direct evaluation", deviation(curves[0], *data[0], activation), 1e-6)


def widths() -> None:
    rng = np.random.default_rng(0)
    for k, n in ((10, 1000), (10, 5000), (1000, 50)):
        groups = np.repeat(np.arange(k), n)
        for name, (a, b) in {"weak": (0.4, 6.0), "strong": (1.5, 2.0)}.items():
            scores = rng.beta(a, b, k * n) * GREAT_BOUND
            line: dict[Method, float] = {}
            for method in METHODS:
                intervals = simultaneous(scores, groups, k, bound=GREAT_BOUND, delta=0.05, method=method)
                line[method] = float((intervals.high - intervals.low).mean() / 2)
            seconds = best_time(lambda s=scores, g=groups, c=k: simultaneous(s, g, c, bound=GREAT_BOUND, delta=0.05), 1)
            lower = one_sided(scores, groups, k, bound=GREAT_BOUND, alpha=0.05).low
            gap = float(np.mean(Profile.from_scores(scores, groups, k, bound=GREAT_BOUND).means - lower))
            print(
                f"     half-widths K = {k}, n = {n}, {name}: "
                + ", ".join(f"{method} {width:.4f}" for method, width in line.items())
                + f"; one-sided betting {gap:.4f} below the mean; {seconds:.2f} s"
            )
            check(
                f"Hoeffding over betting, K = {k}, n = {n}, {name}",
                line["hoeffding"] / line["betting"],
                1.2,
                at_least=True,
            )


def main() -> int:
    scoring()
    gini()
    widths()
    calibration(17, 10_000, 10, "sigmoid", 3.0)
    if "--quick" not in sys.argv:
        calibration(5, 50_000, 1_000, "softmax", 60.0)
    print(f"missed: {', '.join(FAILED)}" if FAILED else "all limits kept")
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
