"""The GREAT score on samples of a generative model, as its theorem asks, beside the one on the test set."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from jobs.audit.other_samples.generated import audit_both, validate_sources
from jobs.audit.publish import audit_and_publish
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from services.errors import ClasswiseError, ConfigError
from services.loading.samples.source import open_samples
from services.records import ModelResult, SampleSpec, SeriesResult
from services.training.mapper_recipe import MapperRecipe
from services.training.mappers import conditional_gan
from services.training.mappers.train import train_mapper
from tracking.bundle.bundle import read_bundle

NAMES = "%2C".join(str(k) for k in range(10))


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small conditional mapper of digits."""
    folder = tmp_path_factory.mktemp("gan")
    digits = open_samples(SampleSpec("sklearn:digits?split=train"))
    torch.manual_seed(0)
    train_mapper(
        conditional_gan(6, 10, 1, 8, 8),
        digits.images(0, len(digits)),
        conditions=np.eye(10)[digits.labels],
        recipe=MapperRecipe(epochs=20, batch=32, lr=2e-3),
        storage=str(folder),
    )
    return folder / "model.safetensors"


@pytest.fixture
def fleet(digits_fleet: dict[str, Any], weights: Path) -> dict[str, Any]:
    data = deepcopy(digits_fleet)
    data["models"] = data["models"][:1]
    data["models"][0]["tags"] = {"method": "x"}
    uri = f"generator:services.training.mappers:generated?n=300&latents=6&size=8&width=8&names={NAMES}"
    data["generated"] = {"uri": f"{uri}&weights={weights}"}
    return data


def series(model: ModelResult, key: str) -> SeriesResult:
    return next(s for s in model.series if s.series.key == key and s.grouping == "class")


@pytest.mark.slow
def test_great_stands_beside_itself_on_generated_samples_with_the_difference(fleet: dict[str, Any]) -> None:
    finished, second = audit_both(validate_fleet(fleet), Quiet())
    assert second is not None
    own, made = second
    assert made.result.samples.count == 300 and made.result.fleet.endswith("-generated")
    assert own.config.gates == () and made.result.models[0].spec.tags == (("method", "x"), ("split", "generated"))
    clean = series(made.result.models[0], "clean")
    assert clean.aggregate.value is not None and clean.aggregate.value > 0.5  # the images show what they should
    model = finished.result.models[0]
    by_name = {gap.lens: gap for gap in model.generated}
    greats = [s.series.key for s in model.series if s.series.key.startswith("great") and s.grouping == "class"]
    assert set(by_name) == {"clean", *greats} and greats
    for key in greats:
        on_test, on_made = series(model, key).aggregate, series(made.result.models[0], key).aggregate
        assert (by_name[key].test.value, by_name[key].train.value) == (on_test.value, on_made.value)
        assert by_name[key].gap.value == pytest.approx(on_made.value - on_test.value)
        assert by_name[key].gap.low < by_name[key].gap.value < by_name[key].gap.high
    assert read_bundle(finished.folder).models[0].generated == model.generated


def test_the_report_shows_both_and_the_temperature_is_the_audits(fleet: dict[str, Any]) -> None:
    fleet["temperature"] = {"policy": "fixed", "value": 2.5}
    fleet["measures"] = ["clean", "great"]
    fleet["gates"] = []
    published = audit_and_publish(validate_fleet(fleet), Quiet())
    page = (Path(published.folder) / "report.html").read_text()
    assert "great on generated samples" in page and "generated minus these" in page
    folder = Path(published.folder).parents[1]
    (other,) = [path for path in folder.iterdir() if path.name.endswith("-generated")]
    (bundle,) = other.iterdir()
    assert read_bundle(str(bundle)).calibration.temperature == 2.5
    assert (bundle / "report.html").exists()


def test_generated_samples_of_another_kind_are_refused_before_anything_runs(
    fleet: dict[str, Any], tmp_path: Path
) -> None:
    images, labels = np.zeros((20, 3, 9, 9), dtype=np.uint8), np.arange(20) % 5
    np.savez(tmp_path / "x.npz", images=images, labels=labels)
    fleet["generated"] = {"uri": f"npz:{tmp_path}/x.npz?layout=NCHW"}
    for call in (lambda f: audit_both(f, Quiet()), validate_sources):
        with pytest.raises(ClasswiseError) as output:
            call(validate_fleet(fleet))
        text = "\n".join(str(problem) for problem in output.value.problems)
        assert "expected images (1, 8, 8) as samples.uri, found (3, 9, 9)" in text
        assert "expected 10 classes as samples.uri, found 5" in text
    assert not (tmp_path / "runs" / "cache").exists()


def test_without_great_generated_samples_are_for_nothing(fleet: dict[str, Any]) -> None:
    fleet |= {"measures": ["clean"], "gates": []}
    with pytest.raises(ConfigError, match="generated: expected the measure great in the fleet"):
        validate_fleet(fleet)
