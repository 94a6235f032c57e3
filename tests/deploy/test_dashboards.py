"""The dashboard of every shipped deployment shows schedules and the leaderboard: its API reads both stores."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests

from deploy.stack.layout import Layout
from tests.deploy.started import STARTS, TOKEN, serving
from tests.ports import free_port

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name != "compose" else ()) for name in STARTS],
)
def test_its_dashboard_reads_schedules_and_the_leaderboard(name: str, backends: Layout, tmp_path: Path) -> None:
    port = free_port()
    with serving(STARTS[name](backends, tmp_path, port), tmp_path, port, cwd=tmp_path) as address:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        schedules = requests.get(f"http://{address}/v1/schedules", headers=headers, timeout=60)
        assert [each["name"] for each in schedules.json()["schedules"]] == ["nightly"], schedules.text
        boards = requests.get(f"http://{address}/v1/leaderboard", headers=headers, timeout=120)
        log = (tmp_path / "log").read_text()[-2000:]
        assert boards.status_code == 200 and '"good"' in boards.text, boards.text + log
        assert requests.get(f"http://{address}/ready/results", timeout=60).status_code == 200
