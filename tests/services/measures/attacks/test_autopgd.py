"""APGD against closed forms and against the package of its authors."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyautoattack.autopgd_base import APGDAttack, APGDAttack_targeted
from torch import nn

from benchmarks import zoo
from services.errors import MeasureError
from services.measures.apgd import Apgd
from services.measures.attacks.autopgd import Aim, Climb, checkpoints, climb
from services.measures.attacks.balls import ball_around
from services.measures.attacks.tally import Tally
from services.measures.autoattack import AutoAttackSurvival
from services.measures.pgd import Pgd


def key(measure: Any, place: int = 0) -> str:
    name: str = measure.series()[place].key
    return name


@pytest.mark.parametrize(("norm", "dual"), [("Linf", 1), ("L2", 2)])
@pytest.mark.parametrize("classes", [2, 3, 4, 7])
def test_survival_is_exact_on_a_linear_network(plane: Any, classes: int, norm: str, dual: float) -> None:
    network, images, labels, ids = plane(classes)
    true = network.distances(images, labels, dual)
    radii = tuple(np.quantile(true, [0.2, 0.5, 0.8]) + 1e-5)
    attack = Apgd(epsilons=radii, norm=norm, steps=15)
    columns = attack.from_model(network, images, labels, ids, seed=0)
    for radius, series in zip(radii, attack.series(), strict=True):
        decided = np.abs(true - radius) > 0.003 * radius
        assert np.array_equal(columns[series.key][decided] == 1, (true > radius)[decided])
        assert decided.sum() > 18


def test_checkpoints_are_the_papers() -> None:
    assert checkpoints(100) == (22, 41, 57, 70, 80, 87, 93, 99)
    assert checkpoints(1) == (1,)


def random_logits(classes: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits (40, K), the label of each row's largest one, and another class."""
    logits = torch.randn(40, classes, generator=torch.Generator().manual_seed(classes), dtype=torch.float64)
    order = logits.argsort(dim=1, descending=True)
    return logits, order[:, 0], order[:, classes // 2]


@pytest.mark.parametrize("classes", [4, 10])
def test_dlr_losses_are_the_packages(classes: int) -> None:
    logits, labels, targets = random_logits(classes)
    package = APGDAttack_targeted(None, eps=0.1)
    package.y_target = targets
    ones = torch.ones(len(labels))
    targeted = Aim("dlr-t", labels, targets, ones).values(logits)
    assert torch.allclose(targeted, package.dlr_loss_targeted(logits, labels), atol=1e-9)
    untargeted = Aim("dlr", labels, targets, ones).values(logits)
    assert torch.allclose(untargeted, APGDAttack(None, eps=0.1).dlr_loss(logits, labels), atol=1e-9)


def test_cross_entropy_rises_with_the_textbooks_and_does_not_saturate() -> None:
    logits, labels, targets = random_logits(5)
    scale = torch.full((len(labels),), 2.0, dtype=torch.float64)
    values, slope = Aim("ce", labels, targets, scale).rise(logits)
    textbook = nn.functional.cross_entropy(2 * logits, labels, reduction="none")
    assert torch.allclose(nn.functional.softplus(values), textbook)
    leaf = logits.clone().requires_grad_()
    nn.functional.cross_entropy(2 * leaf, labels, reduction="sum").backward()
    assert leaf.grad is not None
    assert torch.allclose(slope, leaf.grad / leaf.grad.abs().amax(dim=1, keepdim=True))
    far = torch.tensor([[1e4, 0.0, -1e4]])
    value, slope = Aim("ce", torch.tensor([0]), torch.tensor([1]), torch.ones(1)).rise(far)
    assert value.item() == pytest.approx(-1e4) and slope.tolist() == [[-1.0, 1.0, 0.0]]


@dataclass
class Bumpy:
    """A small network that is not linear, in float64; 24 random images, and the labels it gives them.

    `lead` is added to the logit of class 0: from 9 on it is always the largest, and nothing breaks.
    """

    lead: float = 0.0
    seen: list[torch.Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        torch.manual_seed(1)
        self.inner = nn.Sequential(nn.Flatten(), nn.Linear(36, 30), nn.Tanh(), nn.Linear(30, 6)).double()
        self.inner.requires_grad_(False)
        self.images, self.ids = torch.rand(24, 1, 6, 6), np.arange(24)
        self.labels = self(self.images).argmax(1)
        self.seen.clear()

    def __call__(self, points: torch.Tensor) -> torch.Tensor:
        self.seen.append(points.detach().clone())
        logits: torch.Tensor = self.inner(8 * points.double())
        return logits + self.lead * torch.eye(6)[0]


@pytest.mark.parametrize(("norm", "epsilon"), [("Linf", 0.1), ("L2", 0.5)])
def test_every_iterate_is_the_packages(norm: Any, epsilon: float) -> None:
    """From the same start, through all checkpoints, where nothing breaks; a rounded tie may part a sample in ten."""
    bumpy, steps = Bumpy(lead=9), 100
    images, labels, rows = bumpy.images, bumpy.labels, torch.arange(24)
    targets, ball = 1 + rows % 5, ball_around(images, epsilon, norm)
    start = ball.start(bumpy.ids, seed=0, draw=0)
    aim, how = Aim("dlr-t", labels, targets, torch.ones(24)), Climb(epsilon, steps, norm, "dlr-t")
    assert not climb(bumpy, start, ball, aim, how, Tally(24, images.device), rows).any()
    ours = torch.stack(bumpy.seen)
    bumpy.seen.clear()
    package = APGDAttack_targeted(bumpy, n_iter=steps, norm=norm, eps=epsilon, device=images.device)
    package.y_target = targets
    package.init_hyperparam(images)
    package.attack_single_run(images, labels, x_init=start)
    theirs = torch.stack(bumpy.seen)
    assert ours.shape == theirs.shape == (steps + 1, 24, 1, 6, 6)
    furthest = (ours - theirs).abs().flatten(2).amax(2).amax(0) / epsilon
    assert (furthest < 1e-3).float().mean() >= 0.9
    assert (ours[1:] - ours[:-1]).abs().amax() > epsilon / 10


@pytest.mark.parametrize(("norm", "epsilon"), [("Linf", 0.02), ("L2", 0.08)])
def test_no_weaker_than_the_package_on_a_small_network(norm: Any, epsilon: float) -> None:
    bumpy = Bumpy()
    ours = Apgd(epsilons=epsilon, norm=norm, steps=100)
    peer = AutoAttackSurvival(epsilons=epsilon, norm=norm, attacks=("apgd-ce", "apgd-t"))
    left = ours.from_model(bumpy, bumpy.images, bumpy.labels, bumpy.ids, seed=0)[key(ours)]
    theirs = peer.from_model(bumpy, bumpy.images, bumpy.labels, bumpy.ids, seed=0)[key(peer)]
    assert 0 < left.sum() <= theirs.sum() < 24


@pytest.mark.parametrize(("norm", "epsilon"), [("Linf", 0.05), ("L2", 0.3)])
def test_every_pass_stays_in_the_ball(norm: Any, epsilon: float) -> None:
    bumpy = Bumpy()
    Apgd(epsilons=epsilon, norm=norm, steps=8).from_model(bumpy, bumpy.images, bumpy.labels, bumpy.ids, seed=0)
    assert len(bumpy.seen) > 2 + 8
    for points in bumpy.seen:
        moved = points.double().unsqueeze(1) - bumpy.images.double()
        length = moved.abs().flatten(2).amax(2) if norm == "Linf" else moved.flatten(2).norm(dim=2)
        assert length.amin(1).max() <= epsilon and points.min() >= 0 and points.max() <= 1


def test_it_does_not_depend_on_the_batch(plane: Any) -> None:
    network, images, labels, ids = plane(5)
    radii = tuple(np.quantile(network.distances(images, labels, 1), [0.3, 0.7]))
    measure = Apgd(epsilons=radii, steps=6, restarts=2)
    whole = measure.from_model(network, images, labels, ids, seed=5)
    order = [np.arange(5), np.arange(23, 4, -1)]
    parts = [measure.from_model(network, images[p], labels[p], ids[p], seed=5) for p in map(np.copy, order)]
    for name, column in whole.items():
        together = np.concatenate([part[name] for part in parts])
        np.testing.assert_allclose(column[np.concatenate(order)], together, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_looking_seldom_changes_no_column(plane: Any, monkeypatch: pytest.MonkeyPatch, norm: Any) -> None:
    network, images, labels, ids = plane(4)
    true = network.distances(images, labels, 1 if norm == "Linf" else 2)
    measure = Apgd(epsilons=tuple(np.quantile(true, [0.3, 0.7])), steps=9, norm=norm)
    results = []
    for look in (1, 4, 100):
        monkeypatch.setattr("services.measures.attacks.autopgd.LOOK", {"cpu": look})
        results.append(measure.from_model(network, images, labels, ids, seed=0))
    assert 0 < results[0][key(measure, 1)].sum() < len(images)
    for other in results[1:]:
        for name, column in results[0].items():
            assert np.array_equal(other[name], column), name


def test_queries_are_the_passes_and_end_with_the_sample(plane: Any) -> None:
    network, images, labels, ids = plane(5)
    labels[:4] = (labels[:4] + 1) % 5
    true = network.distances(images, labels, 1)
    measure = Apgd(epsilons=float(np.quantile(true[4:], 0.5)), steps=7, targets=3)
    columns = measure.from_model(network, images, labels, ids, seed=0)
    never = columns["broken_by"] == -1
    assert 0 < never.sum() < 20
    assert (columns["queries"][never] == 2 + (1 + 3) * 8).all()
    assert columns["queries"][:4].tolist() == [2] * 4 and columns["broken_by"][:4].tolist() == [0] * 4
    assert columns["queries"][4:][~never[4:]].max() < 2 + 4 * 8
    names = {name: measure.column("broken_by").names[code + 1] for name, code in (("loss", 1), ("left", -1))}
    assert names == {"loss": "ce", "left": "unbroken"}


def test_logits_that_are_not_finite_are_broken(plane: Any) -> None:
    network, images, labels, ids = plane(5)

    def sick(points: torch.Tensor) -> torch.Tensor:
        moved = (points - images[0]).abs().flatten(1).amax(1)
        return torch.where(((moved > 0) & (moved < 0.01)).unsqueeze(1), torch.inf, network(points))

    measure = Apgd(epsilons=1e-5, steps=4)
    columns = measure.from_model(sick, images[:9], labels[:9], ids[:9], seed=0)
    assert columns[key(measure)].tolist() == [0] + [1] * 8
    assert columns["non_finite"].tolist() == [1] + [0] * 8
    assert all(np.isfinite(column).all() for column in columns.values())


def test_tied_rivals_and_a_flat_network_are_no_fault(plane: Any) -> None:
    _, images, labels, ids = plane(5)
    labels[:] = 0

    def flat(points: torch.Tensor) -> torch.Tensor:
        return torch.tensor([1e-30, 0.0, 0.0, 0.0, 0.0]) + 0 * points.flatten(1)[:, :5]

    columns = Apgd(epsilons=0.1, steps=4).from_model(flat, images, labels, ids, seed=0)
    assert columns[key(Apgd(epsilons=0.1, steps=4))].all() and (columns["zero_gradient"] == 1).all()
    assert all(np.isfinite(column).all() for column in columns.values())


def test_few_classes() -> None:
    assert Apgd().schedule(10).targets == 9 and Apgd().schedule(4).targets == 3
    assert Apgd().schedule(3).losses == ("ce", "dlr")
    assert Apgd().schedule(2).losses == ("ce",)
    with pytest.raises(MeasureError, match="add ce"):
        Apgd(losses=("dlr-t",)).schedule(2)
    with pytest.raises(MeasureError, match="at least 2 classes"):
        Apgd().schedule(1)


REAL = [("cifar10_cnn_a_adv4", "8/255"), ("cifar10_wide_kw", "8/255")]


@pytest.mark.parametrize(("name", "epsilon"), REAL)
@pytest.mark.long
def test_no_weaker_than_pgd_at_equal_passes(shared_data: Path, name: str, epsilon: str) -> None:
    """10 runs of 20 steps each: `pgd` from ten starts leaves at least as many of 64 images."""
    network = zoo.load(shared_data, name)
    images, labels, ids = zoo.images(shared_data, "cifar10/test.npz", slice(0, 64))
    ours, peer = Apgd(epsilons=epsilon, steps=20), Pgd(epsilons=epsilon, steps=20, restarts=10)
    left = ours.from_model(network, images, labels, ids, seed=0)[key(ours)]
    theirs = peer.from_model(network, images, labels, ids, seed=0)[key(peer)]
    assert left.sum() <= theirs.sum() and left.sum() > 0


@pytest.mark.slow
@pytest.mark.parametrize(("norm", "epsilon"), [("Linf", 0.2), ("L2", 1.5)])
def test_no_weaker_than_the_package_at_equal_steps(shared_data: Path, norm: Any, epsilon: float) -> None:
    """On 48 images of which half break; two samples are allowed for other random starts."""
    network = zoo.load(shared_data, "mnist_madry_tiny")
    images, labels, ids = zoo.images(shared_data, "mnist/t10k.npz", slice(0, 48))
    ours = Apgd(epsilons=epsilon, norm=norm, steps=100)
    peer = AutoAttackSurvival(epsilons=epsilon, norm=norm, attacks=("apgd-ce", "apgd-t"))
    left = ours.from_model(network, images, labels, ids, seed=0)[key(ours)]
    theirs = peer.from_model(network, images, labels, ids, seed=0)[key(peer)]
    assert left.sum() <= theirs.sum() + 2
