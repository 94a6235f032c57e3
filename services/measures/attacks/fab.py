"""FAB in L2 and Linf (Croce & Hein 2020, arXiv 1907.02044), targeted, as its package `pyautoattack` runs it: a seeker.

Unlike our other seekers it steps onto the linearised boundary from far points too, biased back towards the image, and
so gets over the flat places around an image in which a network that masks its gradients leaves them.

The package draws a random number only for restarts, of which there are none: the result is a function of the sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from services.measures.attacks.balls import Norm, lengths_of
from services.measures.attacks.margins import Network, passes
from services.measures.attacks.packaged import Watched, undisturbed
from services.measures.attacks.tally import Tally


@dataclass(frozen=True, slots=True)
class FastAdaptiveBoundary:
    """A minimal-norm `Seeker`.

    Attributes:
        steps: of each target, two forward passes and a backward pass each.
        targets: classes tried for each sample, the likeliest on the clean image.
        norm: that of the distance.
    """

    steps: int = 100
    targets: int = 9
    norm: Norm = "L2"

    def __call__(
        self, network: Network, images: torch.Tensor, labels: torch.Tensor, tally: Tally, rows: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        watched = Watched(lambda points: passes(network, points))
        with torch.no_grad():
            classes = watched(images).shape[1]
        best = images.clone()
        nearest = torch.full((len(images), 1, 1, 1), torch.inf, device=images.device)
        with undisturbed(network, images.device):
            for target in range(min(self.targets, classes - 1)):
                points = self._towards(watched, images, labels, target)
                length = lengths_of(points - images, self.norm)
                closer = (length > 0) & (length < nearest)
                best, nearest = torch.where(closer, points, best), torch.where(closer, length, nearest)
        tally.queries[rows] += watched.images / len(rows)
        return best, nearest.isfinite().flatten()

    def _towards(self, network: Watched, images: torch.Tensor, labels: torch.Tensor, target: int) -> torch.Tensor:
        """The nearest points found across the boundary with the likeliest other class (target 0), the next, ...;
        images for which none was found stay.
        """
        from pyautoattack.fab_pt import FABAttack_PT

        attack = FABAttack_PT(network, norm=self.norm, n_iter=self.steps, targeted=True, device=images.device)
        attack.target_class = target + 2
        points: torch.Tensor = attack.attack_single_run(images, labels, is_targeted=True)
        return points.detach()
