"""What docs/service.md shows works: its curl examples are run, its settings file is valid, its tables are whole."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from jobs.api.settings import Settings, load_settings
from jobs.schedules.schedule import FiringState
from jobs.submission.cli import COMMANDS
from jobs.submission.status import State
from tests.ports import free_port

from .conftest import TOKEN

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.fixture
def server(settings: Settings, tmp_path: Path) -> Iterator[str]:
    """Address of `classwise serve --here` in a process of its own."""
    file = tmp_path / "settings.yaml"
    file.write_text(yaml.safe_dump(settings.model_dump(mode="json")))
    port = free_port()
    words = [sys.executable, "-m", "jobs.cli", "serve", str(file), "--here", "--port", str(port)]
    environment = {**os.environ, "CI_TOKEN": TOKEN, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + 300
        while not _answers(address):
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.2)
        yield address
        process.terminate()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/ready", timeout=2) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_curl_examples_run(server: str, fleet: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(yaml.safe_dump(fleet))
    (script,) = blocks("sh")
    environment = {**os.environ, "API": server, "TOKEN": TOKEN}
    words = ["bash", "-euo", "pipefail", "-c", script]
    ran = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert '"status":"ready"' in ran.stdout and "digits: pass" in ran.stdout and '"key":"build-7"' in ran.stdout
    assert json.loads((tmp_path / "result.json").read_text())["outcome"] == "pass"


def test_the_settings_file_is_valid_and_its_table_whole(tmp_path: Path) -> None:
    (text,) = (block for block in blocks("yaml") if "tokens" in block and "storage:" in block)
    (callers,) = (block for block in blocks("yaml") if "tokens" in block and block != text)
    assert Settings.model_validate({"storage": "/srv", **yaml.safe_load(callers)}).identity is not None
    (tmp_path / "settings.yaml").write_text(text)
    assert load_settings(tmp_path / "settings.yaml").resources.workers == 16
    table = TEXT.partition("### Settings")[2].partition("###")[0]
    for name, field in Settings.model_fields.items():
        assert f"`{name}" in table
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            for inner in field.annotation.model_fields:
                assert f"`{name}.{inner}`" in table or f"`{inner}`" in table, f"{name}.{inner}"


def test_every_command_state_and_status_is_named() -> None:
    for command in COMMANDS:
        assert f"classwise {command}" in TEXT
    for state in [*State, *(set(FiringState) - {"waiting", "running"})]:
        assert f"`{state}`" in TEXT, state


def test_the_shape_of_errors_is_the_real_one() -> None:
    (block,) = blocks("json")
    assert set(json.loads(block)["problems"][0]) == {"where", "expected", "found", "remedy"}
