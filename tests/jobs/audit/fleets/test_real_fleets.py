"""Real networks on real images, by the example fleet files: published figures must come out."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from jobs.audit.audit import Finished, run_audit
from jobs.audit.judging.fleet_checks import by_class
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from services.records import Outcome

EXAMPLES = Path(__file__).resolve().parents[4] / "deploy" / "examples"
pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")


def cifar_fleet(shared: Path, storage: Path, names: set[str]) -> dict[str, Any]:
    """The example fleet with its weights and samples where they lie here."""
    data = yaml.safe_load((EXAMPLES / "cifar10_small.yaml").read_text())
    data["samples"]["uri"] = f"npz:{shared / 'cifar10' / 'test.npz'}"
    data["models"] = [model for model in data["models"] if model["name"] in names]
    for model in data["models"]:
        model["uri"] = model["uri"].replace("weights=weights/", f"weights={shared / 'networks' / 'cifar10'}/")
    local = {"runner": "local", "workers": 1, "batch": 250, "shard": 2500}
    return {**data, "storage": str(storage), "tracking": {"enabled": False}, "resources": local}


def published(shared: Path) -> dict[str, dict[str, Any]]:
    entries = json.loads((shared / "networks" / "networks.json").read_text())
    return {entry["id"].removeprefix("cifar10_"): entry for entry in entries}


def audit(data: dict[str, Any]) -> Finished:
    return run_audit(validate_fleet(data), Quiet())


@pytest.mark.parametrize(
    "names",
    [
        {"conv_small_pgd", "base_kw", "wide_madry8"},
        pytest.param({"resnet20", "resnet2b", "wide_std", "cnn_a_adv"}, marks=pytest.mark.slow),
    ],
)
def test_clean_accuracy_by_class_is_the_published_one(shared_data: Path, tmp_path: Path, names: set[str]) -> None:
    finished = audit(cifar_fleet(shared_data, tmp_path, names))
    for model in finished.result.models:
        measured = published(shared_data)[model.spec.name]["measured"]
        result = by_class(model, "clean")
        assert result is not None
        assert result.aggregate.value == pytest.approx(measured["clean_acc"] / 100, abs=1e-9)
        by = [row.score.value for row in result.groups]
        np.testing.assert_allclose(by, np.array(measured["per_class_acc"]) / 100, atol=1e-9)
        worst = min(by)  # the example demands 0.5 of the worst class; 1,000 images a class decide what is 0.05 away
        assert model.outcome is (Outcome.FAIL if worst < 0.45 else Outcome.PASS) or 0.45 < worst < 0.56
        assert result.groups[3].name == "cat"


@pytest.mark.slow
def test_a_robustbench_model_is_audited_through_its_own_loader(
    shared_data: Path, tmp_path: Path, torchvision_operators: None
) -> None:
    spec = find_spec("pyautoattack")
    if spec is None or spec.origin is None:
        pytest.skip("pyautoattack, whose package holds a trained network, is not installed")
    weights = next(Path(spec.origin).parent.parent.rglob("examples/model_test.pt"))
    target = tmp_path / "models" / "cifar10" / "L2" / "Sehwag2021Proxy_R18.pt"
    target.parent.mkdir(parents=True)
    shutil.copy(weights, target)
    data = cifar_fleet(shared_data, tmp_path / "runs", set())
    uri = f"robustbench:Sehwag2021Proxy_R18?dataset=cifar10&threat_model=L2&model_dir={tmp_path / 'models'}"
    data["models"] = [{"name": "Sehwag2021Proxy_R18", "uri": uri}]
    data["samples"]["per_class"] = 4
    data["gates"] = []
    model = audit(data).result.models[0]
    clean = by_class(model, "clean")
    assert clean is not None
    assert clean.aggregate.value is not None
    assert clean.aggregate.value > 0.85
    assert model.spec.robust_accuracy == pytest.approx(0.7442, abs=0.02)
    assert model.spec.threat_model is not None
    assert (model.spec.threat_model.norm, model.spec.threat_model.epsilon) == ("L2", 0.5)
