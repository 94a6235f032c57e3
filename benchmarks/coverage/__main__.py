"""Coverage of every interval and size of every sequential test, by simulation and, where it can be had, exactly.

``python -m benchmarks.coverage [PART ...] [--runs 2000] [--write FILE]``. Fails when a promise is broken by more than
the simulation's own error.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.coverage import changes, clusters, groups, means, metrics, monitored, sampling
from benchmarks.coverage.judge import Cell, broken, table

PARTS: dict[str, Callable[[int], Iterator[Cell]]] = {
    "means": means.cells,
    "metrics": metrics.cells,
    "groups": groups.cells,
    "changes": changes.cells,
    "clusters": clusters.cells,
    "sampling": sampling.cells,
    "monitored": monitored.cells,
}


def main() -> int:
    """Simulate, print, and say whether every promise was kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which; all when left out")
    parser.add_argument("--runs", type=int, default=2000, help="data sets a setting; cheap methods take more")
    parser.add_argument("--write", type=Path, help="where to write the tables, as Markdown")
    options = parser.parse_args()
    chosen = options.parts or [*PARTS]
    results: list[Cell] = []
    text: list[str] = []
    for part in chosen:
        start = time.process_time()
        cells = list(PARTS[part](options.runs))
        results += cells
        seconds = time.process_time() - start
        text += [f"### {part}: {len(cells)} cells, {seconds:.0f} s", table(cells)]
        print("\n".join(text[-2:]), flush=True)
        if part == "monitored":
            text += list(_exact(options.runs))
            print("\n".join(text[-5:]), flush=True)
    wrong = [f"{each.promise}, {each.setting}, {each.level:g}: {each}" for each in broken(results)]
    wrong += monitored.broken_sizes() if "monitored" in chosen else []
    exact = sum(each.exact for each in results)
    text.append(f"{exact} promises in their settings, {len(results) - exact} reported only; broken: {len(wrong)}")
    print("\n".join([text[-1], *wrong]))
    if options.write:
        options.write.write_text("\n\n".join(text) + "\n")
    return int(bool(wrong))


def _exact(runs: int) -> Iterator[str]:
    yield _table(
        ["kappa", "alpha", '"below" at p = kappa', '"above"', "published procedure, either"], monitored.sizes()
    )
    head = ["kappa", "failure probability", "decided rightly", "draws, mean", "one look, power 95 %", "ratio"]
    yield _table(head, monitored.powers())
    head = [
        "p of the class",
        "certified, stopping early",
        "draws, mean",
        "certified, fixed",
        "draws",
        "one look, power 95 %",
    ]
    yield _table(head, monitored.radius_powers(runs))
    yield _table(["mean", "found", "samples, mean", "one look, power 95 %"], monitored.betting_powers(runs))
    yield _table(["samples a class", "flagged, exact", "flagged, betting"], monitored.change_powers(runs))


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows))


if __name__ == "__main__":
    sys.exit(main())
