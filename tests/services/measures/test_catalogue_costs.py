"""What measures cost before they are run: by which the cheap ones come first."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from jobs.audit.speeds import Speed
from services.loading.preflight.speed import measured_speed
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


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_what_attacks_compute_beside_a_small_network_is_in_their_price(norm: str) -> None:
    """FAB's projections take many times what a small network does: an audit of ten minutes was to take one."""
    draw = np.random.default_rng(0)
    images = draw.random((16, 3, 32, 32), dtype=np.float32)
    weights = torch.from_numpy(draw.standard_normal((3072, 4)).astype(np.float32))

    def network(x: torch.Tensor) -> torch.Tensor:
        return (x - 0.5).flatten(1) @ weights

    speed = Speed.of(measured_speed(network, images, device="cpu", batch=16, gradients=True))
    measure = MEASURES.get("minimal")(attacks=("fab",), norm=norm, fab_targets=2, fab_steps=30)
    x = torch.from_numpy(images)
    measure.from_model(network, x[:1], network(x[:1]).argmax(1), np.arange(1), seed=0)  # imports the package
    started = time.process_time()
    measure.from_model(network, x, network(x).argmax(1), np.arange(16), seed=0)
    assert 16 * speed.seconds(measure) > 0.4 * (time.process_time() - started)
    cheap = MEASURES.get("minimal")(attacks=("fmn",), norm=norm)
    assert cheap.most_sorts < cheap.most_passes and not MEASURES.get("clean")().most_sorts


@pytest.mark.parametrize(("side", "fog"), [(32, 153), (112, 31)])
def test_the_making_of_corrupted_images_is_in_their_price(side: int, fog: int) -> None:
    """On small networks it is nearly all of it: 153 ns a value of fog at 32 pixels, twice that of two severities."""
    values = 3 * side * side
    one, two = (MEASURES.get("corruptions")(names=("fog",), severities=levels) for levels in ((3,), (2, 4)))
    assert one.own_seconds(values) == pytest.approx(fog * 1e-9 * values)
    assert two.own_seconds(values) == pytest.approx(2 * one.own_seconds(values))
    both = MEASURES.get("corruptions")(names=("fog", "snow"), severities=(3,))
    assert both.own_seconds(values) > one.own_seconds(values)
    assert Speed(0.0, values=values).seconds(one) - Speed(0.0).seconds(one) == pytest.approx(one.own_seconds(values))
