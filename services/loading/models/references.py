"""Published clean and robust accuracies of RobustBench's models, read from the package's own leaderboard tables.

The tables of robustbench 1.1.1 travel in its distribution's description (the README), not in JSON files; the
description is read from the installed metadata, so neither robustbench nor torch is imported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, metadata
from typing import NamedTuple

DATASETS = {"CIFAR-10": "cifar10", "CIFAR-100": "cifar100", "ImageNet": "imagenet"}


class Reference(NamedTuple):
    """What the leaderboard says, as shares in [0, 1]: accuracy on clean and on attacked or corrupted images."""

    clean_accuracy: float
    robust_accuracy: float


def robustbench_reference(name: str, dataset: str, threat_model: str) -> Reference | None:
    """The leaderboard's entry of a model, or None when it has none or robustbench is not installed.

    Args:
        name: the model's name in RobustBench ("Engstrom2019Robustness").
        dataset: "cifar10", "cifar100" or "imagenet".
        threat_model: "Linf", "L2" or "corruptions".
    """
    return _tables().get((dataset, threat_model, name))


@lru_cache(maxsize=1)
def _tables() -> dict[tuple[str, str, str], Reference]:
    try:
        text = str(metadata("robustbench").json.get("description", ""))
    except PackageNotFoundError:
        return {}
    return dict(parse_tables(text))


def parse_tables(text: str) -> Iterator[tuple[tuple[str, str, str], Reference]]:
    """Rows of all leaderboard tables: ((dataset, threat model, name), reference)."""
    dataset = threat = ""
    for line in text.splitlines():
        if line.startswith("#"):
            level, title = line.count("#"), line.strip("# ")
            dataset = DATASETS.get(title, "") if level <= 3 else dataset
            threat = _threat(title) if level == 4 else ""
        elif dataset and threat and (row := _row(line)):
            yield (dataset, threat, row[0]), row[1]


def _threat(title: str) -> str:
    lowered = title.lower()
    return "corruptions" if "corruptions" in lowered else next((t for t in ("Linf", "L2") if title.startswith(t)), "")


def _row(line: str) -> tuple[str, Reference] | None:
    """A row's bold model name and its first two percentages: clean, then robust accuracy."""
    name = re.search(r"<sup>\*\*([^*]+)\*\*</sup>", line)
    shares = re.findall(r"<sub>\**(\d+(?:\.\d+)?)%\**</sub>", line)
    if name is None or len(shares) < 2:
        return None
    return name.group(1).strip(), Reference(round(float(shares[0]) / 100, 6), round(float(shares[1]) / 100, 6))
