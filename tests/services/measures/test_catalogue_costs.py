"""What measures cost before they are run: by which the cheap ones come first."""

from __future__ import annotations

import pytest

from services.measures.catalogue import MEASURES

NAMES = [name for name in MEASURES.names() if name != "projection"]


@pytest.mark.parametrize("name", NAMES)
def test_every_measure_has_a_cost(name: str) -> None:
    measure = MEASURES.get(name)()
    cost = measure.most_passes
    assert cost == 1.0 if measure.needs == "logits" else cost > 1.0


def test_more_work_costs_more() -> None:
    pgd, apgd, whole = (MEASURES.get(name) for name in ("pgd", "apgd", "autoattack"))
    assert pgd(steps=40).most_passes == 2 * pgd(steps=20).most_passes
    assert pgd().most_passes < apgd().most_passes < whole().most_passes
