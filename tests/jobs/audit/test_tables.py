"""Tables that somebody deletes while an audit runs: made again, with the same numbers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.audit import tables
from jobs.audit.audit import run_audit
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from services.errors import StorageError
from services.records import AuditResult, Receipt


class Deletes(Quiet):
    """Deletes folders of the cache when a stage has done its first shard."""

    def __init__(self, stage: str, *folders: Path, times: int = 1) -> None:
        self._when, self._folders, self._left = stage, folders, times

    def stage(self, name: str, shards: int, models: int) -> None:
        if name == self._when and shards and self._left:
            self._left -= 1
            self.delete()

    def delete(self) -> None:
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)


def audited(fleet: dict[str, Any], reporter: Quiet) -> AuditResult:
    return run_audit(validate_fleet(fleet), reporter).result


def numbers(result: AuditResult) -> list[Any]:
    return [(model.outcome, model.series) for model in result.models]


@pytest.fixture
def fleet(digits_fleet: dict[str, Any]) -> dict[str, Any]:
    digits_fleet["models"] = digits_fleet["models"][:2]
    digits_fleet["measures"] = ["clean", "great"]
    digits_fleet["temperature"] = {"policy": "fleet-accuracy", "step": 1.0, "fine_step": 0.5}
    return digits_fleet


@pytest.mark.parametrize("stage", ["calibration", "measures"])
def test_logits_deleted_before_they_are_read_are_made_again(fleet: dict[str, Any], stage: str, tmp_path: Path) -> None:
    undisturbed = audited({**fleet, "storage": str(tmp_path / "other")}, Quiet())
    audit = audited(fleet, Deletes(stage, tmp_path / "runs" / "cache" / "logits"))
    assert numbers(audit) == numbers(undisturbed)
    assert audit.calibration == undisturbed.calibration
    assert all(model.forwards > undisturbed.models[0].forwards for model in audit.models)


def test_everything_deleted_before_the_verdict_is_made_again(
    fleet: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = audited({**fleet, "storage": str(tmp_path / "other")}, Quiet())
    judge, observed = tables.model_result, []

    def deleted_first(*arguments: Any) -> Any:
        if not observed:
            observed.append(shutil.rmtree(tmp_path / "runs" / "cache"))
        return judge(*arguments)

    monkeypatch.setattr(tables, "model_result", deleted_first)
    assert numbers(audited(fleet, Quiet())) == numbers(undisturbed)


def test_a_cache_that_is_emptied_for_ever_ends_the_audit(fleet: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="tables that stay, found those of good, weak deleted 3 times"):
        audited(fleet, Deletes("measures", tmp_path / "runs" / "cache" / "logits", times=9))


def test_tables_that_are_torn_again_and_again_end_the_audit(fleet: dict[str, Any], tmp_path: Path) -> None:
    def spoil(folder: Path) -> Callable[[Receipt], None]:
        return lambda receipt: [path.write_bytes(b"torn") for path in folder.rglob("*.parquet")] and None

    reporter = Quiet()
    reporter.done = spoil(tmp_path / "runs" / "cache" / "logits")  # type: ignore[method-assign]
    with pytest.raises(Exception, match="shards that cover 899 rows"):
        audited(fleet, reporter)


def test_an_audit_notes_what_it_used(fleet: dict[str, Any], tmp_path: Path) -> None:
    first, second = audited(fleet, Quiet()), audited(fleet, Quiet())
    cache = tmp_path / "runs" / "cache"
    each, two = [json.loads((cache / "used" / f"{r.audit_id}.json").read_text())["used"] for r in (first, second)]
    assert each == two
    assert all((cache / path).exists() for path in each)
    assert {path.split("/")[0] for path in each} == {"logits", "scores", "curves", "preflight"}
    there = {
        path.parent if path.parent.parent.parent.name in ("logits", "scores") else path
        for path in cache.rglob("*")
        if path.is_file() and path.parent.name != "used"
    }
    assert {str(path.relative_to(cache)) for path in there} == set(each)
