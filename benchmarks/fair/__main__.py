"""The table of fair methods in docs/training.md, from the audit of sweep.yaml.

    python -m benchmarks.fair STORAGE/audits/fair-methods-audit/AUDIT

Each number is the mean over a method's seeds. Differences are to the method that it builds on, over the same seeds,
with percentile limits at 95 % of test images resampled by class, the same for all networks.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.numerics.ranking.paired_ranks import DRAWS, resampled_sums
from tracking.bundle.bundle import read_bundle
from tracking.bundle.scores import read_kept_scores

BASES = {"pgd": "", "cfa": "pgd", "faal": "pgd", "trades": "", "frl": "trades", "dafa": "trades", "wat": "trades"}
BASES |= {"bat": "trades"}


@dataclass(frozen=True)
class Network:
    """Clean accuracy, accuracy under attack and its worst class, (1 + DRAWS,) each: as measured, then resampled."""

    clean: NDArray[np.float64]
    mean: NDArray[np.float64]
    worst: NDArray[np.float64]
    weakest: str


def networks(folder: str) -> dict[tuple[str, str], Network]:
    """The audited networks by method and seed; without those that were not audited."""
    result, known = read_bundle(folder), dict[tuple[str, str], Network]()
    for index, model in enumerate(result.models):
        if not model.series:
            print(f"not audited: {model.spec.name}: {'; '.join(model.reasons)}", file=sys.stderr)
            continue
        scores, tags = read_kept_scores(folder, index, model.spec), dict(model.spec.tags)
        attack = next(each.series.key for each in model.series if each.series.attack)
        order = np.argsort(scores["id"])
        labels, table = scores["label"][order], np.stack([scores[key][order] for key in ("clean", attack)], 1)
        sums, counts = resampled_sums(table.astype(float), labels, draws=DRAWS, seed=0), np.bincount(labels)
        classes, whole = sums[:, :, 1] / counts, sums.sum(1) / counts.sum()
        weakest = result.samples.classes[int(classes[0].argmin())]
        known[tags["method"], tags["seed"]] = Network(whole[:, 0], whole[:, 1], classes.min(1), weakest)
    return known


def rows(known: dict[tuple[str, str], Network]) -> list[str]:
    """The lines of the table."""
    lines = []
    for method, base in BASES.items():
        seeds = sorted(seed for name, seed in known if name == method)
        own = [known[method, seed] for seed in seeds]
        if not own:
            continue
        mean = ", ".join(f"{each.mean[0]:.3f}" for each in own)
        worst = ", ".join(f"{each.worst[0]:.3f} {each.weakest}" for each in own)
        cells = [f"`{method}`" + (f", of {base.upper()}" if base else ""), f"{np.mean([n.clean[0] for n in own]):.3f}"]
        cells += [
            f"{np.mean([n.mean[0] for n in own]):.3f} ({mean})",
            f"{np.mean([n.worst[0] for n in own]):.3f} ({worst})",
        ]
        partners = [known[base, seed] for seed in seeds] if base else []
        cells += [_limits(own, partners, name) if partners else "" for name in ("mean", "worst")]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _limits(own: list[Network], partners: list[Network], name: str) -> str:
    pairs = zip(own, partners, strict=True)
    change = np.mean([getattr(mine, name) - getattr(other, name) for mine, other in pairs], axis=0)
    low, high = np.quantile(change[1:], [0.025, 0.975])
    return f"{change[0]:.3f} ({low:.3f} to {high:.3f})"


if __name__ == "__main__":
    print("\n".join(rows(networks(sys.argv[1]))))
