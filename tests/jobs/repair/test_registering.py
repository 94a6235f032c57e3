"""A repaired network as a version of MLflow's registry: what audits saw, offsets and all."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import mlflow
import pytest
import torch

from jobs.fleetfile.reading import validate_fleet
from jobs.repair.registering import register, require_tracking
from jobs.repair.repair import repair
from jobs.terminal.progress import Quiet
from services.errors import ConfigError
from services.loading.models.source import load_model
from services.records import ModelSpec

pytestmark = [
    pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning"),
    pytest.mark.filterwarnings("ignore:::sqlalchemy", "ignore:::mlflow"),
]


@pytest.fixture
def weak(digits_fleet: dict[str, Any]) -> dict[str, Any]:
    data = {**deepcopy(digits_fleet), "models": deepcopy(digits_fleet["models"][:1]), "measures": ["clean"]}
    data["models"][0] |= {"name": "m", "offsets": [0.0] * 8 + [-9.0, 0.0]}
    samples = {"uri": "sklearn:digits?split=test", "reserve": 0.5}
    tracking = {"enabled": True, "figures": False, "uri": f"sqlite:///{data['storage']}-mlflow.db"}
    return {**data, "samples": samples, "tracking": tracking, "intervals": {"delta": 0.1}, "gallery": "none"}


@pytest.mark.slow
def test_what_is_registered_is_what_was_audited(weak: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = validate_fleet(weak)
    done = repair(fleet, "m", Quiet(), rounds=2)
    assert done is not None
    assert register(fleet, done, "fixed") == "registered mlflow:models:/fixed/1"
    assert register(fleet, done, "fixed") == "registered mlflow:models:/fixed/1", "once"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", weak["tracking"]["uri"])
    client = mlflow.MlflowClient(weak["tracking"]["uri"])
    version, known = client.get_model_version("fixed", "1"), client.get_registered_model("fixed")
    assert version.tags["classwise.audit_id"] == done.published.result.audit_id and not known.aliases
    assert client.get_run(version.run_id).data.tags["classwise.audit_id"] == done.published.result.audit_id
    images = torch.rand(5, 1, 8, 8)
    served = load_model(ModelSpec("s", "mlflow:models:/fixed/1")).network
    audited = load_model(done.published.result.models[0].spec).network
    assert torch.allclose(served(images), audited(images), atol=1e-5)  # type: ignore[operator]


def test_what_is_not_shown_is_not_registered(weak: dict[str, Any]) -> None:
    weak["tracking"]["enabled"] = False
    fleet = validate_fleet(weak)
    with pytest.raises(ConfigError, match=r"--register: expected an audit that is logged to MLflow, found no tracking"):
        require_tracking(fleet, "fixed")
    require_tracking(fleet, "")
    done = repair(fleet, "m", Quiet(), rounds=2)
    assert done is not None
    assert register(fleet, done, "fixed").startswith("not registered as fixed: its audit is not in MLflow")
