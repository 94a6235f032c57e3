"""Attacks against public verdicts and published figures on real networks.

No attack may break a sample that a verifier proved robust; and one that is any good reaches the published figures.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import zoo
from services.measures.apgd import Apgd
from services.measures.cw import Cw
from services.measures.pgd import Pgd


def verdicts(data: Path, verdict: str) -> dict[tuple[str, float], list[int]]:
    """Image rows by (network, epsilon)."""
    by_name: dict[tuple[str, float], list[int]] = {}
    with (data / "oracles" / "vnncomp.csv").open() as file:
        for row in csv.DictReader(file):
            if row["verdict"] == verdict:
                key = (row["model_id"], float(row["linf_eps_pixel"]))
                by_name.setdefault(key, []).append(int(row["image_index"]))
    return by_name


def broken(data: Path, verdict: str, *, starts: int, steps: int) -> list[bool]:
    """Whether PGD, CW or APGD breaks each sample from any of several starts; a start is a row of its own."""
    result: list[bool] = []
    for (name, epsilon), rows in verdicts(data, verdict).items():
        network = zoo.load(data, name)
        images, labels, _ = zoo.images(data, "cifar10/test.npz", [row for row in rows for _ in range(starts)])
        fell = np.zeros(len(rows), dtype=bool)
        attacks: list[Any] = [each(epsilons=epsilon, steps=steps, step_size=epsilon / 8) for each in (Pgd, Cw)]
        for attack in [*attacks, Apgd(epsilons=epsilon, steps=steps, targets=1)]:
            columns = attack.from_model(network, images, labels, np.arange(len(images)), seed=0)
            assert columns["correct"].all()
            fell |= (columns[attack.series()[0].key].reshape(len(rows), starts) == 0).any(axis=1)
        result += fell.tolist()
    return result


@pytest.mark.slow
@pytest.mark.long
def test_no_proven_sample_breaks(shared_data: Path) -> None:
    result = broken(shared_data, "robust", starts=1, steps=6)
    assert len(result) == 64 and not any(result)


@pytest.mark.slow
def test_no_proven_sample_breaks_under_a_strong_attack(shared_data: Path) -> None:
    assert not any(broken(shared_data, "robust", starts=16, steps=100))


@pytest.mark.long
def test_most_vulnerable_samples_break(shared_data: Path) -> None:
    result = broken(shared_data, "vulnerable", starts=8, steps=40)
    assert len(result) == 4 and sum(result) >= 3


def accuracy(data: Path, name: str, file: str, measure: Pgd, rows: slice) -> list[float]:
    """Adversarial accuracy at each radius on some rows of a test set."""
    images, labels, ids = zoo.images(data, file, rows)
    network, parts = zoo.load(data, name), np.array_split(np.arange(len(ids)), max(1, len(ids) // 500))
    results = [measure.from_model(network, images[p], labels[p], ids[p], seed=0) for p in parts]
    return [float(np.concatenate([part[each.key] for part in results]).mean()) for each in measure.series()]


CURVE = Pgd(epsilons=("1/255", "2/255"))
STRONGER = Cw(epsilons=("1/255", "2/255"), restarts=3)
"""On 600 images cross-entropy leaves a point more than the margin (56.8 and 55.8 % at 2/255): published is 54.82."""

WHOLE = 10_000
PUBLISHED = [
    ("cifar10_resnet2b", "cifar10/test.npz", WHOLE, STRONGER, [(0.5716, 0.6324), (0.2688, 0.5582)]),
    ("cifar10_base_kw", "cifar10/test.npz", WHOLE, Pgd(epsilons="2/255"), [(0.4546, 0.5853)]),
    ("cifar10_wide_kw", "cifar10/test.npz", WHOLE, Pgd(epsilons="2/255"), [(0.4784, 0.6162)]),
    ("mnist_kw_01", "mnist/t10k.npz", WHOLE, Pgd(epsilons=0.1, steps=40), [(0.942, 0.962)]),
    ("mnist_lenet5_adv", "mnist/t10k.npz", 2_000, Pgd(epsilons=0.3, steps=40, step_size=0.01), [(0.913, 0.949)]),
    ("mnist_lenet5_std", "mnist/t10k.npz", 2_000, Pgd(epsilons=0.3, steps=40, step_size=0.01), [(0.0, 0.001)]),
]
"""Network, images, how many of them, attack, and limits of the survival at each radius.

On whole test sets the lower limit is what verifiers proved, and no attack may leave less; the upper one is what the
published attack left and a point, for it is not ours. On 2,000 images (`mnist_lenet5_adv`, published 93.2 %) three
standard errors, 1.7 points, are allowed on each side.
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "file", "count", "measure", "limits"), PUBLISHED, ids=[row[0] for row in PUBLISHED])
def test_published_figures(
    shared_data: Path, name: str, file: str, count: int, measure: Pgd, limits: list[tuple[float, float]]
) -> None:
    result = accuracy(shared_data, name, file, measure, slice(0, count))
    assert all(low <= value <= high for value, (low, high) in zip(result, limits, strict=True)), result


@pytest.mark.long
def test_published_figures_on_a_subset(shared_data: Path) -> None:
    """500 images, so within 6.6 points (three standard errors) of 62.24 and 54.82 for PGD on resnet2b."""
    result = accuracy(shared_data, "cifar10_resnet2b", "cifar10/test.npz", CURVE, slice(0, 500))
    assert result == pytest.approx([0.6224, 0.5482], abs=0.066)


def test_a_standard_network_falls_altogether(shared_data: Path) -> None:
    measure = Pgd(epsilons=0.3, steps=40, step_size=0.02)
    assert accuracy(shared_data, "mnist_lenet5_std", "mnist/t10k.npz", measure, slice(0, 40)) == [0.0]


def test_pgd_does_not_depend_on_the_batch(shared_data: Path) -> None:
    """But for the last bits: some processors' kernels add in another order when a batch has another shape."""
    network = zoo.load(shared_data, "cifar10_resnet2b")
    images, labels, ids = zoo.images(shared_data, "cifar10/test.npz", slice(0, 16))
    for measure in (Pgd(steps=5, epsilons=("2/255", "8/255"), restarts=2), Cw(steps=5, epsilons=0.5, norm="L2")):
        whole = measure.from_model(network, images, labels, ids, seed=0)
        order = [slice(0, 1), slice(1, 8), slice(8, 16)]
        parts = [measure.from_model(network, images[p], labels[p], ids[p], seed=0) for p in order]
        for name, column in whole.items():
            together = np.concatenate([part[name] for part in parts])
            np.testing.assert_allclose(column, together, rtol=1e-3, atol=1e-4, err_msg=name)
