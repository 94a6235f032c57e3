"""No gate passes on a network behind a broken defence that an adaptive attack's upper limit would fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import adequacy, defences

EPSILON = 0.15
QUICK = ("plain", "checkered")
MASKED = {"quantised", "thermometer", "jpeg", "resized", "detached", "flipped", "permuted", "rounded"}
MASKED |= {
    "rounded-softmax",
    "sigmoid",
    "saturated",
    "rippled",
    "cold",
    "smoothed",
    "half-quantised",
    "checkered",
    "two-classes",
}
"""Of the rest PGD finds what the adaptive attack finds, within a few points."""
NEAR = {"noisy", "smoothed"}
"""Shown as inadequate or not, as chance has it: what a probe of 96 samples breaks counts against a pass in any case."""


def _train(folder: Path) -> None:
    adequacy.trained(folder / "plain.safetensors")
    adequacy.trained(folder / "smoothed.safetensors", 0.9)


@pytest.mark.parametrize(
    "defence", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in defences.NAMES]
)
def test_no_gate_passes_that_an_adaptive_attack_fails(
    defence: str, once: Callable[[str, Callable[[Path], None]], Path], tmp_path: Path
) -> None:
    weights = once("broken-defences", _train) / ("smoothed" if defence == "smoothed" else "plain")
    found = adequacy.row(adequacy.on_digits(defence, f"{weights}.safetensors", EPSILON), str(tmp_path))
    (attack,) = found.model.attacks
    assert not found.missed
    if defence not in NEAR:
        assert (attack.adequacy == "inadequate") is (defence in MASKED), attack.signs
    unseen = any(found.pgd[metric] > found.upper[metric] for metric in adequacy.METRICS)
    assert defence not in MASKED or unseen, "PGD alone would have been believed"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "epsilon"), adequacy.COLOURED)
def test_one_useful_colour_of_three_is_no_robustness(
    name: str, epsilon: float, shared_data: Path, tmp_path: Path
) -> None:
    found = adequacy.row(adequacy.on_cifar10(shared_data, name, "two-channels", epsilon, 300), str(tmp_path))
    (attack,) = found.model.attacks
    assert not found.missed and found.pgd["aggregate"] > found.upper["aggregate"]
    assert {"In channel 1", "In channel 2"} <= {sign.sentence.partition(",")[0] for sign in attack.signs if sign.shown}


@pytest.mark.slow
@pytest.mark.parametrize("name", adequacy.STANDING)
def test_networks_trained_with_and_without_attacks_raise_no_alarm(name: str, shared_data: Path, tmp_path: Path) -> None:
    model = {"name": name, "uri": f"factory:benchmarks.zoo:audited?data={shared_data}&name={name}"}
    samples = {"uri": f"npz:{shared_data}/cifar10/test.npz", "limit": 300}
    result = adequacy.audited(model, samples, 8 / 255, str(tmp_path), adequacy.Costs())
    assert result.attacks[0].adequacy == "adequate", result.attacks[0].reasons
