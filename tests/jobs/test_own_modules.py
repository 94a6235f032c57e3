"""A network of a module that lies where the command runs, in this process and on workers of Ray."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

COMMAND = Path(sys.executable).parent / "classwise"
NETWORK = """
import torch

class Brightest(torch.nn.Module):
    def forward(self, images):
        return 4 * images.flatten(1)[:, 20:30]

def brightest():
    return Brightest()
"""


def classwise(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *words], cwd=place, capture_output=True, text=True, check=False)


def fleet(place: Path, runner: str, uri: str = "factory:mine.networks:brightest") -> dict[str, Any]:
    data: dict[str, Any] = {
        "fleet": "own",
        "models": [{"name": "m", "uri": uri, "overrule": ["chance", "class-order"]}],
        "factories": ["mine.*", "no_such_module"],
        "samples": {"uri": "sklearn:digits?split=test", "limit": 100},
        "measures": ["clean"],
        "tracking": {"enabled": False},
        "resources": {"runner": runner, "workers": 1},
    }
    (place / "fleet.yaml").write_text(yaml.safe_dump(data))
    return data


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize("runner", ["local", pytest.param("ray", marks=pytest.mark.slow)])
def test_modules_beside_the_fleet_file_are_found(tmp_path: Path, runner: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/__init__.py").touch()
    (tmp_path / "mine/networks.py").write_text(NETWORK)
    fleet(tmp_path, runner)
    ran = classwise(tmp_path, "audit", "fleet.yaml", "--json")
    body = json.loads(ran.stdout)
    assert [model["outcome"] for model in body["models"]] == ["pass"], body
    assert body["models"][0]["forwards"] >= 100
    if runner == "local":
        planned = classwise(tmp_path, "plan", "fleet.yaml", "--json")
        assert json.loads(planned.stdout)["costs"] == [], "found by the plan as well: everything is measured"


def test_where_there_is_none_it_says_where_it_looked(tmp_path: Path) -> None:
    fleet(tmp_path, "local", "factory:no_such_module:f")
    ran = classwise(tmp_path, "validate", "fleet.yaml")
    assert ran.returncode == 2
    assert "a module 'no_such_module' on the import path, found none; run the command in the folder" in ran.stderr
