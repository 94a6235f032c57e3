"""Log lines: what they belong to, one line an event, and no secret in them however it gets there."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from services.telemetry import logs
from services.telemetry.logs import LogSetting
from services.telemetry.redaction import HIDDEN, secrets_of

LOG = logging.getLogger("classwise.test")
PLANTED = {
    "MLFLOW_TRACKING_PASSWORD": "hunter2-swordfish",
    "RAY_AUTH_TOKEN": "tok/with+odd=chars",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI",
    "CLASSWISE_SCHEDULES": "postgresql+psycopg://audit:p%40ss-w0rd@db/schedules",
    "RAY_AUTH_TOKEN_PATH": "/etc/ray/token",
    "RAY_AUTH_MODE": "token",
    "GITHUB_TOKEN": "",
    "ODD_SECRET": "1",
}


@pytest.fixture(autouse=True)
def undone() -> Iterator[None]:
    yield
    logs.reset()


@pytest.mark.parametrize("form", ["json", "text"])
def test_planted_secrets_appear_in_no_line(form: logs.Form, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSetting(form, "debug"), PLANTED)
    LOG.info("password is %s", "hunter2-swordfish")
    LOG.warning("url https://h/?x=tok%%2Fwith%%2Bodd%%3Dchars and tok/with+odd=chars")
    logs.event(LOG, logging.ERROR, "deep", problems=[{"found": "key wJalrXUtnFEMI"}], uri="s3://a:wJalrXUtnFEMI@b/c")
    try:
        raise RuntimeError("could not connect to postgresql+psycopg://audit:p%40ss-w0rd@db/schedules as p@ss-w0rd")
    except RuntimeError as error:
        LOG.error("failed", exc_info=error)
    logging.getLogger("some.library").warning("Authorization: Bearer tok/with+odd=chars")
    err = capsys.readouterr().err
    for secret in ("hunter2", "tok/with", "tok%2Fwith", "wJalr", "p%40ss", "p@ss-w0rd"):
        assert secret not in err
    assert err.count(HIDDEN) >= 7
    assert "RuntimeError" in err


def test_paths_modes_and_short_values_are_no_secrets() -> None:
    result = secrets_of(PLANTED)
    assert "/etc/ray/token" not in result
    assert not {"token", "1", ""} & set(result)
    assert {"hunter2-swordfish", "p@ss-w0rd", "p%40ss-w0rd"} <= set(result)


def test_a_json_line_is_one_object_with_its_context(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSetting("json", "info", (("audit_id", "A1"),)), {})
    with logs.about(fleet="f", model="ü\nm"):
        logs.event(LOG, logging.INFO, "two\nlines", shards=3)
        LOG.debug("not at this level")
    LOG.info("outside")
    first, two = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    time = first.pop("time")
    assert time.endswith("+00:00")
    assert first == {
        "level": "info",
        "logger": "classwise.test",
        "message": "two\nlines",
        "audit_id": "A1",
        "fleet": "f",
        "model": "ü\nm",
        "shards": 3,
    }
    assert "fleet" not in two


def test_a_message_cannot_forge_a_line_of_text(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSetting("text"), {})
    LOG.info("innocent\n2026-01-01T00:00:00+00:00 error classwise: forged")
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_configuring_twice_writes_once(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSetting("text"), {})
    logs.configure(LogSetting("json"), {})
    LOG.info("once")
    assert len(capsys.readouterr().err.splitlines()) == 1
    logs.reset()
    LOG.info("never")
    assert capsys.readouterr().err == ""


def test_a_process_that_logs_nothing_prints_no_errors() -> None:
    """Python's handler of last resort printed "shard failed" for each model above the problems of `classwise plan`."""
    program = (
        "import logging; from services.telemetry import logs; logs.event(logging.getLogger('classwise.audit'), 40, 'x')"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stderr == ""
