"""What an audit would cost: against what it then does, from the cache, decided early, with a price, on the console."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from jobs.audit.audit import forecast_audit, run_audit
from jobs.audit.forecast.cost_words import as_json, autoattack_words, cost_words
from jobs.audit.forecast.costs import Forecast, workers_of
from jobs.cli import app
from jobs.fleetfile.reading import validate_fleet
from jobs.fleetfile.tree import ResourcesConfig
from jobs.terminal.progress import Quiet
from services.errors import SourceError

PGD = {"name": "pgd", "steps": 5, "epsilons": [0.02]}
GATES = [{"measure": "pgd5/linf-0.02000", "metric": "aggregate", "at_least": 0.6}]


class Lines(Quiet):
    """Keeps what is said, in order."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def stage(self, name: str, shards: int, models: int) -> None:
        self.said.append(name)

    def note(self, text: str) -> None:
        self.said.append(text)


def fleet(digits_fleet: dict[str, Any], **changed: Any) -> Any:
    return validate_fleet({**digits_fleet, "measures": ["clean", PGD], "gates": GATES, **changed})


def forecast(digits_fleet: dict[str, Any], **changed: Any) -> Forecast:
    return forecast_audit(fleet(digits_fleet, **changed), Quiet())[0]


def test_an_audit_takes_no_more_passes_than_was_said(digits_fleet: dict[str, Any]) -> None:
    found, lines = forecast(digits_fleet), Lines()
    assert {(cost.model, cost.measure) for cost in found.costs} == {
        (name, measure) for name in ("good", "weak", "other") for measure in ("logits", "pgd5")
    }
    assert all(cost.samples == 899 and cost.seconds > 0 for cost in found.costs)
    done = run_audit(fleet(digits_fleet), lines).result
    assert any("estimate: at most" in line for line in lines.said[: lines.said.index("logits")])
    for model in done.models:
        mine = sum(cost.passes for cost in found.costs if cost.model == model.spec.name)
        assert 0 < model.forwards <= mine
    assert forecast(digits_fleet).costs == ()
    assert cost_words(forecast(digits_fleet)) == ["estimate: everything is in the cache"]


def test_the_last_audit_says_what_an_attack_usually_takes(digits_fleet: dict[str, Any]) -> None:
    """Most samples of these networks break at once, which nobody knows before the first audit."""
    assert all(cost.usual is None for cost in forecast(digits_fleet).costs)
    strong = [{**PGD, "epsilons": [0.3]}]
    done = run_audit(fleet(digits_fleet, measures=["clean", *strong], gates=[]), Quiet()).result
    found = forecast(digits_fleet, measures=["clean", *strong], gates=[], seed=1)
    usual = {cost.model: cost.usual for cost in found.costs}
    for model in done.models:
        share = usual[model.spec.name]
        assert share is not None and 0.05 < share < 0.9
    assert found.wall(found.costs, usual=True) < found.wall(found.costs)
    assert "as in the last audit about" in cost_words(found)[0]


def test_nothing_is_measured_by_a_plan(digits_fleet: dict[str, Any]) -> None:
    forecast(digits_fleet)
    cache = Path(digits_fleet["storage"], "cache")
    assert {each.name for each in cache.iterdir()} == {"preflight"}
    assert not Path(digits_fleet["storage"], "audits").exists()


def test_an_early_decision_is_expected_to_take_a_part(digits_fleet: dict[str, Any]) -> None:
    shares = {cost.measure: cost.share for cost in forecast(digits_fleet, decide="early").costs}
    assert shares["logits"] == 1.0 and 0.05 < shares["pgd5"] < 0.9
    only = forecast(digits_fleet, decide="early", early={"only": "gates"}, gates=[])
    assert {cost.measure: cost.share for cost in only.costs} == {"logits": 1.0, "pgd5": 0.0}
    assert "decided early about" in cost_words(forecast(digits_fleet, decide="early"))[0]


def test_time_hours_and_money() -> None:
    from jobs.audit.forecast.costs import Cost

    costs = (Cost("a", "pgd20", 100, 6000, 7200.0, 0.25), Cost("b", "pgd20", 100, 6000, 3600.0))
    found = Forecast(costs, (), workers=2, gpus=0.5, price=4.0, early=True)
    assert found.hours(costs) == pytest.approx(1.5) and found.money(1.5) == 6.0
    assert found.wall(costs) == pytest.approx(5400) and found.wall(costs, early=True) == pytest.approx(2700)
    assert as_json(found)["early_money"] == pytest.approx(3.0)
    assert cost_words(found)[0].startswith("estimate: at most 12,000 passes, 1:30:00 on 2 workers (1.5 GPU-hours, 6.00")


@pytest.mark.parametrize(
    ("resources", "workers"),
    [
        ({"runner": "local", "workers": 4}, 1),
        ({"workers": 4}, 4),
        ({"workers": "auto", "cpus": 0.5}, 2 * (os.cpu_count() or 1)),
        ({"workers": "auto", "address": "ray://x:1"}, 1),
    ],
)
def test_how_many_workers(resources: dict[str, Any], workers: int) -> None:
    assert workers_of(ResourcesConfig(**resources)) == workers


def test_autoattack_is_priced_where_it_is_not_measured(digits_fleet: dict[str, Any]) -> None:
    found = forecast(digits_fleet)
    assert {cost.samples for cost in found.autoattack} == {899}
    assert found.hours(found.autoattack) > 10 * found.hours(found.costs)
    assert "AutoAttack on these 899 samples" in next(autoattack_words(found))


def test_the_command_says_costs_and_what_samples_decide(digits_fleet: dict[str, Any], tmp_path: Path) -> None:
    digits_fleet |= {
        "models": digits_fleet["models"][:1],
        "measures": ["clean", PGD],
        "gates": [*GATES, {"measure": "clean", "metric": "wcr", "at_least": 0.8}],
    }
    file = tmp_path / "fleet.yaml"
    file.write_text(yaml.safe_dump(digits_fleet))

    def run(*arguments: str) -> str:
        ran = CliRunner().invoke(app, list(arguments))
        assert ran.exit_code == 0, ran.stderr
        return ran.stdout

    said = json.loads(run("plan", str(file), "--json", "--price", "2", "--decide", "early"))
    assert said["money"] == pytest.approx(2 * said["hours"]) and said["early_seconds"] < said["seconds"]
    assert len(said["costs"]) == 2 and len(said["decides"]) == 2
    assert "clean wcr >= 0.8: these samples decide pass from" in run("plan", str(file))
    assert "estimate: at most" in run("validate", "--cost", str(file))
    assert "estimate" not in run("validate", str(file))


def test_a_plan_opens_no_more_than_its_audit_would(digits_fleet: dict[str, Any], tmp_path: Path) -> None:
    digits_fleet["confine"] = [str(tmp_path / "granted")]
    for look in (forecast_audit, run_audit):
        with pytest.raises(SourceError, match="files of the folders that are granted"):
            look(validate_fleet(digits_fleet), Quiet())
