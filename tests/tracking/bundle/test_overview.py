"""The overview holds all of an audit but its classes, and the tables hold those."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from services.errors import StorageError
from services.records import AuditResult
from services.storage import files
from tracking.bundle import bundle
from tracking.bundle.classes import read_groups
from tracking.bundle.overview import OVERVIEW, overview_of, parsed_overview
from tracking.bundle.summary import lenses
from tracking.bundle.words import fleet_words, verdict_words
from tracking.report.data import class_table


def test_a_bundle_has_its_overview_beside_it(attacked_audit: AuditResult, tmp_path: Path) -> None:
    path = Path(bundle.write_bundle(attacked_audit, str(tmp_path)))
    result = parsed_overview((tmp_path / OVERVIEW).read_bytes())
    assert result is not None and result == overview_of(attacked_audit, path.stat().st_size)
    assert list(result.lenses) == lenses(attacked_audit)
    assert result.verdict == verdict_words(attacked_audit) and result.words == tuple(fleet_words(attacked_audit))
    model, made = attacked_audit.models[0], result.models[0]
    assert (made.name, made.outcome, made.gates) == (model.spec.name, model.outcome, model.gates)
    series = made.find("great")
    assert series is not None and series.metrics == model.series[0].metrics and series.worst == model.series[0].worst
    assert series.refuted == model.refuted[0].overall and series.groups == 6
    assert made.find("none") is None


def test_its_size_does_not_grow_with_the_classes(make_audit: Callable[..., AuditResult], tmp_path: Path) -> None:
    sizes = []
    for classes in (10, 1000):
        folder = tmp_path / str(classes)
        bundle.write_bundle(make_audit(3, classes), str(folder))
        sizes.append((folder / OVERVIEW).stat().st_size)
    assert sizes[1] < 1.2 * sizes[0] < 10_000


def test_groups_come_back_from_the_table(hostile_audit: AuditResult, tmp_path: Path) -> None:
    bundle.write_bundle(hostile_audit, str(tmp_path))
    result = overview_of(hostile_audit, 0)
    for model, made in zip(hostile_audit.models, result.models, strict=True):
        series = made.series[0]
        rows = read_groups(files.join(str(tmp_path), "tables", made.table), series.key, series.grouping)
        assert [row.group.score for row in rows] == [group.score for group in model.series[0].groups]
        assert [row.group.name for row in rows] == [group.name for group in model.series[0].groups]
        assert [row.worst for row in rows].count(True) == 1
        assert [row.close for row in rows] == [
            bool(flags & 2) for *_, flags in class_table(hostile_audit)["rows"][: len(rows)]
        ] or model is not hostile_audit.models[0]
    assert read_groups(files.join(str(tmp_path), "tables", result.models[0].table), "none", "class") == []


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"schema_version": 1}'])
def test_what_is_no_overview_is_none(content: bytes) -> None:
    assert parsed_overview(content) is None


def test_an_overview_of_a_newer_version_is_none(small_audit: AuditResult, tmp_path: Path) -> None:
    bundle.write_bundle(small_audit, str(tmp_path))
    raw = json.loads((tmp_path / OVERVIEW).read_text())
    assert parsed_overview(json.dumps(raw).encode()) is not None
    assert parsed_overview(json.dumps({**raw, "schema_version": 2}).encode()) is None


def test_what_is_no_table_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and nothing")
    for name in ("a.parquet", "b.parquet"):
        with pytest.raises(StorageError, match=f"{name}: expected a table of classwise"):
            read_groups(str(tmp_path / name), "great", "class")
