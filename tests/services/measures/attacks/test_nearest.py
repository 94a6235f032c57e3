"""Minimal perturbations: exact on planes, verified always, independent of the batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import zoo
from services.measures.attacks.carlini import CarliniWagner
from services.measures.attacks.deepfool import DeepFool
from services.measures.attacks.fmn import FastMinimumNorm
from services.measures.attacks.nearest import Seeker, nearest_adversarials
from services.measures.minimal import Minimal

SEEKERS: dict[str, tuple[Seeker, float]] = {
    "deepfool": (DeepFool(), 0.01),
    "fmn": (FastMinimumNorm(limit=3.0, steps=60), 0.02),
    "cw": (CarliniWagner(searches=5, steps=100), 0.05),
}


@pytest.mark.parametrize("name", SEEKERS)
def test_distance_is_the_planes(plane: Any, name: str) -> None:
    seeker, tolerance = SEEKERS[name]
    network, images, labels, _ = plane(3)
    true = network.distances(images, labels, 2)
    found = nearest_adversarials(network, images, labels, [seeker]).distances.numpy()
    assert (found >= true - 1e-7).all()
    assert np.median(found / true) < 1 + tolerance
    assert (found / true).max() < 1.5


def test_the_smallest_of_all_is_kept_and_named(plane: Any) -> None:
    network, images, labels, _ = plane(4)
    seekers = [seeker for seeker, _ in SEEKERS.values()]
    alone = torch.stack([nearest_adversarials(network, images, labels, [one]).distances for one in seekers])
    together = nearest_adversarials(network, images, labels, seekers)
    assert torch.equal(together.distances, alone.min(dim=0).values)
    assert torch.equal(together.attack, alone.argmin(dim=0))


def test_every_adversarial_flips_and_is_as_far_as_said(shared_data: Path) -> None:
    network = zoo.load(shared_data, "mnist_conv_small_std")
    images, labels, _ = zoo.images(shared_data, "mnist/t10k.npz", slice(0, 30))
    with torch.no_grad():
        clean = network(images).argmax(1) == labels
        found = nearest_adversarials(network, images, labels, [DeepFool(), FastMinimumNorm(limit=5.0, steps=40)])
        flipped = network(found.points).argmax(1) != labels
    assert torch.equal(found.correct, clean)
    seen = found.distances.isfinite()
    assert seen.all() and flipped[seen].all()
    length = np.linalg.norm((found.points.double() - images.double()).numpy().reshape(30, -1), axis=1)
    assert found.distances.numpy()[clean & seen] == pytest.approx(length[clean & seen], rel=1e-12)
    assert found.points.min() >= 0 and found.points.max() <= 1
    assert (found.distances[~clean] == 0).all()


def test_measure_does_not_depend_on_the_batch(shared_data: Path) -> None:
    network = zoo.load(shared_data, "cifar10_base_kw")
    images, labels, ids = zoo.images(shared_data, "cifar10/test.npz", slice(0, 16))
    measure = Minimal(fmn_steps=8, cw_searches=2, cw_steps=10)
    whole = measure.from_model(network, images, labels, ids, seed=0)
    parts = [
        measure.from_model(network, images[i : i + 7], labels[i : i + 7], ids[i : i + 7], seed=0) for i in (0, 7, 14)
    ]
    for name, column in whole.items():
        assert np.array_equal(column, np.concatenate([part[name] for part in parts])), name


def test_what_is_not_found_within_the_limit_is_censored(plane: Any) -> None:
    network, images, labels, ids = plane(3)
    labels[0] = (labels[0] + 1) % 3
    true = network.distances(images, labels, 2)
    limit = float(np.quantile(true[1:], 0.5) * 1.001)
    measure = Minimal(search_limit=limit, attacks=("deepfool", "fmn"))
    columns = measure.from_model(network, images, labels, ids, seed=0)
    score, censored = columns[measure.series()[0].key], columns["censored"]
    assert measure.series()[0].bound == limit == score.max()
    assert score[0] == 0 and censored[0] == 0 and columns["correct"][0] == 0 and columns["attack"][0] == -1
    clear = np.abs(true - limit) > 0.02 * limit
    clear[0] = False
    assert np.array_equal(censored[clear] == 1, true[clear] > limit)
    assert (score[censored == 1] == limit).all() and (columns["attack"][censored == 1] == -1).all()
    assert all(np.isfinite(column).all() for column in columns.values())


def test_a_network_without_gradient_is_censored_and_shown(plane: Any) -> None:
    _, images, labels, ids = plane(3)

    def constant(points: torch.Tensor) -> torch.Tensor:
        return torch.eye(3)[labels[0]].expand(len(points), 3) + points.flatten(1)[:, :1] * 0

    columns = Minimal().from_model(constant, images[:1], labels[:1], ids[:1], seed=0)
    assert columns["censored"].tolist() == [1] and columns["zero_gradient"].tolist() == [1]


def test_nan_logits_are_an_adversarial(plane: Any) -> None:
    network, images, labels, ids = plane(3)

    def sick(points: torch.Tensor) -> torch.Tensor:
        far = (points - images[:1]).flatten(1).norm(dim=1, keepdim=True) > 0.02
        return torch.where(far, torch.nan, network(points))

    columns = Minimal().from_model(sick, images[:1], labels[:1], ids[:1], seed=0)
    assert columns["minimal/l2"][0] == pytest.approx(0.02, abs=0.001)
    assert columns["non_finite"].tolist() == [1]


def test_an_attack_twice_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="each attack once"):
        Minimal(attacks=("fmn", "fmn"))
