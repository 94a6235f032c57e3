"""The driver's work in rounds: what it takes to judge a model of many classes after each, against what attacks it.

    python -m benchmarks.rounds --data ../shared/data [--classes 1000 --models 20]

A model is judged after every round, with gates on its worst class and on its mean, until these are decided. Beside the
driver's processor time a model stands what a worker spends on the same samples: PGD-20 on one of the smallest networks
there are (0.2 million parameters, CIFAR-10), so that any other is dearer. Fails above 5 %.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks import zoo
from benchmarks.decide import SIZES, Setting, fleet_config, settings, simulate
from services.measures.pgd import Pgd

MOST = 0.05
IMAGES = 250


def seconds_a_sample(data: Path) -> float:
    """A worker's processor time for PGD-20 on one image at 8 / 255, broken ones and others."""
    network = zoo.load(data, "cifar10_cnn_a_adv")
    images, labels, ids = zoo.images(data, "cifar10/test.npz", slice(0, IMAGES))
    start = time.process_time()
    Pgd().from_model(network, images, labels, ids, seed=0)
    return (time.process_time() - start) / IMAGES


def judged(chosen: list[Setting], models: int) -> tuple[float, float]:
    """Processor time a model, and samples that it took."""
    config, rng = fleet_config(), np.random.default_rng(0)
    start, taken = time.process_time(), 0.0
    for index in range(models):
        setting = chosen[index % len(chosen)]
        taken += simulate(setting, config, rng, full=False).share * setting.size * setting.means.size
    return (time.process_time() - start) / models, taken / models


def main() -> int:
    """Measure both and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--classes", type=int, default=1000, choices=[*SIZES])
    parser.add_argument("--models", type=int, default=20)
    options = parser.parse_args()
    attack = seconds_a_sample(options.data)
    worst = 0.0
    for metric in ("wcr", "aggregate"):
        chosen = [each for each in settings(options.classes) if each.metric == metric and each.binary]
        driver, samples = judged(chosen, options.models)
        share = driver / (samples * attack)
        worst = max(worst, share)
        attacked = samples * attack
        print(f"{metric}: driver {driver:.2f} s a model, {samples:,.0f} samples; attack {attacked:.0f} s: {share:.2%}")
    return int(worst > MOST)


if __name__ == "__main__":
    sys.exit(main())
