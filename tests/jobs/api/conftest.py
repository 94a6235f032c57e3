"""The application over processes of this machine, and a caller with a token."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from jobs.api.serve import build
from jobs.api.settings import Settings, digests, plain

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
