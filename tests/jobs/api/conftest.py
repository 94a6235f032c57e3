"""The application over processes of this machine, and a caller with a token."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from jobs.api.serve import build
from jobs.api.settings import Settings, digests, plain
from jobs.fleetfile.reading import validate_fleet
from jobs.schedules.scheduler import new_schedule, now_utc
from jobs.schedules.store import Store
from jobs.submission.submission import Ending, folder_in, write_ending
from jobs.terminal import console
from services.records import Outcome

TOKEN = "tests-" + "0123456789abcdef" * 2


@pytest.fixture
def settings(tmp_path: Path, digit_weights: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Digits networks from one folder of weights, and nothing else."""
    monkeypatch.setenv("CI_TOKEN", TOKEN)
    folder = str(Path(digit_weights["good"]).parent)
    return Settings.model_validate(
        {
            "storage": str(tmp_path / "runs"),
            "tokens": [{"name": "ci", "env": "CI_TOKEN"}],
            "tracking": {"enabled": False},
            "resources": {"runner": "local", "workers": 1},
            "limits": {"per_minute": 100_000},
            "allow": {
                "models": ["factory", "torchscript", "torchvision", "mlflow", "robustbench"],
                "samples": ["sklearn", "npz", "torchvision"],
                "paths": [folder],
                "factories": ["services.training.architectures"],
            },
        }
    )


@pytest.fixture
def app(settings: Settings) -> FastAPI:
    return build(plain(settings), digests(settings, os.environ))


@pytest.fixture
def caller(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, headers={"authorization": f"Bearer {TOKEN}"}, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def fleet(digit_weights: dict[str, str]) -> dict[str, Any]:
    """What a caller sends."""
    uri = f"factory:services.training.architectures:small_cnn?width=8&weights={digit_weights['good']}"
    return {
        "fleet": "digits",
        "models": [{"name": "good", "uri": uri}],
        "samples": {"uri": "sklearn:digits?split=test"},
        "measures": ["clean"],
    }


TOKENS = {name: f"{name}-" + "0123456789abcdef" * 2 for name in ("ours", "theirs", "reader", "root", "few", "sends")}


@pytest.fixture(scope="module")
def audited(once: Callable[[str, Callable[[Path], None]], Path], digit_weights: dict[str, str]) -> Path:
    """A storage with an audit of a fleet of each team; made once."""
    from jobs.audit.publish import audit_and_publish

    def fill(folder: Path) -> None:
        uri = f"factory:services.training.architectures:small_cnn?width=8&weights={digit_weights['good']}"
        for fleet in ("team-a", "team-b"):
            data = {"fleet": fleet, "models": [{"name": "good", "uri": uri}], "measures": ["clean"]}
            data |= {"samples": {"uri": "sklearn:digits?split=test"}, "storage": str(folder)}
            data |= {"resources": {"runner": "local", "workers": 1}, "tracking": {"enabled": False}}
            with console.reporter(quiet=True) as reporter:
                audit_and_publish(validate_fleet(data), reporter)

    storage = once("two-teams", fill)
    for fleet in ("team-a", "team-b"):
        (bundle,) = (storage / "audits" / fleet).iterdir()
        folder = folder_in(str(storage), f"{fleet}-{'a' * 16}")
        write_ending(folder, Ending("1", "finished", Outcome.PASS, str(bundle), bundle.name))
        (Path(folder) / "fleet.json").write_text("{}")
    return storage


@pytest.fixture
def team(settings: Settings, audited: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings with a caller a case."""
    for name, token in TOKENS.items():
        monkeypatch.setenv(name.upper(), token)
    access: dict[str, dict[str, Any]] = {
        "ours": {"fleets": ["team-a", "team-a-*"]},
        "theirs": {"fleets": ["team-b"]},
        "reader": {"fleets": ["team-a"], "may": ["read"]},
        "root": {"fleets": [], "may": ["admin"]},
        "few": {"fleets": ["team-f*"], "submissions": 2, "priority": 7},
        "sends": {"fleets": ["team-a"], "may": ["submit"]},
    }
    store = Store(f"sqlite:///{tmp_path}/schedules.db")
    for fleet in ("team-a", "team-b"):
        data = {"fleet": fleet, "models": [{"name": "m", "uri": "export:/m"}], "samples": {"uri": "sklearn:digits"}}
        store.add(new_schedule(fleet, validate_fleet({**data, "storage": str(tmp_path)}), "0 3 * * *", now=now_utc()))
    store.close()
    tokens = [{"name": name, "env": name.upper(), **access[name]} for name in TOKENS]
    data = {**plain(settings), "storage": str(audited), "tokens": tokens, "audit_log": str(tmp_path / "changes.jsonl")}
    return Settings.model_validate({**data, "schedules": f"sqlite:///{tmp_path}/schedules.db"})


def client_of(settings: Settings, **changes: Any) -> TestClient:
    """A caller of a server with other settings."""
    data = {**plain(settings), **changes}
    app = build(data, digests(settings, os.environ))
    return TestClient(app, headers={"authorization": f"Bearer {TOKEN}"}, raise_server_exceptions=False)


A, B, NONE = f"team-a-{'a' * 16}", f"team-b-{'a' * 16}", f"team-b-{'0' * 16}"
"""Audits of the two teams, and one that does not exist."""
