"""A weak class raised by offsets, and shown on samples that took no part."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from jobs.cli import app
from jobs.fleetfile.reading import validate_fleet
from jobs.repair.record import REPAIR_FILE
from jobs.repair.repair import Repaired, repair
from jobs.terminal.progress import Quiet
from services.errors import ConfigError
from services.records import AuditResult
from tracking.bundle.bundle import fleet_folder, list_bundles, read_bundle
from tracking.bundle.scores import read_kept_scores

HELD = [0.0] * 8 + [-9.0, 0.0]
"""Offsets that hold the class 8 down: what a repair must undo."""


@pytest.fixture
def weak(digits_fleet: dict[str, Any]) -> dict[str, Any]:
    """A good network on all digits, one class of which is hardly ever predicted."""
    data = {**deepcopy(digits_fleet), "models": deepcopy(digits_fleet["models"][:1]), "measures": ["clean"]}
    data["models"][0] |= {"name": "m", "offsets": HELD}
    data["tracking"] = {"enabled": False, "figures": False}
    return {
        **data,
        "samples": {"uri": "sklearn:digits?split=test", "reserve": 0.5},
        "intervals": {"delta": 0.1},
        "gallery": "none",
    }


def repaired(data: dict[str, Any], **options: Any) -> Repaired:
    done = repair(validate_fleet(data), "m", Quiet(), **{"rounds": 2, **options})
    assert done is not None
    return done


def test_a_class_that_offsets_held_down_is_raised_and_shown_on_fresh_samples(weak: dict[str, Any]) -> None:
    done = repaired(weak)
    assert done.repair.verdict == "repaired" and done.repair.worst_before < 0.3 < 0.8 < done.repair.worst_after
    assert done.repair.offsets[8] - np.mean(done.repair.offsets) > -4 and REPAIR_FILE.read(done.published.folder)
    means = [audit.models[0].series[0].aggregate.value or 0.0 for audit in (done.published.result, before(done))]
    assert done.repair.mean.value == pytest.approx(means[0] - means[1])
    flags = {group.name: group.flag for _, series, group in done.comparison.flagged("better") if group.index >= 0}
    assert flags == {"8": "better"}, series_names(done)


def series_names(done: Repaired) -> str:
    return str([series.series for model in done.comparison.models for series in model.series])


def before(done: Repaired) -> AuditResult:
    folders = list_bundles(done.published.folder.split("/audits/")[0], "digits-repair")
    return next(audit for folder in folders if (audit := read_bundle(folder)).audit_id == done.repair.before)


def test_no_sample_of_the_fit_is_among_those_that_show_it(weak: dict[str, Any]) -> None:
    done = repaired(weak, rounds=1)
    folder = list_bundles(weak["storage"], "digits-repair-fit")[0]
    used = read_kept_scores(folder, 0, read_bundle(folder).models[0].spec)["id"]
    fresh = read_kept_scores(done.published.folder, 0, done.published.result.models[0].spec)["id"]
    assert not set(used.tolist()) & set(fresh.tolist())
    assert (done.repair.fitted, done.repair.samples) == (len(used), len(fresh))


def test_the_same_repair_again_measures_nothing_and_another_one_has_a_smaller_level(weak: dict[str, Any]) -> None:
    weak["samples"]["reserve"] = None
    first, again = repaired(weak), repaired(weak)
    assert again.repair.offsets == first.repair.offsets and again.repair.level == first.repair.level == 0.05
    assert sum(model.forwards for model in again.published.result.models) <= 600, "preflight alone"
    weak["models"][0]["offsets"] = [0.0] * 8 + [-7.0, 0.0]
    other = repaired(weak)
    assert other.repair.offsets != first.repair.offsets and (other.repair.use, other.repair.level) == (2, 0.025)


def test_what_cannot_be_raised_is_left_alone(weak: dict[str, Any]) -> None:
    weak["measures"] = [{"name": "pgd", "steps": 3, "epsilons": [0.9]}]
    weak["models"][0]["offsets"] = []
    assert repair(validate_fleet(weak), "m", Quiet()) is None, "all classes fall to 0: no class is weaker"
    assert not Path(fleet_folder(weak["storage"], "digits-repair")).exists()


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, {"model": "n"}, r"--model: expected a model of the fleet file, found 'n'; choose one of: m"),
        ({}, {"under": "cleen"}, r"--under: expected a series over all samples.* found 'cleen'; did you mean 'clean'"),
        ({"measures": ["clean", "great"]}, {"under": "great"}, r"--under: .* found 'great'"),
        ({"measures": ["clean", "pr"]}, {"under": "pr/uniform-0.03137"}, r"--under: .* found 'pr/"),
        ({"measures": ["great"]}, {}, r"measures: expected an attack, or clean, found great"),
        (
            {"samples": {"uri": "sklearn:digits", "reserve": 0.2, "part": "reserve"}},
            {},
            r"samples.part: expected audit",
        ),
    ],
)
def test_what_cannot_be_repaired_is_refused(
    weak: dict[str, Any], changes: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    name = options.pop("model", "m")
    with pytest.raises(ConfigError, match=message):
        repair(validate_fleet({**weak, **changes}), name, Quiet(), **options)


def test_offsets_of_another_length_are_an_error_of_the_model(weak: dict[str, Any]) -> None:
    weak["models"][0]["offsets"] = [0.5, 0.5]
    with pytest.raises(Exception, match=r"m try 1 \(offsets\): expected 10 numbers, one a class, found 2"):
        repair(validate_fleet(weak), "m", Quiet())


def test_the_command_says_what_was_gained_and_gives_the_line_for_the_fleet_file(
    weak: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(yaml.safe_dump(weak))
    done = CliRunner().invoke(app, ["repair", str(file), "--model", "m", "--rounds", "2", "-q"])
    assert done.exit_code == 0, done.output
    assert "m under clean: repaired; the worst class gained" in done.output and "offsets: [" in done.output
    assert "changed under a name" not in done.output
    body = json.loads(CliRunner().invoke(app, ["repair", str(file), "--model", "m", "--rounds", "2", "--json"]).stdout)
    assert body["verdict"] == "repaired" and len(body["offsets"]) == 10
    weak["models"][0]["offsets"] = body["offsets"]
    assert validate_fleet(weak).config.models[0].offsets == tuple(body["offsets"])
