from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import fsspec
import pyarrow.parquet as pq
import pytest

from services.errors import StorageError
from services.records import AUDIT_VERSION, AuditResult
from tracking.bundle import bundle, group_table


def test_read_gives_back_what_was_written(gf_audit: AuditResult, tmp_path: Path) -> None:
    path = bundle.write_bundle(gf_audit, str(tmp_path))
    assert Path(path).name == "bundle.json"
    assert bundle.read_bundle(str(tmp_path)) == gf_audit


def test_hostile_names_survive_on_any_file_system(hostile_audit: AuditResult) -> None:
    folder = "memory://hostile/audit"
    bundle.write_bundle(hostile_audit, folder)
    assert bundle.read_bundle(folder) == hostile_audit
    names = fsspec.filesystem("memory").ls("/hostile/audit/tables", detail=False)
    assert len(names) == len(hostile_audit.models)


def test_tables_hold_one_row_a_series_and_group(gf_audit: AuditResult, tmp_path: Path) -> None:
    bundle.write_bundle(gf_audit, str(tmp_path))
    files = sorted((tmp_path / "tables").iterdir())
    assert len(files) == 17 and files[0].name.startswith("000_")
    rows = pq.read_table(files[0]).to_pylist()
    assert len(rows) == 20
    cat = next(row for row in rows if row["series"] == "great" and row["group"] == "cat")
    assert cat["score"] == gf_audit.models[0].series[0].groups[3].score.value
    assert cat["worst"] and cat["index"] == 3 and cat["n"] == 1000 and cat["extra.accuracy"] == 0.9


def test_not_a_number_becomes_null() -> None:
    assert [group_table.finite(value) for value in (float("nan"), float("inf"), None, 0.0)] == [None, None, None, 0.0]


def test_bundle_json_comes_last(small_audit: AuditResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(model: object, file: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(group_table, "fill_parquet", broken)
    with pytest.raises(StorageError, match="disk full"):
        bundle.write_bundle(small_audit, str(tmp_path))
    assert not (tmp_path / "bundle.json").exists()
    assert not list(tmp_path.rglob("*.part"))


def test_a_newer_version_is_refused(small_audit: AuditResult, tmp_path: Path) -> None:
    bundle.write_bundle(replace(small_audit, schema_version=AUDIT_VERSION + 1), str(tmp_path))
    with pytest.raises(StorageError, match=rf"{AUDIT_VERSION} or older, found {AUDIT_VERSION + 1}"):
        bundle.read_bundle(str(tmp_path))


def test_a_bundle_of_version_1_gets_typed_series(small_audit: AuditResult, tmp_path: Path) -> None:
    bundle.write_bundle(small_audit, str(tmp_path))
    raw = json.loads((tmp_path / "bundle.json").read_text())
    for result in (result for model in raw["models"] for result in model["series"]):
        for new in ("evidence", "family", "label", "threat", "noise", "version"):
            del result["series"][new]
        result |= result.pop("metrics")
    del raw["checks"], raw["compared_with"]
    (tmp_path / "bundle.json").write_text(json.dumps({**raw, "schema_version": 1}))
    assert bundle.read_bundle(str(tmp_path)) == small_audit
    (tmp_path / "bundle.json").write_text(json.dumps({**raw, "schema_version": 1, "baseline": "20260101T000000Z-1"}))
    assert bundle.read_bundle(str(tmp_path)).compared_with == "20260101T000000Z-1"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "expected JSON"),
        ("[]", "whole-number schema_version"),
        ('{"schema_version": 1}', "audit_id: expected a bundle of classwise"),
    ],
)
def test_what_is_no_bundle_is_named(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "bundle.json").write_text(content)
    with pytest.raises(StorageError, match=message):
        bundle.read_bundle(str(tmp_path))


def test_a_missing_bundle_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="name STORAGE/audits"):
        bundle.read_bundle(str(tmp_path / "nowhere"))


def test_only_complete_audits_are_listed(small_audit: AuditResult, tmp_path: Path) -> None:
    base = str(tmp_path)
    ids = ("20261129T000000Z-b", "20261128T000000Z-a")
    for audit_id in ids:
        bundle.write_bundle(replace(small_audit, audit_id=audit_id), bundle.folder_of(base, "my fleet", audit_id))
    Path(bundle.folder_of(base, "my fleet", "20261130T000000Z-c")).mkdir(parents=True)
    results = [bundle.read_bundle(folder).audit_id for folder in bundle.list_bundles(base, "my fleet")]
    assert results == sorted(ids)
    assert bundle.list_bundles(base, "my-fleet") == []
