"""Tables of scores go when no audit used them for long, and are made again."""

from __future__ import annotations

import json
import shutil
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from jobs.audit.audit import run_audit
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from jobs.upkeep.prune import DAY, Rules, carry_out, plan_prune
from tests.jobs.upkeep.stored_audits import NOW, age, pruned


def table(base: Path, key: str, days: float, size: int = 1000) -> Path:
    folder = base / "cache" / "logits" / key[:2] / key
    folder.mkdir(parents=True)
    (folder / "000000000-000000100.parquet").write_bytes(b"x" * size)
    age(folder, days)
    return folder


def used(base: Path, audit: str, days: float, *folders: Path) -> None:
    path = base / "cache" / "used" / f"{audit}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    moment = (NOW - timedelta(days=days)).isoformat()
    paths = [str(folder.relative_to(base / "cache")) for folder in folders]
    path.write_text(json.dumps({"schema_version": 1, "audit_id": audit, "at": moment, "used": paths}))
    age(path, days)


def test_a_table_goes_when_no_audit_used_it_for_so_long(tmp_path: Path) -> None:
    old, read, young = table(tmp_path, "aa1", 90), table(tmp_path, "bb2", 90), table(tmp_path, "cc3", 5)
    used(tmp_path, "A1", 60, old, read)
    used(tmp_path, "A2", 3, read)
    assert pruned(str(tmp_path), cache_days=30) == {"aa1"}
    assert read.exists() and young.exists()
    notes = sorted(path.name for path in (tmp_path / "cache" / "used").iterdir())
    assert notes == ["0-merged.json"]
    assert pruned(str(tmp_path), cache_days=4) == {"cc3"}  # the merged note remembers the last use
    assert pruned(str(tmp_path), cache_days=2) == {"bb2"}


def test_the_least_recently_used_go_down_to_a_size_but_not_what_is_in_use(tmp_path: Path) -> None:
    first, two, three = table(tmp_path, "aa1", 9), table(tmp_path, "bb2", 8), table(tmp_path, "cc3", 0.01)
    used(tmp_path, "A1", 0.5, first)
    assert pruned(str(tmp_path), cache_bytes=2000) == {"bb2"}
    assert pruned(str(tmp_path), cache_bytes=0) == {"aa1"}
    assert not two.exists() and three.exists()


def test_after_pruning_everything_an_audit_gives_the_same_numbers(digits_fleet: dict[str, Any]) -> None:
    digits_fleet["models"] = digits_fleet["models"][:1]
    fleet = validate_fleet(digits_fleet)
    first = run_audit(fleet, Quiet()).result
    later = time.time() + 100 * DAY
    rules = Rules(cache_days=30)
    plan = plan_prune(fleet.config.storage, rules, later)
    assert {item.kind for item in plan.remove} == {"table"}
    assert plan.size == sum(item.size for item in carry_out(plan, fleet.config.storage, later))
    assert not list(Path(fleet.config.storage, "cache").rglob("*.parquet"))
    again = run_audit(fleet, Quiet()).result
    assert again.models[0].series == first.models[0].series
    assert again.models[0].forwards > 0


def test_a_table_pruned_in_the_middle_of_an_audit_is_made_again(digits_fleet: dict[str, Any], tmp_path: Path) -> None:
    observed: list[str] = []

    class Prunes(Quiet):
        def stage(self, name: str, shards: int, models: int) -> None:
            if name == "measures" and not observed:
                observed.append(name)
                rules, later = Rules(cache_days=1), time.time() + 9 * DAY
                carry_out(plan_prune(base, rules, later), base, later)

    digits_fleet["models"] = digits_fleet["models"][:1]
    undisturbed = run_audit(validate_fleet(digits_fleet), Quiet()).result
    shutil.rmtree(digits_fleet["storage"])
    base = digits_fleet["storage"] = str(tmp_path / "pruned")
    disturbed = run_audit(validate_fleet(digits_fleet), Prunes()).result
    assert disturbed.models[0].series == undisturbed.models[0].series
    assert disturbed.models[0].forwards == 2 * undisturbed.models[0].forwards
