"""Remedies are listed cheapest first with commands that can be run, and the sweep file with them is one."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from jobs.cli import app
from jobs.fleetfile.reading import validate_fleet
from jobs.repair.proposals import Proposed, proposal_words, proposed
from jobs.repair.tuning import Tuning
from jobs.training.sweep_plan import plan_training
from jobs.training.sweepfile import validate_sweep

TRAIN = "sklearn:digits?split=train"


@pytest.fixture
def fleet(digits_fleet: dict[str, Any]) -> dict[str, Any]:
    measures = ["clean", {"name": "pgd", "epsilons": [0.1], "steps": 5}]
    model = {**digits_fleet["models"][0], "name": "a model"}
    return {**digits_fleet, "models": [model], "measures": measures, "gates": []}


def listed(fleet: dict[str, Any], under: str = "", **options: Any) -> Proposed:
    return proposed(
        validate_fleet(fleet), "my fleet.yaml", "a model", under=under, rounds=6, tuning=Tuning(TRAIN, **options)
    )


def test_remedies_stand_in_order_of_their_cost_each_with_its_command(fleet: dict[str, Any]) -> None:
    done = listed(fleet)
    assert [each.name for each in done.remedies] == [
        "offsets",
        "weighted",
        "logit-adjusted",
        "cfa",
        "dafa",
        "wat",
        "samples",
    ]
    costs = [each.cost for each in done.remedies]
    assert costs[0].startswith("at most 19 audits of pgd5/linf-0.10000 ")
    assert costs[1].startswith("55 passes ") and costs[3].startswith("55 passes ")
    assert costs[4].startswith("65 passes ")
    words = shlex.split(done.remedies[4].command)
    begin = ["classwise", "repair", "my fleet.yaml", "--model", "a model", "--under", "pgd5/linf-0.10000"]
    assert words == [*begin, "--train", TRAIN, "--method", "dafa"]
    assert not done.remedies[-1].command
    clean = listed(fleet, "clean")
    assert [each.name for each in clean.remedies] == ["offsets", "weighted", "logit-adjusted", "samples"]
    assert clean.remedies[1].cost.startswith("5 passes ") and not clean.sweep


def test_the_sweep_file_can_be_trained(fleet: dict[str, Any], tmp_path: Path) -> None:
    *_, command, text = proposal_words(listed(fleet), "my fleet.yaml")
    assert command.endswith("classwise train sweep.yaml --audit 'my fleet.yaml'")
    data = {**yaml.safe_load(text), "storage": str(tmp_path)}
    plan = plan_training(validate_sweep(data))
    assert [item.trial.name.partition("-")[0] for item in plan.trials] == ["cfa", "dafa", "wat"]
    assert all(item.task.start for item in plan.trials) and "normalisation" not in " ".join(plan.notes)
    assert yaml.safe_load(text)["methods"][0]["budget"]["epsilon"] == pytest.approx(0.1)


def test_what_cannot_be_tried_says_why_instead(fleet: dict[str, Any]) -> None:
    fleet["models"][0]["uri"] = "export:net.pt2"
    done = listed(fleet)
    assert done.remedies[0].command and not done.sweep
    assert all(
        not each.command and "--architecture '{name: resnet18}'" in each.hindrance for each in done.remedies[1:-1]
    )
    named = listed(fleet, architecture={"name": "small_cnn", "width": 8})
    assert all(each.command for each in named.remedies[:-1])
    assert yaml.safe_load(named.sweep)["architectures"] == [{"name": "small_cnn", "width": 8, "init": "export:net.pt2"}]


def test_the_command_lists_and_runs_nothing(fleet: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(yaml.safe_dump(fleet))
    arguments = ["repair", str(file), "--model", "a model", "--propose"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0 and "Remedies for a model under pgd5/linf-0.10000, cheapest first:" in done.output
    assert "by hand: collect them" in done.output and "--train npz:TRAIN.npz" in done.output
    body = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert body["remedies"][0]["name"] == "offsets" and not Path(fleet["storage"]).exists()
    wrong = CliRunner().invoke(app, ["repair", str(file), "--model", "m", "--propose"])
    assert wrong.exit_code == 2 and "--model: expected a model of the fleet file" in wrong.output
