"""DeepFool in L2 and Linf (Moosavi-Dezfooli et al. 2016, arXiv 1511.04599, algorithm 2 and eq. 11), batched.

One forward pass a step serves all candidate classes; a sample leaves the batch when its label flips. A plane's
normal is cut to the part that does not lead out of [0, 1].
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from services.measures.attacks.balls import Norm, inwards, lengths_of
from services.measures.attacks.margins import Network, gradient, margins, passes
from services.measures.attacks.tally import Tally


@dataclass(frozen=True, slots=True)
class DeepFool:
    """A minimal-norm `Seeker`.

    Attributes:
        steps: linearisations at most.
        candidates: classes considered, the likeliest on the clean image, the label among them.
        overshoot: by how much the sum of the steps is stretched.
        norm: in which the nearest plane is nearest.
    """

    steps: int = 50
    candidates: int = 10
    overshoot: float = 0.02
    norm: Norm = "L2"

    def __call__(
        self, network: Network, images: torch.Tensor, labels: torch.Tensor, tally: Tally, rows: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        result, fooled = images.clone(), torch.zeros(len(images), dtype=torch.bool, device=images.device)
        alive = torch.arange(len(images), device=images.device)
        points, moved, rivals = images, torch.zeros_like(images), None
        for _ in range(self.steps):
            points = points.detach().requires_grad_()
            with torch.enable_grad():
                logits = passes(network, points)
            margin = margins(logits.detach(), labels)
            tally.saw(rows[alive], margin)
            rivals = self._rivals(logits.detach(), labels) if rivals is None else rivals
            fell = ~(margin > 0)
            result[alive[fell]], fooled[alive[fell]] = points.detach()[fell], True
            if fell.all():
                break
            step = nearest_plane(logits, points, labels, rivals, self.norm)
            tally.sloped(rows[alive], step)
            kept = (~fell & (lengths_of(step).flatten() > 0)).nonzero().squeeze(1)
            alive, labels, rivals = alive[kept], labels[kept], rivals[kept]
            moved = moved.index_select(0, kept) + step.index_select(0, kept)
            points = (images.index_select(0, alive) + (1 + self.overshoot) * moved).clamp_(0.0, 1.0)
            if not len(kept):
                break
        return result, fooled

    def _rivals(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The likeliest other classes (n, candidates - 1)."""
        others = logits.scatter(1, labels.unsqueeze(1), -torch.inf)
        return others.topk(min(self.candidates, logits.shape[1]) - 1, dim=1).indices


def nearest_plane(
    logits: torch.Tensor, points: torch.Tensor, labels: torch.Tensor, rivals: torch.Tensor, norm: Norm = "L2"
) -> torch.Tensor:
    """The shortest step (n, C, H, W) onto the linearised boundary with a rival; zero where no gradient leads there.

    To the plane ``w d = gap`` that is ``gap / |w|_2`` along w in L2, and ``gap / |w|_1`` in every pixel in Linf.
    """
    step, shortest = torch.zeros_like(points), torch.full((len(points), 1, 1, 1), torch.inf, device=points.device)
    for rival in rivals.unbind(dim=1):
        weights = torch.zeros_like(logits)
        weights.scatter_(1, rival.unsqueeze(1), 1.0).scatter_(1, labels.unsqueeze(1), -1.0)
        normal = inwards(gradient(logits, points, weights, again=True), points.detach())
        gap = -(logits.detach() * weights).sum(dim=1).view(-1, 1, 1, 1)
        if norm == "L2":
            length, margin, way = lengths_of(normal), 1e-4, normal
        else:
            length, margin, way = normal.abs().sum(dim=(1, 2, 3), keepdim=True), 1e-6, normal.sign()
        distance = torch.where(length > 0, gap.abs() / length, torch.inf)
        closer = distance < shortest
        shortest = torch.where(closer, distance, shortest)
        ahead = way * ((distance + margin) / length) if norm == "L2" else way * (distance + margin)
        step = torch.where(closer, ahead, step)
    return step
