"""Radii of L2 and L1 balls against the samples: which ones were meant in 255ths, where the file alone does not say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from jobs.fleetfile.reading import Fleet
from services.errors import Problem


def radius_problems(fleet: Fleet, shape: Sequence[int]) -> Iterator[Problem]:
    """Radii at which every image (C, H, W) reaches uniform grey, so that no classifier can withstand the ball.

    In d = C H W pixels in [0, 1] that is ``sqrt(d) / 2`` in L2 and ``d / 2`` in L1, which only a threat model can name.
    In Linf it is 1/2, but only a radius above 1 is refused, when the file is read.
    """
    size = math.prod(shape)
    most = {"L2": math.sqrt(size) / 2, "L1": size / 2}
    for where, norm, epsilon in _radii(fleet) if size else ():  # a table of logits comes without images
        if epsilon >= most.get(norm, math.inf):
            images = "x".join(map(str, shape))
            expected = f"an {norm} epsilon below {most[norm]:.4g}, where every {images} image reaches uniform grey"
            yield Problem(where, expected, f"{epsilon:g}", f"meant {epsilon:g}/255 = {epsilon / 255:.4g}?")


def _radii(fleet: Fleet) -> Iterator[tuple[str, str, float]]:
    for index, model in enumerate(fleet.config.models):
        if threat := model.threat_model:
            yield f"models[{index}].threat_model.epsilon", threat.norm, threat.epsilon
    for index, measure in enumerate(fleet.measures):
        norm: str = getattr(measure, "norm", "")
        epsilons: tuple[float, ...] = getattr(measure, "epsilons", ()) if norm else ()
        yield from ((f"measures[{index}].epsilons", norm, epsilon) for epsilon in epsilons)
