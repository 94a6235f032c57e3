"""AutoAttack under our shards against its package run alone."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyautoattack import AutoAttack

from benchmarks import zoo
from services.errors import MeasureError
from services.measures.attacks.packaged import CODES, plan_for
from services.measures.autoattack import AutoAttackSurvival

STANDARD = ("apgd-ce", "apgd-t", "fab-t", "square")


def alone(
    network: Any, images: torch.Tensor, labels: torch.Tensor, *, targets: int, attacks: int = 4, **how: Any
) -> np.ndarray[Any, Any]:
    """Survivors of the first attacks of the package's standard version, with as many target classes as there are."""
    logger = logging.getLogger("auto-attack")
    logger.disabled = True
    attack = AutoAttack(network, version="standard", **how)
    attack.attacks_to_run = attack.attacks_to_run[:attacks]
    attack.apgd_targeted.n_target_classes = attack.fab.n_target_classes = targets
    adversarial, _ = attack.run_standard_evaluation(images, labels, batch_size=len(images))
    logger.disabled = False
    with torch.no_grad():
        survivors: np.ndarray[Any, Any] = (network(adversarial).argmax(1) == labels).numpy()
    return survivors


@pytest.mark.long
def test_survivors_are_the_packages(plane: Any) -> None:
    network, images, labels, ids = plane(4)
    epsilon = float(np.quantile(network.distances(images, labels, 1), 0.8))
    measure = AutoAttackSurvival(epsilons=epsilon, attacks=STANDARD[:3])
    columns = measure.from_model(network, images, labels, ids, seed=7)
    survivors = alone(network, images, labels, targets=3, attacks=3, eps=epsilon, seed=7)
    assert np.array_equal(columns[measure.series()[0].key] == 1, survivors)
    assert 0 < survivors.sum() < len(images)
    assert set(columns["broken_by"][survivors]) == {-1}
    assert set(columns["broken_by"][~survivors]) <= set(CODES.values())
    assert columns["queries"][survivors].min() > 500 > columns["queries"][~survivors].min() > 100


@pytest.mark.slow
@pytest.mark.parametrize(("norm", "epsilon"), [("Linf", 0.2), ("L2", 1.5)])
def test_survivors_are_the_packages_on_a_real_network(shared_data: Path, norm: Any, epsilon: float) -> None:
    network = zoo.load(shared_data, "mnist_madry_tiny")
    images, labels, ids = zoo.images(shared_data, "mnist/t10k.npz", slice(0, 24))
    measure = AutoAttackSurvival(epsilons=epsilon, norm=norm)
    columns = measure.from_model(network, images, labels, ids, seed=3)
    survivors = alone(network, images, labels, targets=9, eps=epsilon, norm=norm, seed=3)
    assert np.array_equal(columns[measure.series()[0].key] == 1, survivors)


def test_nothing_outside_is_disturbed(plane: Any, capsys: pytest.CaptureFixture[str]) -> None:
    _, images, labels, ids = plane(4)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 4))
    with torch.no_grad():
        labels = network(images).argmax(1)
    state, tracing = torch.get_rng_state(), sys.gettrace()
    AutoAttackSurvival(epsilons=0.5, attacks=("apgd-ce", "fab-t")).from_model(network, images, labels, ids, seed=0)
    assert torch.equal(torch.get_rng_state(), state) and sys.gettrace() is tracing
    assert all(weight.grad is None and weight.requires_grad for weight in network.parameters())
    assert not logging.getLogger("auto-attack").disabled
    assert capsys.readouterr() == ("", "")


def test_few_classes() -> None:
    assert plan_for(10, STANDARD).targets == 9 and plan_for(10, STANDARD).note == ""
    assert (plan_for(4, STANDARD).attacks, plan_for(4, STANDARD).targets) == (STANDARD, 3)
    three = plan_for(3, STANDARD)
    assert three.attacks == ("apgd-ce", "apgd-dlr", "fab-t", "square") and three.targets == 2
    assert "there are 3: apgd-dlr ran" in three.note
    two = plan_for(2, STANDARD)
    assert two.attacks == ("apgd-ce", "fab-t", "square") and two.targets == 1
    assert "there are 2: it was left out" in two.note
    with pytest.raises(MeasureError, match="add apgd-ce"):
        AutoAttackSurvival(attacks=("apgd-t",)).plan(2)
    with pytest.raises(MeasureError, match="at least 2 classes"):
        AutoAttackSurvival().plan(1)


@pytest.mark.parametrize("classes", [2, 3])
def test_it_runs_on_few_classes(plane: Any, classes: int) -> None:
    network, images, labels, ids = plane(classes)
    true = network.distances(images, labels, 1)
    rows = np.argsort(true)[:6]
    measure = AutoAttackSurvival(epsilons=float(true[rows].max() * 1.05), attacks=STANDARD[:3])
    columns = measure.from_model(network, images[rows], labels[rows], ids[rows], seed=0)
    assert columns[measure.series()[0].key].tolist() == [0.0] * 6
    assert (columns["broken_by"] >= 1).all()


def test_nan_for_an_answer_is_broken(plane: Any) -> None:
    network, images, labels, ids = plane(4)
    labels[:] = 0
    network.weights[0] = 0.0
    base = network.weights.clone()

    def sick(points: torch.Tensor) -> torch.Tensor:
        logits = (points - 0.5).flatten(1) @ base.T * 0 + torch.tensor([9.0, 0.0, 1.0, 2.0]) + points.mean() * 0
        off = (points.unsqueeze(1) - images).abs().flatten(2).amax(2).amin(1) > 1e-4
        logits[off, 0] = torch.nan
        return logits

    measure = AutoAttackSurvival(epsilons=0.01, attacks=("apgd-ce",))
    columns = measure.from_model(sick, images[:3], labels[:3], ids[:3], seed=0)
    assert columns[measure.series()[0].key].tolist() == [0, 0, 0]
    assert columns["non_finite"].tolist() == [1, 1, 1]


@pytest.mark.long
def test_a_class_that_is_broken_costs_nothing_more(plane: Any) -> None:
    network, images, labels, ids = plane(4)
    weak = labels == labels[0]
    images[weak] = 0.5 + 1e-3 * (images[weak] - 0.5)
    epsilon = float(network.distances(images[~weak], labels[~weak], 1).min() / 2)
    measure = AutoAttackSurvival(epsilons=(epsilon / 2, epsilon), attacks=STANDARD[:3])
    network.seen.clear()
    columns = measure.from_model(network, images, labels, ids, seed=0)
    assert set(columns["broken_by"][weak.numpy()]) == {CODES["apgd-ce"]}
    assert set(columns["broken_by"][~weak.numpy()]) == {-1}
    ended = columns["queries"][weak.numpy()].max()
    assert 10 * ended < columns["queries"][~weak.numpy()].min()
    assert sum(len(batch) for batch in network.seen) < columns["queries"].sum() + 3 * len(images)
