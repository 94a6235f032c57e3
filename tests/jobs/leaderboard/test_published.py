"""Published rows from JSON: what a valid file becomes, one clear error a fault, and where the rows may stand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from jobs.leaderboard.presets import PRESETS, ROLES
from jobs.leaderboard.published import PublishedFile, PublishedRow, beside, imported, read_published
from services.errors import ConfigError

ROW = {"dataset": "CIFAR-10", "method": "PGD", "architecture": "ResNet-18", "metrics": {"clean": 83.5}}
FILE = {"schema_version": 1, "source": "a paper, table 4", "license": "CC BY 4.0", "unit": "percent", "rows": [ROW]}


def write(folder: Path, content: Any) -> str:
    path = folder / "published.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def test_a_row_becomes_an_entry_in_shares_marked_with_its_source(tmp_path: Path) -> None:
    metrics = {
        "clean": 83.5,
        "pgd20/linf-0.03137/wcr": 20,
        "ge/pr/uniform-0.08": -1.5,
        "train/seconds_per_epoch": 165.0,
    }
    row = {**ROW, "metrics": metrics, "seed": "3", "threat_model": "Linf 0.0313725"}
    (entry,), (note,) = read_published(write(tmp_path, {**FILE, "rows": [row], "note": "First 1,000 images."}))
    assert {key: number.value for key, number in entry.numbers.items()} == {
        "clean/aggregate": 0.835,
        "pgd20/linf-0.03137/wcr": 0.2,
        "ge/pr/uniform-0.08": -0.015,
        "train/seconds_per_epoch": 165.0,
    }
    assert (entry.name, entry.source, entry.count) == ("PGD ResNet-18", "a paper, table 4", 1)
    assert (entry.seeds, entry.threat_model) == (("3",), "Linf 0.0313725")
    assert all(number.low is number.high is None for number in entry.numbers.values())
    assert note.startswith("published: 1 row is from a paper, table 4 (CC BY 4.0), measured by others on other samples")
    assert note.endswith("First 1,000 images.")


def changed(**changes: Any) -> dict[str, Any]:
    return {key: value for key, value in {**FILE, **changes}.items() if value is not None}


@pytest.mark.parametrize(
    ("content", "messages"),
    [
        ("{", ["valid JSON"]),
        ('{"unit": "share", "unit": "percent"}', ["the key 'unit' twice"]),
        ('{"rows": NaN}', ["NaN, which is no number of JSON"]),
        ("[" * 100_000, ["nested too deep|valid JSON"]),
        ([1], ["a mapping with schema_version, source, license, unit and rows, found list"]),
        (changed(license=None, source=None), ["source: expected this field", "license: expected this field"]),
        (changed(schema_version=2), ["schema_version"]),
        (changed(unit="%"), ["unit: expected 'percent' or 'share', found"]),
        (changed(rows=[]), ["rows: expected at least 1"]),
        (changed(rowz=[]), ["'rowz'; did you mean 'rows'"]),
        (changed(rows=[{**ROW, "metrics": {}}, {**ROW, "method": ""}]), ["rows.0..metrics", "rows.1..method"]),
        (changed(rows=[{**ROW, "metrics": {"clean": "83"}}]), ["rows.0..metrics.clean: expected a valid number"]),
        (changed(rows=[{**ROW, "metrics": {"clean": True}}]), ["rows.0..metrics.clean"]),
        (
            changed(unit="share", rows=[ROW, {**ROW, "metrics": {"train/seconds_per_epoch": -1}}]),
            [
                "rows.0..metrics.clean: expected a share within 1 of 0, found 83.5; say unit: percent",
                "seconds of at least",
            ],
        ),
        (changed(rows=[{**ROW, "metrics": {"clean": 8350}}]), ["a percent within 100 of 0, found 8350"]),
    ],
)
def test_each_fault_is_one_clear_error(tmp_path: Path, content: Any, messages: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        read_published(write(tmp_path, content))
    assert len(caught.value.problems) == len(messages)
    for pattern in messages:
        assert caught.match(pattern)


def test_a_file_that_is_missing_too_large_or_no_text_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        read_published(tmp_path / "none.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(ConfigError, match="UTF-8"):
        read_published(tmp_path / "bytes.json")
    monkeypatch.setattr("jobs.leaderboard.published.MAX_BYTES", 10)
    with pytest.raises(ConfigError, match="at most 10 bytes"):
        read_published(write(tmp_path, FILE))


def test_filters_hold_for_published_rows_whatever_the_spelling(tmp_path: Path) -> None:
    rows = [ROW, {**ROW, "dataset": "SVHN"}, {**ROW, "threat_model": "L2 0.5"}]
    path = write(tmp_path, {**FILE, "rows": rows})
    kept, _ = imported([path], {"dataset": ["cifar10"], "threat_model": ["Linf 0.0313725"]})
    assert [(entry.dataset, entry.threat_model) for entry in kept] == [("CIFAR-10", "not declared")]
    kept, (note,) = imported([path], {"team": ["vision"]})
    assert kept == [] and "no row of" in note


def test_rows_stand_beside_their_data_set_and_threat_model_else_apart(tmp_path: Path) -> None:
    rows = [ROW, {**ROW, "threat_model": "L2 0.5"}, {**ROW, "dataset": "SVHN"}]
    published, _ = read_published(write(tmp_path, {**FILE, "rows": rows}))
    by_name = {("cifar10", "Linf 0.0313725", "d1"): [], ("cifar10", "L2 0.5", "d1"): [], ("mnist", "L2 0.5", "d2"): []}
    messages = [
        [(e.dataset, e.threat_model) for e in entries] for _, entries in beside(by_name, published, together=False)
    ]
    undeclared = ("CIFAR-10", "not declared")
    assert messages == [[undeclared], [undeclared, ("CIFAR-10", "L2 0.5")], [], [("SVHN", "not declared")]]
    ((_, everything),) = beside(by_name, published, together=True)
    assert everything == published


def test_the_example_in_the_documentation_is_valid_and_names_every_field(tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "leaderboard.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```json\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (entry,), _ = read_published(write(tmp_path, example))
    assert entry.numbers["clean/aggregate"].value == 0.8
    body = json.loads(example)
    assert set(body) == set(PublishedFile.model_fields) and set(body["rows"][0]) == set(PublishedRow.model_fields)
    assert all(re.search(rf"\b{name}\b", text) for name in (*ROLES, *PRESETS))
