"""Red, green and blue in another order: the probe is tried both ways, and more samples where the other looks better."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from services.errors import Problem
from services.loading.models.contract import ContractedNetwork
from services.loading.preflight.judgement import LEVEL
from services.loading.preflight.passes import run
from services.loading.protocols import LoadedModel
from services.numerics.tails import gained_by_chance
from services.records import InputContract

if TYPE_CHECKING:
    from services.loading.preflight.probe import Probe

GOOD = 0.5
"""Least accuracy in the other order: a network that guesses in both is broken in another way."""
FEW_ERRORS = 0.02
"""A share of errors that no other order can improve on noticeably."""


def channel_problems(
    loaded: LoadedModel,
    probe: Probe,
    logits: NDArray[np.float32],
    device: str,
    chunk: int,
    wider: Callable[[], Probe] | None = None,
) -> list[Problem]:
    """A problem when the other channel order is good and better by an exact McNemar test at `LEVEL`.

    Args:
        logits: (n, K) of the probe in the declared order.
        wider: a larger probe; asked for only where the first one has the other order ahead.
    """
    network = loaded.network
    if (
        not isinstance(network, ContractedNetwork)
        or probe.images.shape[1] != 3
        or logits.shape[1] != len(probe.classes)
    ):
        return []
    here = logits.argmax(axis=1) == probe.labels
    if network.contract.channels == 1 or here.mean() > 1 - FEW_ERRORS:
        return []
    tried = [(other, _right(network, other, probe, device, chunk)) for other in _others(network.contract)]
    best, there = max(tried, key=lambda pair: int(pair[1].sum()))
    if there.sum() > here.sum() and wider is not None:
        probe = wider()
        here, there = (_right(network, contract, probe, device, chunk) for contract in (network.contract, best))
    gained, lost = int((there & ~here).sum()), int((here & ~there).sum())
    right, count = int(here.sum()), len(probe.labels)
    if gained_by_chance(gained, lost) >= LEVEL or right + gained - lost < GOOD * count:
        return []
    found = f"accuracy {right / count:.1%} with it and {(right + gained - lost) / count:.1%} as {best.channel_order}"
    turned = "" if best.mean == network.contract.mean else ", with input.mean and input.std in that order"
    remedy = f"set input.channel_order: {best.channel_order}{turned}, or write the samples as RGB"
    expected = f"{network.contract.channel_order}, as declared"
    return [Problem(f"{loaded.spec.name} (input)", expected, f"{found}, on {count} samples", remedy)]


def _others(contract: InputContract) -> list[InputContract]:
    """The other order, with the constants as they are and turned round with it."""
    other = replace(contract, channel_order="BGR" if contract.channel_order == "RGB" else "RGB")
    if contract.mean is None or contract.std is None or len(contract.mean) != 3:
        return [other]
    return [other, replace(other, mean=contract.mean[::-1], std=contract.std[::-1])]


def _right(
    network: ContractedNetwork, contract: InputContract, probe: Probe, device: str, chunk: int
) -> NDArray[np.bool_]:
    tried = network.under(contract).to(device)
    right: NDArray[np.bool_] = run(tried, probe.images, device, chunk).argmax(axis=1) == probe.labels
    return right
