"""Normalisation twice or nowhere: try what the user may have meant, and say so when it is plainly better."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from services.errors import Problem
from services.loading.models.contract import ContractedNetwork
from services.loading.preflight.bounds import TRIED
from services.loading.preflight.judgement import LEVEL
from services.loading.protocols import LoadedModel
from services.numerics.tails import gained_by_chance
from services.records import InputContract

if TYPE_CHECKING:
    from services.loading.preflight.probe import Probe

GAIN = 0.1
"""Least gain in accuracy for an alternative contract to be called better."""
MOST_ERRORS_LEFT = 0.5
"""Share of the errors that the better contract may leave: a weak network can gain a little from a contrast it was not
made for, a wrong contract explains most of its errors."""

CIFAR10 = ((0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616))
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
MNIST = ((0.1307,), (0.3081,))
KNOWN = {"CIFAR-10": CIFAR10, "ImageNet": IMAGENET, "MNIST": MNIST}
"""Mean and standard deviation of the channels of training sets, by which networks are usually normalised."""


def normalisation_problems(
    loaded: LoadedModel, probe: Probe, logits: NDArray[np.float32], device: str, chunk: int
) -> list[Problem]:
    """A problem when another contract is better by `GAIN`, halves the errors, and passes an exact McNemar test
    at `LEVEL`."""
    network = loaded.network
    if not isinstance(network, ContractedNetwork) or logits.shape[1] != len(probe.classes):
        return []
    rows = np.unique(np.linspace(0, len(probe.labels) - 1, TRIED).astype(np.int64))
    right = logits[rows].argmax(axis=1) == probe.labels[rows]
    if right.mean() > 1 - GAIN:
        return []
    tried = [(_right(network, other, probe, rows, device, chunk), advice) for other, advice in _others(network, probe)]
    best = max(tried, key=lambda trial: float(trial[0].mean()))
    if not plainly_better(best[0], right):
        return []
    actual = f"accuracy {right.mean():.1%} with it and {best[0].mean():.1%} otherwise, on {len(rows)} samples"
    return [Problem(f"{loaded.spec.name} (input)", "the network's own normalisation", actual, best[1])]


def _others(network: ContractedNetwork, probe: Probe) -> Iterator[tuple[InputContract, str]]:
    contract = network.contract
    channels = contract.channels or probe.images.shape[1]
    if contract.mean is not None or contract.std is not None:
        advice = "it seems to normalise inside as well: leave input.mean and input.std out"
        yield replace(contract, mean=None, std=None), advice
    if (contract.low, contract.high) == (0.0, 1.0):
        yield (
            replace(contract, high=255.0, mean=None, std=None),
            "it seems to expect [0, 255]: set input.range: [0, 255]",
        )
        yield replace(contract, low=-1.0, mean=None, std=None), "it seems to expect [-1, 1]: set input.range: [-1, 1]"
    else:
        yield (
            replace(contract, low=0.0, high=1.0, mean=None, std=None),
            "it seems to expect [0, 1]: leave input.range out",
        )
    for name, (mean, std) in KNOWN.items():
        if len(mean) == channels and contract.mean is None:
            advice = f"normalised nowhere? with {name}'s constants it does better: set input.mean and input.std"
            yield replace(contract, mean=mean, std=std), advice


def _right(
    network: ContractedNetwork, contract: InputContract, probe: Probe, rows: NDArray[np.int64], device: str, chunk: int
) -> NDArray[np.bool_]:
    from services.loading.preflight.passes import run

    other = network.under(contract).to(device)
    predicted: NDArray[np.bool_] = run(other, probe.images[rows], device, chunk).argmax(axis=1) == probe.labels[rows]
    return predicted


def plainly_better(other: NDArray[np.bool_], present: NDArray[np.bool_]) -> bool:
    """Whether right answers (n,) are more by `GAIN`, leave few of the errors, and pass an exact McNemar test."""
    gained, lost = int(np.sum(other & ~present)), int(np.sum(present & ~other))
    if other.mean() - present.mean() < GAIN or 1 - other.mean() > MOST_ERRORS_LEFT * (1 - present.mean()):
        return False
    return gained_by_chance(gained, lost) < LEVEL
