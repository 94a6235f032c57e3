"""Servers and a cluster that are killed under an audit: some of what ``make torture`` does."""

from __future__ import annotations

import pytest

from .servers import Network, postgres_binaries
from .test_faults import suite

pytestmark = pytest.mark.slow


def test_an_mlflow_server_on_postgresql_is_killed_frozen_and_cut_off() -> None:
    if postgres_binaries() is None:
        pytest.skip("PostgreSQL is not installed: no initdb in /usr/lib/postgresql/*/bin or on the PATH")
    done = suite("--on", "servers", "--count", "7", "--seed", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 schedules" in done.stdout and "sync 0" in done.stdout


def test_workers_a_node_the_head_and_the_driver_are_killed_on_ray() -> None:
    done = suite("--on", "ray", "--count", "5", "--seed", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 schedules" in done.stdout and "SIGKILL, resume" in done.stdout


def test_a_network_namespace_can_be_cut() -> None:
    try:
        network = Network()
    except OSError as error:
        pytest.skip(f"no network namespace here: {error}")
    try:
        network.cut()
        network.repair()
    finally:
        network.close()
