"""The smallest adversarial perturbation that several attacks find in a norm, refined and verified.

Guarantee: every distance reported is that of an image that exists in float32, lies in [0, 1] and was seen, in a forward
pass of its own after the search, to change the label (or to make the logits NaN or infinite). It is therefore an upper
bound on the distance to the boundary; nothing is claimed below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from services.measures.attacks.balls import Norm, lengths_of
from services.measures.attacks.margins import Network, judged, passes
from services.measures.attacks.survival import clean_pass
from services.measures.attacks.tally import Tally

HALVINGS = 8
"""Bisection steps along the segment to the clean image: the distance is overshot by less than 1/256."""
DOUBT = 1.5
"""Attacks that agree within this factor are believed: on networks without masked gradients they differ by a fifth."""


class Seeker(Protocol):
    """An attack that looks for a near adversarial."""

    def __call__(
        self, network: Network, images: torch.Tensor, labels: torch.Tensor, tally: Tally, rows: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return points (m, C, H, W) in [0, 1] and which of them are adversarial, (m,)."""
        ...


@dataclass(frozen=True)
class Nearest:
    """What was found for n samples.

    Attributes:
        points: the nearest verified adversarial, (n, C, H, W); the clean image where there is none.
        distances: its distance, float64, (n,): 0 for misclassified samples, infinite where nothing was found.
        attack: the place in the list of the attack that found it, -1 for none.
        attacked: the class that it is taken for, -1 where nothing was found or logits were not finite.
        correct: correctly classified with finite logits.
        tally: counters.
    """

    points: torch.Tensor
    distances: torch.Tensor
    attack: torch.Tensor
    attacked: torch.Tensor
    correct: torch.Tensor
    tally: Tally


def nearest_adversarials(
    network: Network,
    images: torch.Tensor,
    labels: torch.Tensor,
    seekers: Sequence[Seeker],
    referees: Sequence[Seeker] = (),
    *,
    norm: Norm = "L2",
) -> Nearest:
    """Run attacks on the correctly classified samples and keep the smallest verified perturbation of each.

    Seekers run on all of them, referees on the samples that the seekers disagree about: one of them found nothing, or
    its distance is more than `DOUBT` times the smallest. That depends on no other sample.
    """
    tally = Tally(len(images), images.device)
    correct = clean_pass(network, images, labels, tally)
    rows = correct.nonzero().squeeze(1)
    distances = torch.where(correct, torch.inf, 0.0).double()
    attack = torch.full((len(images),), -1, device=images.device)
    nearest = Nearest(images.clone(), distances, attack, tally.attacked, correct, tally)
    farthest = torch.zeros_like(distances)
    for number, seek in enumerate((*seekers, *referees)):
        if number == len(seekers):
            rows = (farthest.isinf() | (farthest > DOUBT * distances)).nonzero().squeeze(1)
        if len(rows):
            lengths = _improve(nearest, network, images, labels, seek, number, rows, norm)
            farthest[rows] = torch.maximum(farthest[rows], lengths)
    return nearest


def _improve(
    nearest: Nearest,
    network: Network,
    images: torch.Tensor,
    labels: torch.Tensor,
    seek: Seeker,
    number: int,
    rows: torch.Tensor,
    norm: Norm,
) -> torch.Tensor:
    """Keep what is nearer in `nearest`; return the distances of this attack's adversarials, infinite where none."""
    own, own_labels = images.index_select(0, rows), labels[rows]
    points, fell = seek(network, own, own_labels, nearest.tally, rows)
    points = bisect(network, own, points, own_labels, fell, nearest.tally, rows)
    seen, rival = _seen(network, points, own_labels, nearest.tally, rows)
    fell = fell & seen
    lengths = torch.where(fell, lengths_of(points.double() - own.double(), norm).flatten(), torch.inf)
    closer = lengths < nearest.distances[rows]
    where = rows[closer]
    nearest.points[where], nearest.distances[where], nearest.attack[where] = points[closer], lengths[closer], number
    nearest.attacked[where] = rival[closer]
    return lengths


def bisect(
    network: Network,
    images: torch.Tensor,
    points: torch.Tensor,
    labels: torch.Tensor,
    adversarial: torch.Tensor,
    tally: Tally,
    rows: torch.Tensor,
) -> torch.Tensor:
    """Move adversarial points (m, C, H, W) towards their images as long as they stay adversarial."""
    near, far = torch.zeros(len(images), device=images.device), torch.ones(len(images), device=images.device)
    kept = adversarial.nonzero().squeeze(1)
    result = points.clone()
    if not len(kept):
        return result
    start, end, near, far = images[kept], points[kept], near[kept], far[kept]
    for _ in range(HALVINGS):
        middle = (near + far) / 2
        trial = torch.lerp(start, end, middle.view(-1, 1, 1, 1)).clamp_(0.0, 1.0)
        fell, _ = _seen(network, trial, labels[kept], tally, rows[kept])
        near, far = torch.where(fell, near, middle), torch.where(fell, middle, far)
        result[kept[fell]] = trial[fell]
    return result


def _seen(
    network: Network, points: torch.Tensor, labels: torch.Tensor, tally: Tally, rows: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Which points are adversarial, and the class that each is taken for."""
    with torch.no_grad():
        margin, rival = judged(passes(network, points), labels)
    tally.saw(rows, margin)
    return ~(margin > 0), rival
