"""The class that each sample went to, and the image that took it there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from services.measures.apgd import Apgd
from services.measures.autoattack import AutoAttackSurvival
from services.measures.catalogue import measure_from
from services.measures.cw import Cw
from services.measures.minimal import Minimal
from services.measures.pgd import Pgd
from services.measures.square import Square

EPSILON = 0.02
ATTACKS = {
    "pgd": Pgd(epsilons=(EPSILON / 4, EPSILON)),
    "pgd-l2": Pgd(epsilons=(EPSILON * 4,), norm="L2"),
    "cw": Cw(epsilons=EPSILON),
    "apgd": Apgd(epsilons=EPSILON, steps=5),
    "square": Square(epsilons=EPSILON, queries=50),
    "autoattack": AutoAttackSurvival(epsilons=EPSILON, attacks=("apgd-ce",)),
    "minimal": Minimal(attacks=("deepfool", "fmn"), search_limit=0.5),
}


@pytest.fixture
def mislabelled(plane: Any) -> Any:
    """A network of four classes that is wrong about the first three samples."""
    network, images, labels, ids = plane(4)
    labels = labels.clone()
    labels[:3] = (labels[:3] + 1) % 4
    return network, images, labels, ids


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_each_broken_sample_went_where_its_adversarial_is_taken(mislabelled: Any, attack: Any) -> None:
    network, images, labels, ids = mislabelled
    columns = attack.from_model(network, images, labels, ids, seed=0)
    attacked, last = columns["attacked"], columns[attack.series()[-1].key]
    predicted = network(images).argmax(dim=1).numpy()
    misclassified = columns["correct"] == 0
    assert np.array_equal(attacked[misclassified], predicted[misclassified]) and misclassified.sum() >= 3
    stands = last > 0 if attack.series()[0].binary else columns["censored"] > 0
    assert np.array_equal(attacked[stands], labels.numpy()[stands])
    rows = np.flatnonzero(~stands & ~misclassified)
    assert len(rows) > 2 and (attacked[rows] != labels.numpy()[rows]).all()
    some, known = rows[::2], {name: values[rows[::2]] for name, values in columns.items()}
    picked = torch.from_numpy(some)
    points = attack.adversarials(network, images[picked], labels[picked], ids[some], known, seed=0)
    taken = network(points).scatter(1, labels[picked].unsqueeze(1), -torch.inf).argmax(dim=1).numpy()
    assert np.array_equal(taken, attacked[some]) or attack.batch_dependent
    assert (points != images[picked]).flatten(1).any(dim=1).all()
    if attack.name == "minimal":
        lengths = (points.double() - images[picked].double()).flatten(1).norm(dim=1).numpy()
        assert lengths == pytest.approx(columns["minimal/l2"][some])


def test_logits_that_are_no_numbers_lead_to_no_class(plane: Any) -> None:
    network, images, labels, ids = plane(3)

    def nonsense(points: torch.Tensor) -> torch.Tensor:
        moved = (points - images[:1]).abs().flatten(1).amax(dim=1, keepdim=True) > 0
        return torch.where(moved, torch.nan, network(points))

    columns = Pgd(epsilons=EPSILON).from_model(nonsense, images[:1], labels[:1], ids[:1], seed=0)
    assert columns["correct"][0] == 1 and columns["attacked"][0] == -1


def test_a_new_column_makes_tables_again_and_leaves_the_definition(plane: Any) -> None:
    attack = Pgd()
    assert '"layout": 2' in attack.canonical() and measure_from(attack.canonical()) == attack
    assert attack.series()[0].version == 1
