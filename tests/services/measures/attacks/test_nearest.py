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
from services.measures.attacks.fab import FastAdaptiveBoundary
from services.measures.attacks.fmn import FastMinimumNorm
from services.measures.attacks.nearest import Seeker, nearest_adversarials
from services.measures.minimal import Minimal

SHORT = Minimal(fmn_steps=30, cw_searches=3, cw_steps=30, fab_steps=10)
SEEKERS: dict[str, tuple[Seeker, float]] = {
    "deepfool": (DeepFool(), 0.01),
    "fmn": (FastMinimumNorm(limit=3.0, steps=60), 0.02),
    "cw": (CarliniWagner(searches=5, steps=100), 0.05),
    "fab": (FastAdaptiveBoundary(steps=30), 0.01),
}


@pytest.mark.parametrize("name", SEEKERS)
def test_distance_is_the_planes(plane: Any, name: str) -> None:
    seeker, tolerance = SEEKERS[name]
    network, images, labels, _ = plane(3)
    true = network.distances(images, labels, 2)
    result = nearest_adversarials(network, images, labels, [seeker]).distances.numpy()
    assert (result >= true - 1e-7).all()
    assert np.median(result / true) < 1 + tolerance
    assert (result / true).max() < 1.5


@pytest.mark.long
def test_the_smallest_of_all_is_kept_and_named(plane: Any) -> None:
    network, images, labels, _ = plane(4)
    seekers = [seeker for seeker, _ in SEEKERS.values()]
    alone = torch.stack([nearest_adversarials(network, images, labels, [each]).distances for each in seekers])
    together = nearest_adversarials(network, images, labels, seekers)
    assert torch.equal(together.distances, alone.min(dim=0).values)
    assert torch.equal(together.attack, alone.argmin(dim=0))


def test_every_adversarial_flips_and_is_as_far_as_said(shared_data: Path) -> None:
    network = zoo.load(shared_data, "mnist_conv_small_std")
    images, labels, _ = zoo.images(shared_data, "mnist/t10k.npz", slice(0, 30))
    with torch.no_grad():
        clean = network(images).argmax(1) == labels
        nearest = nearest_adversarials(network, images, labels, [DeepFool(), FastMinimumNorm(limit=5.0, steps=40)])
        flipped = network(nearest.points).argmax(1) != labels
    assert torch.equal(nearest.correct, clean)
    observed = nearest.distances.isfinite()
    assert observed.all() and flipped[observed].all()
    length = np.linalg.norm((nearest.points.double() - images.double()).numpy().reshape(30, -1), axis=1)
    assert nearest.distances.numpy()[clean & observed] == pytest.approx(length[clean & observed], rel=1e-12)
    assert nearest.points.min() >= 0 and nearest.points.max() <= 1
    assert (nearest.distances[~clean] == 0).all()


@pytest.mark.long
def test_measure_does_not_depend_on_the_batch(shared_data: Path) -> None:
    """But for the last bits: some processors' kernels add in another order when a batch has another shape."""
    network = zoo.load(shared_data, "cifar10_base_kw")
    images, labels, ids = zoo.images(shared_data, "cifar10/test.npz", slice(0, 7))
    measure = Minimal(fmn_steps=6, cw_searches=2, cw_steps=10, fab_steps=2, fab_targets=3)
    whole = measure.from_model(network, images, labels, ids, seed=0)
    parts = [
        measure.from_model(network, images[i : i + 3], labels[i : i + 3], ids[i : i + 3], seed=0) for i in (0, 3, 6)
    ]
    for name, column in whole.items():
        together = np.concatenate([part[name] for part in parts])
        np.testing.assert_allclose(column, together, rtol=1e-3, atol=1e-4, err_msg=name)


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

    columns = SHORT.from_model(constant, images[:1], labels[:1], ids[:1], seed=0)
    assert columns["censored"].tolist() == [1] and columns["zero_gradient"].tolist() == [1]


def test_nan_logits_are_an_adversarial(plane: Any) -> None:
    network, images, labels, ids = plane(3)

    def sick(points: torch.Tensor) -> torch.Tensor:
        far = (points - images[:1]).flatten(1).norm(dim=1, keepdim=True) > 0.02
        return torch.where(far, torch.nan, network(points))

    columns = SHORT.from_model(sick, images[:1], labels[:1], ids[:1], seed=0)
    assert columns["minimal/l2"][0] == pytest.approx(0.02, abs=0.001)
    assert columns["non_finite"].tolist() == [1]


def test_an_attack_twice_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="each attack once"):
        Minimal(attacks=("fmn", "fmn"))


def test_a_referee_sees_only_what_the_others_disagree_about(plane: Any) -> None:
    """One seeker misses every third sample and overstates the rest of the even ones; the referee mends just those."""
    network, images, labels, _ = plane(3)

    def careless(network: Any, images: Any, labels: Any, tally: Any, rows: Any) -> tuple[torch.Tensor, torch.Tensor]:
        points, nearest = DeepFool()(network, images, labels, tally, rows)
        return points, nearest & (rows % 3 != 0)

    requested: list[int] = []

    def referee(network: Any, images: Any, labels: Any, tally: Any, rows: Any) -> tuple[torch.Tensor, torch.Tensor]:
        requested.extend(rows.tolist())
        return FastAdaptiveBoundary(steps=30)(network, images, labels, tally, rows)

    nearest = nearest_adversarials(network, images, labels, [careless], [referee])
    assert requested == list(range(0, 24, 3))
    assert nearest.distances.isfinite().all() and set(nearest.attack[::3].tolist()) == {1}
    assert set(nearest.attack.tolist()) == {0, 1}


@pytest.mark.long
def test_masked_gradients_do_not_hide_what_fab_finds(shared_data: Path) -> None:
    """Within 3.0 of the images of a network whose first layer masks gradients, the others find few adversarials."""
    network = zoo.load(shared_data, "mnist_madry_tiny")
    images, labels, ids = zoo.images(shared_data, "mnist/t10k.npz", slice(0, 5))
    quick: Any = ("deepfool", "fmn")
    without, whole = (
        measure.from_model(network, images, labels, ids, seed=0)
        for measure in (Minimal(attacks=quick), Minimal(attacks=(*quick, "fab"), fab_steps=40, fab_targets=3))
    )
    assert whole["censored"].sum() == 0 and without["censored"].sum() >= 3
    assert (whole["minimal/l2"] <= without["minimal/l2"]).all() and np.median(whole["minimal/l2"]) < 1.5


@pytest.mark.long
def test_black_pixels_do_not_stop_an_attack_on_an_ordinary_network(shared_data: Path) -> None:
    network = zoo.load(shared_data, "mnist_conv_small_std")
    images, labels, _ = zoo.images(shared_data, "mnist/t10k.npz", slice(0, 8))
    alone = [nearest_adversarials(network, images, labels, [each]).distances for each in Minimal().seekers_of()[:3]]
    assert all(int(distances.isfinite().sum()) >= 7 for distances in alone)
