"""Fairness metrics of networks of four kinds on real digits, and whether the metrics rank the networks stably.

Usage: python -m benchmarks.fairness --data DIR [--train 4000] [--test 1000] [--seeds 2] [--epochs 4]

Trains a conditional GAN on MNIST (one-hot class, stroke thickness and slant as conditions) and, by the seed, a plain
CNN, a residual network, a small DeiT-T and a MobileNet-like network on the same images; judges all on others. Printed:
accuracy; DP, EOpp and EOdd, each the mean over ten one-against-the-rest decisions and the two attributes cut at their
medians; Tol and Dev along the two conditions, with the interval of Tol. Then, for each metric, how well the ranking of
the networks on a resample of the images agrees with the ranking on all of them (Spearman: median, 5 % and 95 %).
No limit is checked: this is a measurement, not a guard.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from torch import nn

from services.measures.latent.boundaries import Axes, project
from services.numerics.attributes import strokes
from services.numerics.attributes.groupfair import gaps, matrix_counts
from services.numerics.attributes.tolerance import Boundaries, projection_metrics
from services.training.architectures.build import build
from services.training.epochs.loop import train
from services.training.mapper_recipe import MapperRecipe
from services.training.mappers import conditional_gan
from services.training.mappers.train import train_mapper
from services.training.methods.erm import Erm

KINDS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "cnn": ("cnn4", 1, {"width": 0.5}),
    "resnet": ("resnet18", 1, {"width": 0.0625, "channels": 1}),
    "deit": ("deit_t", 3, {"width": 0.34, "size": 28, "patch": 7, "depth": 3}),
    "mobile": ("mobile", 1, {"width": 0.25, "channels": 1}),
}
"""Name, channels and options; thin, so that each trains in two minutes."""
USUAL = {"lr": 0.05, "batch": 64}
SLOW = {"lr": 0.1, "batch": 32, "warmup": 2, "clip": 1.0, "schedule": "cosine"}
PATIENCE = 6
"""A transformer learns slowly from few images: so many times the epochs of the others, with a recipe of its own."""
NOISE, CLASSES = 8, 10
RESAMPLES = 200


class Judged(NamedTuple):
    """One network on the N images kept for judging: decisions (N, 10), correctness (N,), boundaries."""

    name: str
    decisions: NDArray[np.int64]
    correct: NDArray[np.float64]
    found: Boundaries


class Digits(NamedTuple):
    """Images (N, 1, 28, 28) uint8, labels (N,), thickness and slant (N, 2)."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    attributes: NDArray[np.float64]


def define_operators() -> Any:
    """Beside a CPU wheel of torch, torchvision's compiled operators are missing; two schemas let timm import."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


def digits(data: Path, train_size: int, test_size: int) -> tuple[Digits, Digits]:
    """Disjoint images to train and to judge on."""
    with np.load(data / "mnist" / "t10k.npz") as archive:
        images, labels = archive["images"].transpose(0, 3, 1, 2), archive["labels"].astype(np.int64)
    rows = np.random.default_rng(0).permutation(len(labels))[: train_size + test_size]
    light = images[rows, 0] / 255.0
    attributes = np.stack([strokes.thickness(light), strokes.slant(light)], axis=1)
    whole = Digits(np.ascontiguousarray(images[rows]), labels[rows], attributes)
    return Digits(*(part[:train_size] for part in whole)), Digits(*(part[train_size:] for part in whole))


def mapper_of(known: Digits) -> nn.Module:
    """A conditional GAN whose last two latents are thickness and slant, in standard units."""
    scaled = (known.attributes - known.attributes.mean(axis=0)) / known.attributes.std(axis=0)
    conditions = np.concatenate([np.eye(CLASSES)[known.labels], scaled], axis=1)
    torch.manual_seed(0)
    mapper = conditional_gan(NOISE, CLASSES + 2, 1, 28, 12)
    began = time.process_time()
    recipe = MapperRecipe(epochs=12, lr=2e-3, reconstruction=100.0)
    factors = {"class": known.labels, "thickness": known.attributes[:, 0], "slant": known.attributes[:, 1]}
    report = train_mapper(mapper, known.images, conditions=conditions, factors=factors, recipe=recipe)
    gap = {name: each.value for name, each in report.disentanglement.gaps.items()} if report.disentanglement else {}
    print(f"mapper: {time.process_time() - began:.0f} s, {report.reconstruction}, gaps {gap}", flush=True)
    return mapper.eval()


def network_of(kind: str, seed: int, known: Digits, epochs: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Trained, and taking one channel."""
    name, channels, options = KINDS[kind]
    network = build(name, seed=seed, **options)
    images = np.repeat(known.images, channels, axis=1)
    knobs = {**SLOW, "epochs": PATIENCE * epochs} if kind == "deit" else {**USUAL, "epochs": epochs}
    train(network, images, known.labels, method=Erm(), seed=seed, weight_decay=5e-4, **knobs)
    return lambda batch: network(batch.expand(-1, channels, -1, -1))


@torch.no_grad()
def judged(name: str, network: Callable[[torch.Tensor], torch.Tensor], mapper: Any, held: Digits) -> Judged:
    """Decisions on the images, and the boundaries of their projections along thickness and slant."""
    images = torch.from_numpy(held.images).float() / 255.0
    predicted = torch.cat([network(part).argmax(1) for part in images.split(256)]).numpy()
    latents = torch.cat([mapper.encode(part) for part in images.split(256)])
    which = torch.tensor([NOISE + CLASSES, NOISE + CLASSES + 1])
    axes = Axes(which, mapper.centre[which], 2.0 * mapper.unit[which])
    moves = project(network, mapper.decode, latents, axes, halvings=4)
    result = Boundaries.of(moves.moves * np.array([-1.0, 1.0]), moves.censored, np.zeros(2), np.ones(2))
    return Judged(name, np.eye(CLASSES, dtype=np.int64)[predicted], (predicted == held.labels).astype(float), result)


def metrics(one: Judged, held: Digits, rows: NDArray[np.int64]) -> dict[str, float]:
    """All metrics of one network on some of the images."""
    truth = np.eye(CLASSES, dtype=np.int64)[held.labels[rows]]
    above = (held.attributes >= np.median(held.attributes, axis=0)).astype(np.int64)[rows]
    fairness = gaps(matrix_counts(truth, one.decisions[rows], above))
    part = one.found.take(rows)
    return {
        "acc": float(one.correct[rows].mean()),
        **{name: float(np.nanmean(fairness[name].value)) for name in ("dp", "eopp", "eodd")},
        "tol": float(part.tolerances.mean()),
        "dev": float(part.deviations.mean()),
    }


def stability(networks: list[Judged], held: Digits) -> None:
    """Print how well rankings of the networks on resamples agree with those on all images."""
    everything = np.arange(len(held.labels))
    whole = [metrics(each, held, everything) for each in networks]
    draws = np.random.default_rng(1)
    agreement: dict[str, list[float]] = {name: [] for name in whole[0]}
    for _ in range(RESAMPLES):
        rows = draws.integers(0, len(everything), len(everything))
        again = [metrics(each, held, rows) for each in networks]
        for name, values in agreement.items():
            values.append(float(spearmanr([w[name] for w in whole], [a[name] for a in again]).statistic))
    for name, values in agreement.items():
        low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
        print(f"ranking by {name:5s} on resamples: Spearman {middle:+.2f} ({low:+.2f} to {high:+.2f})", flush=True)


def main() -> None:
    """Train, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--train", type=int, default=4000)
    parser.add_argument("--test", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    _kept = define_operators()
    known, held = digits(options.data, options.train, options.test)
    mapper, networks = mapper_of(known), []
    print("network     s   acc    dp     eopp   eodd   tol (95 %)             dev    censored", flush=True)
    for seed in range(options.seeds):
        for kind in KINDS:
            began = time.process_time()
            gate = judged(f"{kind}-{seed}", network_of(kind, seed, known, options.epochs), mapper, held)
            networks.append(gate)
            row, result = metrics(gate, held, np.arange(len(held.labels))), projection_metrics(gate.found)
            print(
                f"{gate.name:9s} {time.process_time() - began:4.0f} {row['acc']:6.3f} {row['dp']:6.4f} "
                f"{row['eopp']:6.3f} {row['eodd']:6.3f} {row['tol']:6.3f} "
                f"({result.tol.low:.3f} to {result.tol.high:.3f}) {row['dev']:6.3f} {result.censored:6.1%}",
                flush=True,
            )
    stability(networks, held)


if __name__ == "__main__":
    main()
