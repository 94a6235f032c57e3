"""The command line as a user meets it: exit codes, JSON on standard output, one clear error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from jsonschema import Draft202012Validator
from PIL import Image
from typer.main import get_command
from typer.testing import CliRunner

from jobs.cli import app
from tests.jobs.command import run, write

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")


def gate(at_least: float) -> list[dict[str, Any]]:
    return [{"measure": "clean", "metric": "aggregate", "at_least": at_least}]


def test_the_table_names_every_model_and_says_where_to_look(fleet_file: Path) -> None:
    ran = run("audit", str(fleet_file), "--quiet")
    assert ran.exit_code == 0, ran.output
    for text in ("good", "weak", "other", "clean", "great-softmax", "report   ", "bundle   "):
        assert text in ran.stdout
    report = next(line.split(maxsplit=1)[1] for line in ran.stdout.splitlines() if line.startswith("report"))
    assert "<html" in Path(report).read_text()[:2000]


def test_exit_codes_tell_pass_fail_and_undecided_apart(fleet_file: Path) -> None:
    models = [model for model in yaml.safe_load(fleet_file.read_text())["models"] if model["name"] == "good"]
    first = json.loads(run("audit", str(write(fleet_file, models=models)), "--json").stdout)
    assert [model["name"] for model in first["models"]] == ["good"]
    estimate = first["models"][0]["series"][0]["metrics"]["aggregate"]["value"]
    schema = json.loads(run("schema", "--result").stdout)
    Draft202012Validator.check_schema(schema)
    for at_least, code, outcome in ((0.05, 0, "pass"), (0.9999, 1, "fail"), (estimate, 3, "undecided")):
        ran = run("audit", str(write(fleet_file, gates=gate(at_least))), "--json")
        body = json.loads(ran.stdout)
        assert (ran.exit_code, body["outcome"]) == (code, outcome)
        assert Path(body["folder"]).is_dir()
        assert list(Draft202012Validator(schema).iter_errors(body)) == [] and set(body) == set(schema["properties"])
        shown = run("show", body["folder"], "--markdown")
        assert shown.exit_code == code and f" {outcome} |" in shown.stdout


def test_junit_has_a_case_a_gate(fleet_file: Path, tmp_path: Path) -> None:
    run("audit", str(write(fleet_file, gates=gate(0.9))), "--quiet", "--junit", str(tmp_path / "j.xml"))
    root = ElementTree.parse(tmp_path / "j.xml").getroot()
    assert [suite.get("name") for suite in root] == ["good", "weak", "other"]
    assert [len(suite.findall("testcase/failure")) for suite in root][1] == 1


def test_an_audit_that_fails_leaves_no_junit_of_an_earlier_one(fleet_file: Path, tmp_path: Path) -> None:
    junit = tmp_path / "reports" / "j.xml"
    for changes, message in (
        ({"gates": gate(0.9)}, None),
        ({"storage": ""}, "storage: expected at least 1 characters"),
        ({"samples": {"uri": "npz:none.npz"}}, "found nothing there"),
    ):
        ran = run(
            "audit",
            str(write(fleet_file, **{"storage": str(tmp_path / "runs"), **changes})),
            "--quiet",
            "--junit",
            str(junit),
        )
        root = ElementTree.parse(junit).getroot()
        if message is None:
            assert root.get("errors") == "0"
            continue
        assert (ran.exit_code, root.get("tests"), root.get("errors")) == (2, "1", "1")
        assert message in root[0][0][0].get("message", "")
        assert message in ran.stderr


def test_a_junit_file_that_cannot_be_written_is_told_before_any_work(fleet_file: Path, tmp_path: Path) -> None:
    ran = run("audit", str(fleet_file), "--junit", str(fleet_file / "j.xml"))
    assert ran.exit_code == 2
    assert "expected storage that can be written" in ran.stderr
    assert not (tmp_path / "runs").exists()


def test_an_audit_that_fails_leaves_no_sarif_of_an_earlier_one(fleet_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.sarif"
    out.write_text('{"runs": []}')
    ran = run("audit", str(write(fleet_file, samples={"uri": "npz:none.npz"})), "--quiet", "--sarif", str(out))
    output = json.loads(out.read_text())["runs"][0]
    assert ran.exit_code == 2 and output["invocations"] == [{"executionSuccessful": False}]
    assert [(each["ruleId"], each["level"]) for each in output["results"]] == [("audit/error", "error")]
    assert "found nothing there" in output["results"][0]["message"]["text"]


def test_sarif_points_at_the_line_of_the_gate(fleet_file: Path, tmp_path: Path) -> None:
    write(fleet_file, gates=gate(0.9))
    run("audit", str(fleet_file), "--quiet", "--sarif", str(tmp_path / "out.sarif"))
    results = json.loads((tmp_path / "out.sarif").read_text())["runs"][0]["results"]
    assert [(each["ruleId"], each["message"]["text"].split(":")[0]) for each in results][:1] == [
        ("gate/at_least", "weak")
    ]
    line = results[0]["locations"][0]["physicalLocation"]["region"]["startLine"]
    assert "at_least: 0.9" in fleet_file.read_text().splitlines()[line - 1]
    related = results[0]["relatedLocations"][0]["physicalLocation"]["region"]["startLine"]
    assert "name: weak" in fleet_file.read_text().splitlines()[related - 1]


def test_a_config_error_exits_2_within_two_seconds_and_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("fleet: x\nmodelz: []\n")
    code = (
        "import sys\nfrom jobs.cli import main\nsys.argv = ['classwise', 'audit', sys.argv[1]]\n"
        "try:\n    main()\nexcept SystemExit as stop:\n"
        "    heavy = [m for m in ('ray', 'torch', 'mlflow', 'jobs.audit.audit') if m in sys.modules]\n"
        "    print(stop.code, heavy)\n"
    )
    before = os.times()
    ran = subprocess.run([sys.executable, "-c", code, str(tmp_path / "f.yaml")], capture_output=True, text=True)
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    assert spent < 2, "seconds of processor time: those on the clock are the machine's"
    assert ran.stdout.strip() == "2 []"
    assert "did you mean 'models'?" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_errors_are_json_when_json_is_asked_for(tmp_path: Path) -> None:
    ran = run("audit", str(tmp_path / "none.yaml"), "--json")
    body = json.loads(ran.stdout)
    assert ran.exit_code == 2
    assert (body["outcome"], body["error"]) == ("error", "ConfigError")
    assert body["problems"][0]["remedy"] == "see deploy/examples/"


def test_validate_accounts_for_every_file_and_names_gates_that_cannot_pass(fleet_file: Path, tmp_path: Path) -> None:
    for name in ("ant", "bee"):
        (tmp_path / "d" / name).mkdir(parents=True)
        Image.new("L", (8, 8)).save(tmp_path / "d" / name / "0.png")
    (tmp_path / "d" / "bee" / "1.heic").write_bytes(b"\x00\x00\x00\x18ftypheic")
    (tmp_path / "d" / "bee" / "._0.png").write_bytes(b"")
    samples = {"uri": f"imagefolder:{tmp_path / 'd'}", "on_corrupt": "skip"}
    gates = [{"measure": "clean", "metric": "wcr", "at_least": 0.8}]
    write(fleet_file, samples=samples, gates=gates)
    shown, data = run("validate", str(fleet_file)).stdout, json.loads(run("validate", str(fleet_file), "--json").stdout)
    assert (data["unread"], data["left_out"]) == ({"bee": {".heic": 1}}, {"hidden": 1})
    for text in (shown, "\n".join(data["notes"])):
        assert "1 file of bee not read: .heic" in text
        assert "clean wcr >= 0.8: cannot pass" in text


def test_validate_opens_sources_and_runs_nothing(fleet_file: Path) -> None:
    ran = run("validate", str(fleet_file))
    assert ran.exit_code == 0
    assert "valid: fleet digits, 3 models, 899 samples of 10 classes, series clean, great-softmax" in ran.stdout
    gates = [{"measure": "clean", "metric": "aggregate", "not_worse_than": "last"}]
    gated = write(fleet_file, gates=gates)
    assert "899 samples can decide margins from" in run("validate", str(gated)).stdout
    (margin,) = json.loads(run("validate", str(gated), "--json").stdout)["margins"]
    assert margin.startswith("clean aggregate not worse than last")
    models = yaml.safe_load(fleet_file.read_text())["models"]
    models[0]["uri"] += ".none"
    models[1]["uri"] = "torchscript:gone.pt"
    broken = run("validate", str(write(fleet_file, models=models)))
    assert broken.exit_code == 2
    assert "2 problems (SourceError)" in broken.stderr
    models[1]["uri"] = "facktory:x:y"
    misspelt = run("validate", str(write(fleet_file, models=models)))
    assert misspelt.exit_code == 2
    assert "did you mean 'factory'?" in misspelt.stderr


def test_schema_is_json_that_describes_the_file() -> None:
    assert json.loads(run("schema").stdout)["properties"]["fleet"]["type"] == "string"


def test_the_list_of_commands_is_whole_at_80_columns() -> None:
    """Nothing of it ends in three dots: a command's first sentence says all that its line can."""
    for command in ([], ["schedule"]):
        shown = CliRunner().invoke(app, [*command, "--help"], terminal_width=80).output
        assert [line for line in shown.split("Commands:")[1].splitlines() if line.endswith("...")] == []


def test_the_version_is_that_of_the_package() -> None:
    assert run("--version").output == f"classwise {version('classwise')}\n"


def test_every_option_has_help() -> None:
    known = dict(commands(get_command(app)))
    assert {"audit", "train", "validate", "show", "sync", "submit", "logs", "serve", "schedule run-now"} <= set(known)
    nameless = [
        f"{name} {parameter.name}"
        for name, command in known.items()
        for parameter in command.params
        if not (getattr(parameter, "help", None) or "").strip()
    ]
    assert nameless == []
    assert [name for name, command in known.items() if not (command.help or "").strip()] == []


def commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Every command with its name, those of groups as "group command"."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def test_an_unreachable_server_costs_no_audit_and_sync_uploads_later(fleet_file: Path, tmp_path: Path) -> None:
    ran = run("audit", str(write(fleet_file, tracking={"uri": "http://127.0.0.1:9"})))
    assert ran.exit_code == 0, ran.output
    assert "Upload to MLflow failed" in ran.stderr
    later = next(line for line in ran.stdout.splitlines() if line.startswith("later"))
    folder = later.split()[-1]
    done = run("sync", folder, "--tracking-uri", f"sqlite:///{tmp_path / 'm.db'}")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("uploaded")
    again = run("sync", folder, "--tracking-uri", f"sqlite:///{tmp_path / 'm.db'}")
    assert "is already at" in again.stdout
    shown = run("show", folder)
    assert "great-softmax" in shown.stdout


def test_an_override_is_validated_too(fleet_file: Path) -> None:
    ran = run("audit", str(fleet_file), "--runner", "rey")
    assert ran.exit_code == 2
    assert "resources.runner" in ran.stderr
