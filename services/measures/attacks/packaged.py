"""AutoAttack (Croce & Hein 2020, arXiv 2003.01690) from its package, one attack at a time on what is left.

The package draws from torch's global generator, which it seeds itself before each attack. What follows from that: the
same batch and seed give the survivors of the package run alone, bit by bit, and the caller's generators are left as
they were; but a sample's random starts depend on its place in the batch, so another batch size may break a few others.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from services.measures.attacks.margins import Network, judged, passes
from services.measures.attacks.tally import Tally

CODES = {"apgd-ce": 1, "apgd-t": 2, "fab-t": 3, "square": 4, "apgd-dlr": 5}
"""What `broken_by` says of each attack's victims."""

LOGGER = "auto-attack"


@dataclass(frozen=True, slots=True)
class Plan:
    """What can run on a network of K classes.

    Attributes:
        attacks: in order.
        targets: other classes that the targeted attacks try.
        note: what was left out or replaced, and why; "" when nothing was.
    """

    attacks: tuple[str, ...]
    targets: int
    note: str = ""


def plan_for(classes: int, attacks: tuple[str, ...]) -> Plan:
    """Fit the attacks to K classes.

    The targeted DLR loss divides by the third and fourth largest logit and needs K >= 4; the untargeted one needs
    K >= 3 and takes its place there. The targeted attacks try at most K - 1 classes.
    """
    targets = min(9, classes - 1)
    if classes >= 4 or "apgd-t" not in attacks:
        return Plan(attacks, targets)
    why = f"the targeted DLR loss of apgd-t needs 4 classes and there are {classes}"
    if classes == 3:
        return Plan(
            tuple("apgd-dlr" if name == "apgd-t" else name for name in attacks), targets, f"{why}: apgd-dlr ran"
        )
    return Plan(tuple(name for name in attacks if name != "apgd-t"), targets, f"{why}: it was left out")


class Watched:
    """The network, counting images and looking for logits that are NaN or infinite."""

    def __init__(self, network: Network) -> None:
        self.network, self.images, self.unreal = network, 0, False

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        logits = self.network(images)
        self.images += len(images)
        self.unreal |= not bool(logits.isfinite().all())
        return logits


@contextmanager
def undisturbed(network: Network, device: torch.device) -> Iterator[None]:
    """Leave no trace: global generators, gradients of the weights, the debugger's trace function and the log.

    The package's FAB calls `backward`, which would pile up gradients in every weight that asks for one.
    """
    weights = [weight for weight in getattr(network, "parameters", tuple)() if weight.requires_grad]
    logger, tracing = logging.getLogger(LOGGER), sys.gettrace()
    disabled = logger.disabled
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=[device] if device.type == "cuda" else []))
        stack.callback(sys.settrace, tracing)
        stack.callback(setattr, logger, "disabled", disabled)
        for weight in weights:
            stack.callback(weight.requires_grad_, True)
            weight.requires_grad_(False)
        logger.disabled = True
        yield


@dataclass(frozen=True)
class Packaged:
    """One attack of the package at one radius: an `Attack`."""

    network: Network
    images: torch.Tensor
    labels: torch.Tensor
    attack: str
    targets: int
    epsilon: float
    norm: str
    seed: int

    @property
    def code(self) -> int:
        return CODES[self.attack]

    def __call__(self, rows: torch.Tensor, tally: Tally) -> torch.Tensor:
        """As `Attack` says. `queries` grows by the images passed, shared out evenly over the samples attacked; the pass
        after them that shows which class each broken sample went to is not among them.

        The package compares only the largest logit with the label, and could take NaN for an answer. When logits were
        not finite, each sample that stands is attacked again alone, and broken if it meets such logits then.
        """
        broken, unreal = self._run(rows, tally)
        if unreal:
            for place in (~broken).nonzero().squeeze(1).tolist():
                fell, met = self._run(rows[place : place + 1], tally)
                broken[place] = bool(fell.item()) or met
                tally.unreal[rows[place]] |= met
        return broken

    def _run(self, rows: torch.Tensor, tally: Tally) -> tuple[torch.Tensor, bool]:
        watched = Watched(self.network)
        images, labels = self.images.index_select(0, rows).contiguous(), self.labels[rows]
        with undisturbed(self.network, images.device):
            adversarial, _ = self._package(watched).run_standard_evaluation(images, labels, batch_size=len(rows))
        with torch.no_grad():
            broken = (adversarial != images).flatten(1).any(dim=1)
            if len(points := adversarial[broken]):
                margin, rival = judged(passes(self.network, points), labels[broken])
                tally.fell(rows[broken], torch.ones_like(margin, dtype=torch.bool), rival, points)
        tally.queries[rows] += watched.images / len(rows)
        return broken, watched.unreal

    def _package(self, watched: Watched) -> Any:
        from pyautoattack import AutoAttack

        made = AutoAttack(
            watched,
            attacks=[self.attack],
            device=self.images.device,
            eps=self.epsilon,
            norm=self.norm,
            seed=self.seed,
            version="custom",
        )
        made.apgd.n_restarts = made.apgd_targeted.n_restarts = made.fab.n_restarts = 1
        made.apgd_targeted.n_target_classes = made.fab.n_target_classes = self.targets
        made.square.n_queries = 5000
        return made
