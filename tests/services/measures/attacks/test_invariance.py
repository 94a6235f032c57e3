"""What does not change a network's answers must not change what attacks find: the scale of its logits, a constant
added to them, soft-max outputs that are declared as such, weights rounded to float16."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from sklearn.datasets import load_digits
from torch import nn

from benchmarks import zoo
from services.loading.models.contract import ContractedNetwork, InputContract
from services.measures.apgd import Apgd
from services.measures.autoattack import AutoAttackSurvival
from services.measures.cw import Cw
from services.measures.minimal import Minimal
from services.measures.pgd import Pgd
from services.measures.square import Square

EPSILON, COUNT = 0.12, 120
Network = Callable[[torch.Tensor], torch.Tensor]
Case = tuple[nn.Module, torch.Tensor, torch.Tensor]


@pytest.fixture(scope="module")
def digits() -> Case:
    """A small network on 8x8 digits, trained for a second, with 120 images that it did not see, and their labels."""
    torch.manual_seed(0)
    pixels, labels = load_digits(return_X_y=True)
    images = torch.from_numpy(pixels / 16).float().view(-1, 1, 8, 8)
    targets = torch.from_numpy(labels)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(150):
        noisy = (images[COUNT:] + 0.15 * torch.randn_like(images[COUNT:])).clamp(0, 1)
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(noisy), targets[COUNT:]).backward()
        optimiser.step()
    return network.eval().requires_grad_(False), images[:COUNT], targets[:COUNT]


def as_probabilities(network: nn.Module) -> Network:
    return ContractedNetwork(nn.Sequential(network, nn.Softmax(dim=1)), InputContract(), outputs="probabilities")


def rounded(network: nn.Module) -> Network:
    return copy.deepcopy(network).half().float()


CHANGES: dict[str, Callable[[nn.Module], Network]] = {
    "times 1e-3": lambda network: lambda images: network(images) * 1e-3,
    "times 1e3": lambda network: lambda images: network(images) * 1e3,
    "plus 100": lambda network: lambda images: network(images) + 100,
    "probabilities": as_probabilities,
    "float16": rounded,
}
ATTACKS: dict[str, Any] = {
    "apgd": Apgd(epsilons=EPSILON, steps=10, targets=3),
    "apgd-ce": Apgd(epsilons=EPSILON, steps=10, losses=("ce",)),
    "apgd L2": Apgd(epsilons=0.6, norm="L2", steps=10, targets=3),
    "pgd": Pgd(epsilons=EPSILON),
    "pgd L2": Pgd(epsilons=0.6, norm="L2", loss="margin"),
    "cw": Cw(epsilons=EPSILON),
    "autoattack": AutoAttackSurvival(epsilons=EPSILON, attacks=("apgd-ce", "apgd-t")),
    "square": Square(epsilons=EPSILON, queries=100),
    "minimal": Minimal(attacks=("deepfool", "fmn"), fmn_steps=30),
}


def survivors(attack: Any, network: Network, images: torch.Tensor, labels: torch.Tensor) -> np.ndarray[Any, Any]:
    scores = attack.from_model(network, images, labels, np.arange(len(images)), seed=0)[attack.series()[0].key]
    return scores > 0.6


SCALE_DEPENDENT = pytest.mark.xfail(
    strict=True,
    reason="Madry's cross-entropy of small logits weighs all other classes alike and aims at none; use apgd",
)
CASES = [
    pytest.param(attack, change, marks=SCALE_DEPENDENT if (attack, change) == ("pgd", "times 1e-3") else ())
    for attack in ATTACKS
    for change in CHANGES
]


@pytest.mark.parametrize(("attack", "change"), CASES)
@pytest.mark.long
def test_survival_does_not_depend_on_how_logits_are_given(digits: Case, attack: str, change: str) -> None:
    network, images, labels = digits
    check(ATTACKS[attack], network, CHANGES[change](network), images, labels)


@pytest.mark.parametrize("change", CHANGES)
def test_apgd_on_a_network_trained_against_attacks(shared_data: Path, change: str) -> None:
    network = zoo.load(shared_data, "mnist_madry_tiny").requires_grad_(False)
    images, labels, _ = zoo.images(shared_data, "mnist/t10k.npz", slice(0, 40))
    check(Apgd(epsilons=0.32, steps=8, targets=2), network, CHANGES[change](network), images, labels)


def check(attack: Any, plain: Network, changed: Network, images: torch.Tensor, labels: torch.Tensor) -> None:
    """Robust accuracies are two points apart at most, and an exact McNemar test does not tell them apart."""
    before, after = survivors(attack, plain, images, labels), survivors(attack, changed, images, labels)
    lost, won = int((before & ~after).sum()), int((after & ~before).sum())
    assert 0.2 < before.mean() < 0.8
    assert abs(lost - won) <= 0.02 * len(images)
    assert lost == won or binomtest(lost, lost + won).pvalue > 0.05
