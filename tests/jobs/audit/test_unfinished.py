"""An audit that was cut off after its last shard is gone on with: by the same command, once its driver is gone."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.audit import unfinished
from jobs.audit.unfinished import BEGUN, begin, end
from services.records import AuditResult
from tracking.bundle.bundle import write_bundle
from tracking.mlflow.process import this_driver


def cut_off(folder: str, **changes: Any) -> None:
    """Make the begun audit one of a process that has ended."""
    path = Path(folder) / BEGUN
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    driver = replace(this_driver(), pid=pid).to_tag()
    path.write_text(json.dumps({**json.loads(path.read_text()), "driver": driver, **changes}))


def test_the_same_audit_is_taken_up_when_its_driver_is_gone(tmp_path: Path) -> None:
    first = begin(str(tmp_path), "fleet", "20261128T000000Z-a", "content")
    assert begin(str(tmp_path), "fleet", "20261128T000001Z-b", "content").audit_id.endswith("b")
    cut_off(first.folder)
    assert begin(str(tmp_path), "fleet", "20261128T000002Z-c", "other").audit_id.endswith("c")
    assert begin(str(tmp_path), "fleet", "20261128T000003Z-d", "content") == first
    assert json.loads((Path(first.folder) / BEGUN).read_text())["driver"] == this_driver().to_tag()


def test_one_that_is_published_or_old_or_on_another_host_is_left_alone(tmp_path: Path) -> None:
    old = (datetime.now(UTC) - unfinished.WITHIN - timedelta(minutes=1)).isoformat()
    away = replace(this_driver(), host="elsewhere").to_tag()
    for index, changes in enumerate(({"at": old}, {"driver": away}, {})):
        begun = begin(str(tmp_path), "fleet", f"20261128T00000{index}Z-a", "content")
        cut_off(begun.folder, **changes)
    end(begun.folder)
    end(begun.folder)
    assert begin(str(tmp_path), "fleet", "20261128T000009Z-z", "content").audit_id.endswith("z")


def test_a_complete_bundle_is_kept_and_a_damaged_one_judged_again(
    tmp_path: Path, board_audit: Callable[..., AuditResult]
) -> None:
    begun = begin(str(tmp_path), "fleet", "20261128T000000Z-a", "content")
    cut_off(begun.folder)
    assert begin(str(tmp_path), "fleet", "next", "content").result is None
    result = board_audit(begun.audit_id, {"a": ({}, {"clean": 0.9})})
    path = Path(write_bundle(result, begun.folder))
    cut_off(begun.folder)
    kept = begin(str(tmp_path), "fleet", "next", "content").result
    assert kept is not None and kept.audit_id == begun.audit_id
    path.write_bytes(path.read_bytes()[:100])
    cut_off(begun.folder)
    assert begin(str(tmp_path), "fleet", "next", "content") == begun


@pytest.mark.parametrize("text", ["", "[]", "not json"])
def test_a_damaged_mark_counts_as_none(tmp_path: Path, text: str) -> None:
    begun = begin(str(tmp_path), "fleet", "20261128T000000Z-a", "content")
    (Path(begun.folder) / BEGUN).write_text(text)
    assert begin(str(tmp_path), "fleet", "next", "content").audit_id == "next"
