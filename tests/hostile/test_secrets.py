"""Secrets planted wherever a user may have them appear in no output, log, bundle, report, database or artifact."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from torch import nn
from typer.testing import CliRunner

from jobs.cli import app
from services.training.architectures import small_cnn
from services.training.epochs.checkpoints import load_weights

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")

PLANTED = "planted-5f3a9c"
VARIABLES = (
    "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "RAY_AUTH_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
    "CI_TOKEN", "CLASSWISE_WEBHOOK_SECRET", "HF_TOKEN",
)  # fmt: skip
GIVEN = {"fleet.yaml", "broken.yaml", "fleet.json"}
"""What the user wrote himself, and the submission that carries it to the cluster."""


def network(token: str) -> nn.Module:
    """A factory that fetches with a token, as private registries want."""
    assert token.startswith(PLANTED)
    weights = next((Path(__file__).parents[1] / "upgrade" / "fixtures" / "v0.1.0").rglob("model.safetensors"))
    made = small_cnn(width=6)
    made.load_state_dict(load_weights(str(weights)))
    return made


def failing(token: str) -> nn.Module:
    raise OSError(f"cannot fetch https://bob:{token}@registry/weights?token={token} ({token} is no token)")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for number, name in enumerate(VARIABLES):
        monkeypatch.setenv(name, f"{PLANTED}-{number}-of-the-environment")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://bob:{PLANTED}-uri@127.0.0.1:9/mlflow?token={PLANTED}-query")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return tmp_path


def write(home: Path, function: str = "network", **changes: Any) -> Path:
    fleet: dict[str, Any] = {
        "fleet": "secret",
        "samples": {"uri": "sklearn:digits?split=test"},
        "models": [{"name": "m", "uri": f"factory:test_secrets:{function}?token={PLANTED}-factory"}],
        "measures": ["clean"],
        "factories": ["test_secrets"],
        "storage": str(home / "runs"),
        "resources": {"runner": "local", "workers": 1},
        "on_model_fault": "skip",
    }
    path = home / "fleet.yaml"
    path.write_text(yaml.safe_dump({**fleet, **changes}))
    return path


def run(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return f"{arguments[0]}: {done.output}{done.stderr}"


def leaks(outputs: list[str], home: Path) -> Iterator[str]:
    """Where a planted secret is found."""
    yield from (output[:2_000] for output in outputs if PLANTED in output)
    for path in home.rglob("*"):
        if path.is_file() and path.name not in GIVEN and PLANTED.encode() in path.read_bytes():
            yield str(path.relative_to(home))


def bundle_of(home: Path) -> Path:
    return max((home / "runs" / "audits").rglob("bundle.json")).parent


def test_an_audit_and_what_is_done_with_it(home: Path) -> None:
    fleet, store = write(home), f"sqlite:///{home}/mlflow.db"
    outputs = [run("validate", fleet), run("audit", fleet)]
    bundle = bundle_of(home)
    outputs += [run("audit", fleet, "--json"), run("show", bundle), run("sync", bundle)]
    outputs += [run("sync", bundle, "--tracking-uri", store), run("leaderboard", "--tracking-uri", store)]
    outputs += [run("leaderboard")]
    assert "secret: pass" in outputs[1] and "uploaded" in outputs[5] and "Upload to MLflow failed" in outputs[1]
    assert list(leaks(outputs, home)) == []


def test_faults_that_quote_what_they_were_given(home: Path) -> None:
    outputs = [run("audit", write(home, "failing"), "--no-track")]
    assert "cannotfetchhttps://bob:***@registry/weights?token=***" in "".join(outputs[0].split())
    for changes in (
        {"storage": f"s3://key:{PLANTED}@bucket/runs"},
        {"storage": f"s3://bucket/runs?secret={PLANTED}"},
        {"tracking": {"uri": f"postgresql://bob:{PLANTED}@db/mlflow"}},
        {"tracking": {"uri": f"postgresql://db/mlflow?password={PLANTED}"}},
        {"samples": {"uri": f"npz:https://bob:{PLANTED}@host/test.npz"}},
        {"models": [{"name": "m", "uri": f"onnx:https://host/m.onnx?token={PLANTED}"}]},
        {"models": [{"name": "m", "uri": f"http://bob:{PLANTED}@host/m", "output": [f"password={PLANTED}"]}]},
    ):
        outputs.append(run("validate", write(home, **changes)))
        assert "problem" in outputs[-1]
    outputs.append(run("leaderboard", "--tracking-uri", f"postgresql://bob:{PLANTED}@127.0.0.1:9/mlflow"))
    outputs.append(run("submit", write(home), "--address", f"http://bob:{PLANTED}@127.0.0.1:9"))
    outputs.append(run("show", f"s3://bob:{PLANTED}@bucket/runs/audits/a/b"))
    db = f"postgresql+psycopg://bob:{PLANTED}@127.0.0.1:9/schedules"
    outputs.append(run("schedule", "list", "--db", db))
    assert list(leaks(outputs, home)) == []


def test_a_submitted_audit(home: Path) -> None:
    outputs = [run("submit", write(home), "--address", "local", "--wait", "--json")]
    name = next((home / "runs" / "submissions").iterdir()).name
    options = ("--address", "local", "--storage", home / "runs")
    outputs += [run(command, name, *options) for command in ("status", "logs", "result")]
    assert "secret: pass" in outputs[3]
    assert list(leaks(outputs, home)) == []


def test_a_planted_secret_would_be_found(home: Path) -> None:
    (home / "log.txt").write_text(f"password {PLANTED}")
    assert list(leaks([f"say {PLANTED}"], home)) == [f"say {PLANTED}", "log.txt"]
