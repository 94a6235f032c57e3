"""The dashboard of every shipped deployment shows schedules and the leaderboard: its API reads both stores."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
import requests

from deploy.stack.layout import Layout
from tests.deploy.started import STARTS, TOKEN
from tests.ports import free_port

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")


@pytest.mark.parametrize("name", STARTS)
def test_its_dashboard_reads_schedules_and_the_leaderboard(name: str, backends: Layout, tmp_path: Path) -> None:
    port = free_port()
    start = STARTS[name](backends, tmp_path, port)
    log = tmp_path / "log"
    with log.open("w") as output:
        process = subprocess.Popen(start.command, env=start.environment, stdout=output, stderr=output, cwd=tmp_path)
    try:
        root, end = f"http://127.0.0.1:{port}", time.monotonic() + 90
        while not _answers(f"{root}/health"):
            assert process.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.2)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        schedules = requests.get(f"{root}/v1/schedules", headers=headers, timeout=60)
        assert [each["name"] for each in schedules.json()["schedules"]] == ["nightly"], schedules.text
        boards = requests.get(f"{root}/v1/leaderboard", headers=headers, timeout=120)
        assert boards.status_code == 200 and '"good"' in boards.text, boards.text + log.read_text()[-2000:]
        assert requests.get(f"{root}/ready/results", timeout=60).status_code == 200
    finally:
        process.terminate()
        process.wait(30)


def _answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).status_code == 200
    except requests.ConnectionError:
        return False
