"""Square attack: its schedule, its reach, and what it needs of the network."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from services.measures.attacks.square_search import HALVINGS, side
from services.measures.pgd import Pgd
from services.measures.square import Square
from services.numerics.evidence.adequacy import Sign, signs
from services.numerics.evidence.signs import paired_count, rate_count


def test_schedule_is_the_papers() -> None:
    def sides(query: int) -> int:
        return side(query, 10_000, share=0.8, pixels=1024, longest=32)

    assert [sides(limit) for limit in HALVINGS] == [29, 20, 14, 10, 7, 5, 4, 3, 2]
    assert sides(10_000) == 1
    assert side(50, 500, share=0.8, pixels=1024, longest=32) == sides(1000)


def test_it_breaks_only_within_the_true_distance(plane: Any) -> None:
    network, images, labels, ids = plane(2)
    true = network.distances(images, labels, 1)
    radius = float(np.median(true) * 1.3)
    measure = Square(epsilons=radius, queries=400)
    columns = measure.from_model(network, images, labels, ids, seed=0)
    broken = columns[measure.series()[0].key] == 0
    assert not broken[true > radius].any()
    assert broken[true < 0.7 * radius].all() and broken.any()
    for points in network.seen[1:]:
        gap = (points.double().unsqueeze(1) - images.double()).abs().flatten(2).amax(2).amin(1)
        assert gap.max() <= radius and points.min() >= 0 and points.max() <= 1


def test_it_does_not_depend_on_the_batch(plane: Any) -> None:
    network, images, labels, ids = plane(4)
    measure = Square(epsilons=(0.005, 0.02), queries=60)
    whole = measure.from_model(network, images, labels, ids, seed=5)
    parts = [measure.from_model(network, images[p], labels[p], ids[p], seed=5) for p in (slice(0, 5), slice(5, 24))]
    for name, column in whole.items():
        assert np.array_equal(column, np.concatenate([part[name] for part in parts])), name


def test_it_uncovers_a_masked_gradient(plane: Any) -> None:
    network, images, labels, ids = plane(2)
    radius = float(np.median(network.distances(images, labels, 1)) * 2)

    def masked(points: torch.Tensor) -> torch.Tensor:
        return network(points.detach()) + (points * 0).sum()

    white, black = Pgd(epsilons=radius), Square(epsilons=radius, queries=300)
    attacked = white.from_model(masked, images, labels, ids, seed=0)
    tables = black.from_model(masked, images, labels, ids, seed=0)
    correct, left = attacked["correct"], attacked[white.series()[0].key]
    zeros = rate_count(Sign.ZERO_GRADIENT, correct, attacked["zero_gradient"] >= 0.5)
    scores = paired_count(Sign.BLACK_BOX, correct, left, tables[black.series()[0].key])
    assert [finding.count for finding in signs([zeros, scores])] == [zeros, scores]
    assert zeros.against == (attacked["broken_by"] == -1).sum() > 12
    assert scores.against > 0.5 * scores.counted
