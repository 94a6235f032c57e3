"""PGD against closed forms, and the bookkeeping around it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from services.measures.attacks.descent import Descent, attack_curve
from services.measures.attacks.margins import SMALLEST
from services.measures.cw import Cw
from services.measures.pgd import Pgd


@pytest.mark.parametrize(("norm", "dual"), [("Linf", 1), ("L2", 2)])
@pytest.mark.parametrize("measure", [Pgd, Cw])
def test_survival_is_exact_on_two_classes(plane: Any, norm: str, dual: float, measure: type[Pgd]) -> None:
    network, images, labels, ids = plane(2)
    true = network.distances(images, labels, dual)
    radii = tuple(np.quantile(true, [0.2, 0.5, 0.8]) + 1e-5)
    attack = measure(epsilons=radii, norm=norm, steps=30, step_size=None if norm == "Linf" else radii[2] / 2)
    columns = attack.from_model(network, images, labels, ids, seed=0)
    for radius, series in zip(radii, attack.series(), strict=True):
        decided = np.abs(true - radius) > 0.003 * radius
        assert np.array_equal(columns[series.key][decided] == 1, (true > radius)[decided])
        assert decided.sum() > 18


def test_a_confident_network_is_no_harder(plane: Any) -> None:
    network, images, labels, ids = plane(2)
    radius = float(np.median(network.distances(images, labels, 1)))
    network.weights *= 1e4
    columns = Pgd(epsilons=radius * 1.01).from_model(network, images, labels, ids, seed=0)
    assert columns[Pgd(epsilons=radius * 1.01).series()[0].key].mean() <= 0.5
    assert columns["zero_gradient"].max() == 0


def test_every_pass_stays_in_the_ball(plane: Any) -> None:
    network, images, labels, ids = plane(5)
    network.weights *= 0.01
    network.weights[int(labels[0])] += 0
    epsilon = 1e-3
    keep = torch.from_numpy(network.distances(images, labels, 1) > epsilon * 1.1)
    images, labels, ids = images[keep], labels[keep], ids[keep.numpy()]
    survival = attack_curve(network, images, labels, ids, (Descent(epsilon, epsilon / 2, 10),), seed=0)
    assert survival.survived.all() and len(network.seen) == 12
    for points in network.seen:
        assert (points.double() - images.double()).abs().max() <= epsilon


def test_curve_falls_and_broken_samples_cost_nothing_more(plane: Any) -> None:
    network, images, labels, ids = plane(4)
    true = network.distances(images, labels, 1)
    curve = tuple(Descent(float(e), float(e) / 4, 10, restarts=2) for e in np.quantile(true, [0.1, 0.4]))
    survival = attack_curve(network, images, labels, ids, curve, seed=0)
    assert (survival.survived[1] <= survival.survived[0]).all()
    never = survival.survived[1]
    assert (survival.tally.queries.numpy()[never] == 1 + 2 * 2 * 11).all()
    assert survival.tally.queries.numpy()[~survival.survived[0]].max() < 1 + 2 * 11
    assert sum(len(points) for points in network.seen) == int(survival.tally.queries.sum())
    assert min(len(points) for points in network.seen) >= SMALLEST
    assert set(survival.broken_by[~never]) <= {1, 2} and (survival.broken_by[never] == -1).all()


def test_misclassified_samples_are_not_attacked(plane: Any) -> None:
    network, images, labels, ids = plane(3)
    labels[:5] = (labels[:5] + 1) % 3
    columns = Pgd(epsilons=1e-4).from_model(network, images, labels, ids, seed=0)
    assert columns["correct"].tolist() == [0] * 5 + [1] * 19
    assert columns["queries"][:5].tolist() == [1] * 5
    assert columns["broken_by"][:5].tolist() == [0] * 5
    assert columns[Pgd(epsilons=1e-4).series()[0].key].tolist() == [0] * 5 + [1] * 19


def test_nan_and_infinite_logits_are_broken(plane: Any) -> None:
    network, images, labels, ids = plane(3)

    def sick(points: torch.Tensor) -> torch.Tensor:
        logits = network(points).clone()
        moved = (points - images[0]).abs().flatten(1).amax(1)
        return torch.where(((moved > 0) & (moved < 0.01)).unsqueeze(1), torch.nan, logits)

    columns = Pgd(epsilons=1e-4).from_model(sick, images[:9], labels[:9], ids[:9], seed=0)
    assert columns[Pgd(epsilons=1e-4).series()[0].key].tolist() == [0] + [1] * 8
    assert columns["non_finite"].tolist() == [1] + [0] * 8
    assert all(np.isfinite(column).all() for column in columns.values())


def test_zero_and_nan_gradients_are_counted_and_not_read_as_broken(plane: Any) -> None:
    network, images, labels, ids = plane(3)
    flat = Pgd(epsilons=1e-4).from_model(lambda x: network((x * 64).round() / 64), images, labels, ids, seed=0)
    stands = flat["broken_by"] == -1
    assert stands.sum() > 12 and (flat["zero_gradient"][stands] == 1).all()

    def poisoned(points: torch.Tensor) -> torch.Tensor:
        return network(points) + ((points - points.detach()).square().sum(dim=(1, 2, 3)).sqrt() * 1.0).unsqueeze(1)

    columns = Pgd(epsilons=1e-4).from_model(poisoned, images, labels, ids, seed=0)
    assert columns[Pgd(epsilons=1e-4).series()[0].key].all() and columns["zero_gradient"].min() == 1


def test_seed_and_id_decide_the_start(plane: Any) -> None:
    network, images, labels, ids = plane(3)
    how = (Descent(0.01, 0.001, 1),)
    for seed in (0, 0, 1):
        attack_curve(network, images, labels, ids, how, seed=seed)
    starts = network.seen[1::3]
    assert torch.equal(starts[0], starts[1]) and not torch.equal(starts[0], starts[2])


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_looking_seldom_changes_no_column(plane: Any, monkeypatch: pytest.MonkeyPatch, norm: Any) -> None:
    network, images, labels, ids = plane(4)
    order = 1 if norm == "Linf" else 2
    radii = tuple(float(np.quantile(network.distances(images, labels, order), share)) for share in (0.3, 0.7))
    measure, result = Pgd(epsilons=radii, steps=9, norm=norm, restarts=2), []
    for look in (1, 4, 100):
        monkeypatch.setattr("services.measures.attacks.descent.LOOK", {"cpu": look})
        result.append(measure.from_model(network, images, labels, ids, seed=0))
    assert 0 < result[0][measure.series()[1].key].sum() < len(images)
    for other in result[1:]:
        for key, column in result[0].items():
            assert np.array_equal(other[key], column), key
