"""The probe's cheap attacks: what each sees on a classifier whose boundary is known, and on masked ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.defences import turned
from services.measures.attacks.margins import Network
from services.measures.probes.budget import PARTS, Guard, ProbePlan
from services.measures.probes.cheap_attacks import climb, noise, other_side, probe, square, transferred, unbounded
from services.measures.probes.probed import Probed
from services.measures.probes.slopes import Slopes

WHOLE = ProbePlan(steps=6, parts=PARTS, unbounded=4, draws=6, given=2, large=2, more=4, queries=60)
PAIRED = ("weaker-than-noise", "weaker-than-shorter", "weaker-than-black-box", "weaker-than-other-loss:margin")


def probed(network: Network, images: Any, labels: Any, ids: Any, epsilon: float, norm: Any = "Linf") -> Probed:
    return Probed(network, images, labels, ids, Guard(norm, epsilon, ("ce",)), 0)


def flipped(network: Network) -> Network:
    return lambda images: network(turned(images, lambda slope: -slope))


def permuted(network: Network) -> Network:
    order = torch.from_numpy(np.random.default_rng(1).permutation(36))
    return lambda images: network(turned(images, lambda slope: slope.flatten(1)[:, order].view_as(slope)))


def detached(network: Network) -> Network:
    return lambda images: network(images.detach()) + 0 * images.sum()


def infinite(network: Network) -> Network:
    return lambda images: network(turned(images, lambda slope: slope / 0))


def saturated(network: Network) -> Network:
    """Its slope is a millionth of a millionth of what it answers."""
    return lambda images: (plain := network(images)).detach() + 1e-12 * (plain - plain.detach())


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_a_sound_gradient_shows_no_sign(plane: Any, norm: Any) -> None:
    """Half of the samples can be broken, and are; those that cannot be are not, by anything."""
    network, images, labels, ids = plane(4)
    true = network.distances(images, labels, 1 if norm == "Linf" else 2)
    radius = float(np.median(true))
    columns = probe(probed(network, images, labels, ids, radius, norm), WHOLE, torch.ones(24, dtype=torch.bool))
    for name in ("zero-gradient", "non-finite-gradient", "saturated-output", "unpredictive-gradient"):
        assert not columns[name].any(), name
    for name in PAIRED:
        assert not columns[name][true > radius].any(), f"{name} broke what nothing can"
    assert columns["weaker-than-other-loss:margin"][true < 0.9 * radius].all()
    assert not (columns["survives-unbounded"] == 1).any()


@pytest.mark.parametrize(
    ("mask", "sign", "share"),
    [
        (flipped, "unpredictive-gradient", 1.0),
        (permuted, "unpredictive-gradient", 0.3),
        (detached, "zero-gradient", 1.0),
        (infinite, "non-finite-gradient", 1.0),
        (saturated, "saturated-output", 1.0),
    ],
)
def test_a_masked_gradient_is_seen(plane: Any, mask: Callable[[Network], Network], sign: str, share: float) -> None:
    network, images, labels, ids = plane(4)
    columns = probe(probed(mask(network), images, labels, ids, 0.05), WHOLE, torch.ones(24, dtype=torch.bool))
    assert (columns[sign] == 1).mean() >= share


def test_samples_that_the_attack_broke_give_adversarials_and_no_more(plane: Any) -> None:
    network, images, labels, ids = plane(4)
    stands = torch.arange(24) % 2 == 0
    columns = probe(probed(network, images, labels, ids, 0.1), WHOLE, stands)
    for name in (*PAIRED, "survives-unbounded"):
        assert (columns[name][~stands.numpy()] == -1).all(), name
    moved = np.abs(columns["points"] - images.flatten(1).numpy()).max(1)
    assert (moved > 0.05).all() and (moved <= 0.1).all()
    assert (columns["unpredictive-gradient"] >= 0).all()


def test_without_gradients_only_the_attacks_that_are_planned(plane: Any) -> None:
    network, images, labels, ids = plane(4)
    standing = torch.ones(24, dtype=torch.bool)
    columns = probe(probed(network, images, labels, ids, 0.1), ProbePlan(draws=2), standing, gradients=False)
    assert set(columns) == {"weaker-than-noise", "points"}
    black_box = Probed(network, images, labels, ids, Guard("Linf", 0.1, ()), 0)
    columns = probe(black_box, ProbePlan(draws=2, queries=30), standing)
    assert set(columns) == {"weaker-than-noise", "weaker-than-black-box", "points"}


def test_a_sample_does_not_depend_on_its_batch(plane: Any) -> None:
    network, images, labels, ids = plane(4)
    stands = torch.arange(24) % 3 > 0
    whole = probe(probed(network, images, labels, ids, 0.03), WHOLE, stands)
    parts = [
        probe(probed(network, images[rows], labels[rows], ids[rows], 0.03), WHOLE, stands[rows])
        for rows in (slice(0, 9), slice(9, 10), slice(10, 24))  # nothing stands in the second
    ]
    for name, column in whole.items():
        joined = np.concatenate([part[name] for part in parts])
        assert np.array_equal(column, joined), name


def test_attacks_that_begin_at_the_image_share_its_gradient(plane: Any) -> None:
    """The same answers, and a pass less of every sample for each attack after the first of its loss."""
    network, images, labels, ids = plane(4)
    case = probed(network, images, labels, ids, 0.03)
    slopes, alone = Slopes(case), []
    for loss in ("margin", "margin", "dlr", "ce", "ce"):
        network.seen.clear()
        expected = climb(case, loss, 3)
        alone.append(sum(map(len, network.seen)))
        network.seen.clear()
        shared = climb(case, loss, 3, slopes=slopes)
        alone[-1] -= sum(map(len, network.seen))
        assert all(torch.equal(*pair) for pair in zip(expected, shared, strict=True))
    assert alone == [0, 24, 0, 0, 24]


def test_the_other_side_is_looked_at_until_it_has_said_enough(plane: Any) -> None:
    """Whatever the batches; what comes after is not looked at."""
    network, images, labels, ids = plane(4)
    plan = ProbePlan(steps=6, draws=4)
    margin = network.distances(images, labels, 1)
    case = probed(network, images, labels, ids, float(np.median(margin)))
    names = ("weaker-than-noise", "weaker-than-other-loss:margin")
    whole = probe(case, plan, torch.ones(24, dtype=torch.bool), gradients=False)
    assert 5 < (whole[names[1]] == 0).sum() < 19
    for most in (0, 3, 5, 30):
        columns, more = other_side(case, plan, dict.fromkeys(names, most))
        for name in names:
            left_before = np.cumsum(whole[name] == 0) - (whole[name] == 0)
            assert np.array_equal(columns[name], np.where(left_before <= most, whole[name], -1))
            assert (more[name] < 0) is bool((whole[name] == 0).sum() > most)
        parts, left = [], dict.fromkeys(names, most)
        for rows in (slice(0, 7), slice(7, 24)):
            some, left = other_side(
                probed(network, images[rows], labels[rows], ids[rows], case.guard.epsilon), plan, left
            )
            parts.append(some)
        for name in names:
            assert np.array_equal(np.concatenate([part[name] for part in parts]), columns[name])
    network.seen.clear()
    other_side(case, plan, dict.fromkeys(names, 0))
    assert sum(map(len, network.seen)) < 0.8 * 24 * (4 + 7)


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_everything_tried_lies_in_the_ball(plane: Any, norm: Any) -> None:
    network, images, labels, ids = plane(4)
    network.seen.clear()
    case = probed(network, images, labels, ids, 0.05, norm)
    noise(case, 4), climb(case, "margin", 3), climb(case, "dlr", 3), climb(case, "ce", 1), square(case, 20)
    order = torch.inf if norm == "Linf" else 2
    for points in network.seen:
        gaps = (points.double().flatten(1).unsqueeze(1) - images.double().flatten(1)).norm(p=order, dim=2).amin(1)
        assert gaps.max() <= 0.05 and points.min() >= 0 and points.max() <= 1


def test_a_ball_that_holds_grey_counts_only_labels_that_grey_has_not(plane: Any) -> None:
    """The gradient leads nowhere: all stand, but a sample labelled as grey is may do so rightly."""
    network, images, labels, ids = plane(4)
    left = unbounded(probed(detached(network), images, labels, ids, 0.01), 4)
    grey = int(network(torch.full((1, 1, 6, 6), 0.5)).argmax())
    assert ((left == -1) == (labels == grey)).all() and (left[labels != grey] == 1).all()


def test_adversarials_of_another_model(plane: Any) -> None:
    network, images, labels, _ = plane(4)
    assert not transferred(network, images, labels).any()
    assert transferred(network, 1 - images, labels).any()
    assert transferred(lambda points: network(points) * torch.nan, images, labels).all()
