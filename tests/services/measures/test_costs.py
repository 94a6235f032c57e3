"""What measures cost before they are run: by which the cheap ones come first."""

from __future__ import annotations

import pytest

from services.measures.catalogue import MEASURES
from services.measures.costs import most_passes

NAMES = [name for name in MEASURES.names() if name != "projection"]


@pytest.mark.parametrize("name", NAMES)
def test_every_measure_has_a_cost(name: str) -> None:
    measure = MEASURES.get(name)()
    cost = most_passes(measure)
    assert cost == 1.0 if measure.needs == "logits" else cost > 1.0


def test_more_work_costs_more() -> None:
    pgd, apgd, whole = (MEASURES.get(name) for name in ("pgd", "apgd", "autoattack"))
    assert most_passes(pgd(steps=40)) == 2 * most_passes(pgd(steps=20))
    assert most_passes(pgd()) < most_passes(apgd()) < most_passes(whole())
