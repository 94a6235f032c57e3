"""The GREAT score on samples of a generative model, as its theorem asks, beside the one on the test set."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch

from jobs.audit import run_audit
from jobs.fleetfile import validate_fleet
from jobs.progress import Quiet
from services.loading.samples import open_samples
from services.records import SampleSpec, SeriesResult
from services.training.mappers import conditional_gan
from services.training.mappers.loop import train_mapper
from services.training.mappers.recipe import MapperRecipe


def score(data: dict[str, Any], key: str) -> SeriesResult:
    """A series of the first model, by class."""
    model = run_audit(validate_fleet(data), Quiet()).result.models[0]
    return next(s for s in model.series if s.series.key == key and s.grouping == "class")


def test_a_conditional_mapper_is_a_source_of_samples_for_great(digits_fleet: dict[str, Any], tmp_path: Path) -> None:
    digits = open_samples(SampleSpec("sklearn:digits?split=train"))
    torch.manual_seed(0)
    train_mapper(
        conditional_gan(6, 10, 1, 8, 8),
        digits.images(0, len(digits)),
        conditions=np.eye(10)[digits.labels],
        recipe=MapperRecipe(epochs=20, batch=32, lr=2e-3),
        storage=str(tmp_path),
    )
    digits_fleet["models"] = digits_fleet["models"][:1]
    generated = deepcopy(digits_fleet)
    names = "%2C".join(str(k) for k in range(10))
    uri = f"generator:services.training.mappers:generated?n=300&latents=6&size=8&width=8&names={names}"
    generated["samples"] = {"uri": f"{uri}&weights={tmp_path}/model.safetensors"}
    clean = score(generated, "clean")
    assert clean.aggregate.value is not None and clean.aggregate.value > 0.5
    assert [row.n for row in clean.groups] == [30] * 10
    on_generated, on_test = score(generated, "great-softmax"), score(digits_fleet, "great-softmax")
    assert on_generated.aggregate.low is not None and on_test.aggregate.value is not None
    assert 0.0 < on_generated.aggregate.low <= on_generated.aggregate.value != on_test.aggregate.value
