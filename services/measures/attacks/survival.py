"""Attacks within balls of rising radius, each on what the ones before it left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from services.measures.attacks.margins import Network, judged, passes
from services.measures.attacks.tally import Tally


class Attack(Protocol):
    """One attack at one radius."""

    @property
    def code(self) -> int:
        """What `Survival.broken_by` says of the samples it breaks: from 1 up."""
        ...

    def __call__(self, rows: torch.Tensor, tally: Tally) -> torch.Tensor:
        """Attack the samples `rows` (m,) and return which of them are broken, (m,)."""
        ...


@dataclass(frozen=True, slots=True)
class Survival:
    """What attacks at rising radii left.

    Attributes:
        survived: (E, n), never rising along E.
        correct: (n,), correctly classified with finite logits.
        broken_by: (n,), 0 for misclassified samples, the code of the attack that broke it, -1 where nothing did.
        attacked: (n,), the class that a broken sample went to, the label of an unbroken one, -1 where logits were not
            finite.
        tally: counters.
    """

    survived: NDArray[np.bool_]
    correct: NDArray[np.bool_]
    broken_by: NDArray[np.int64]
    attacked: NDArray[np.int64]
    tally: Tally


def clean_pass(network: Network, images: torch.Tensor, labels: torch.Tensor, tally: Tally) -> torch.Tensor:
    """Which samples are classified correctly with finite logits, (n,)."""
    with torch.no_grad():
        margin, rival = judged(passes(network, images), labels)
    rows = torch.arange(len(images), device=images.device)
    tally.saw(rows, margin)
    tally.fell(rows, ~(margin > 0), rival, images)
    return margin > 0


def survive(
    network: Network,
    images: torch.Tensor,
    labels: torch.Tensor,
    curve: Sequence[Sequence[Attack]],
    *,
    keep: bool = False,
) -> Survival:
    """Run the attacks of each radius, smallest radius first, each on the samples that still stand.

    Args:
        network: maps images in [0, 1] to logits (n, K).
        images, labels: (n, C, H, W), (n,).
        curve: for each radius its attacks in order.
        keep: whether the tally keeps the points that broke samples.
    """
    tally = Tally(len(images), images.device, images.clone() if keep else None)
    alive = clean_pass(network, images, labels, tally)
    correct, survived = alive.cpu().numpy().copy(), []
    broken_by = torch.where(alive, -1, 0)
    for attacks in curve:
        for attack in attacks:
            rows = alive.nonzero().squeeze(1)
            if len(rows):
                broken = rows[attack(rows, tally)]
                alive[broken], broken_by[broken] = False, attack.code
        survived.append(alive.cpu().numpy().copy())
    attacked = torch.where(alive, labels, tally.attacked)
    return Survival(np.stack(survived), correct, broken_by.cpu().numpy(), attacked.cpu().numpy(), tally)
