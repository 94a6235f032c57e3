"""The two points at the boundary of BAT."""

from __future__ import annotations

import numpy as np
import pytest

from services.training.losses.boundary import boundary_pair
from services.training.step import Budget
from tests.services.training.methods.linear_case import Case, N


def test_the_points_at_the_boundary_are_those_of_a_walk_sample_by_sample() -> None:
    kinds = set()
    for steps in (1, 2, 4):
        case = Case()
        budget = Budget(epsilon=0.2, step=0.07, steps=steps)
        points = [part.flatten(1).numpy() for part in boundary_pair(case.network, case.batch(), budget)]
        for i in range(N):
            *want, kind = case.boundary_pair(i, steps)
            kinds.add(kind)
            assert np.stack([part[i] for part in points]) == pytest.approx(np.stack(want))
    assert kinds == {"start", "crossed", "end", "never"}
