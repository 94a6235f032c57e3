"""Retention: what may go goes, what may not never does, and whatever runs beside it goes on."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import fsspec
import pytest
from typer.testing import CliRunner

from jobs.cli import app
from jobs.submission.queue import Queue
from jobs.submission.submission import Ending, Submission, folder_in, write_ending
from jobs.upkeep.prune import DAY, Rules, carry_out, plan_prune
from jobs.upkeep.prune_cli import parsed_size, shown_size
from services.errors import ConfigError, StorageError
from services.records import Outcome
from services.storage import files
from tests.jobs.upkeep.stored_audits import NOW, accept, age, bundle, pruned


@pytest.fixture(params=["folder", "memory"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "folder":
        yield str(tmp_path / "runs")
        return
    yield "memory://prune/runs"
    fsspec.filesystem("memory").store.clear()


def test_the_newest_so_many_are_kept_in_each_fleet(base: str) -> None:
    ours = [bundle(base, "signs", days) for days in (9, 7, 5, 3)]
    other = bundle(base, "other", 400)
    assert pruned(base, keep_last=2) == set(ours[:2])
    left = files.listing(files.join(base, "audits", "signs"))
    assert left == sorted(ours[2:])
    assert files.listing(files.join(base, "audits", "other")) == [other]


def test_a_bundle_stays_that_either_rule_keeps(base: str) -> None:
    names = [bundle(base, "signs", days) for days in (40, 30, 20, 1)]
    assert pruned(base, keep_last=3, keep_days=10) == {names[0]}
    assert pruned(base, keep_days=25) == {names[1]}
    assert pruned(base, keep_days=0) == {names[2]}  # the newest stays, whatever its age


def test_only_the_fleet_that_is_named(base: str) -> None:
    bundle(base, "signs", 9), bundle(base, "signs", 8)
    other = bundle(base, "digits", 9)
    bundle(base, "digits", 8)
    assert pruned(base, keep_last=1, fleet="digits") == {other}


def test_without_a_rule_no_bundle_and_no_table_goes(base: str) -> None:
    bundle(base, "signs", 900), bundle(base, "signs", 800)
    files.write_bytes(files.join(base, "cache", "logits", "aa", "aa11", "0-1.parquet"), b"x")
    assert pruned(base) == set()


def test_what_was_accepted_or_is_compared_with_or_not_uploaded_stays(base: str) -> None:
    accepted, compared, unsynced, plain = (
        bundle(base, "signs", 50),
        bundle(base, "signs", 40),
        bundle(base, "signs", 30, synced=False),
        bundle(base, "signs", 20),
    )
    bundle(base, "signs", 1, gates=("last", compared[:25]))
    record = accept(base, "signs", accepted)
    rules = Rules(keep_last=1)
    plan = plan_prune(base, rules, NOW.timestamp())
    why = {path.rpartition("/")[2]: reason for path, reason in plan.kept}
    assert why[accepted] == "accepted"
    assert "gate" in why[compared]
    assert "--even-unsynced" in why[unsynced]
    assert [item.path.rpartition("/")[2] for item in plan.remove] == [plain]
    assert pruned(base, keep_last=1, even_unsynced=True) == {plain, unsynced}
    assert files.exists(files.join(base, "audits", "signs", accepted, "bundle.json"))
    assert files.exists(record)


def test_an_audit_that_is_accepted_after_the_plan_stays(base: str) -> None:
    old = bundle(base, "signs", 50)
    bundle(base, "signs", 1)
    rules = Rules(keep_last=1)
    plan = plan_prune(base, rules, NOW.timestamp())
    assert len(plan.remove) == 1
    accept(base, "signs", old)
    assert carry_out(plan, base, NOW.timestamp()) == []
    assert files.exists(files.join(base, "audits", "signs", old, "bundle.json"))


def test_an_audit_that_is_accepted_after_the_plan_stays_where_listings_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in an object store's client, which answers `exists` from its last listing."""
    memory, base = fsspec.filesystem("memory"), "memory://remembers/runs"
    old = bundle(base, "signs", 50)
    bundle(base, "signs", 1)
    plan = plan_prune(base, Rules(keep_last=1), NOW.timestamp())
    remembered = set(memory.store)
    monkeypatch.setattr(type(memory), "exists", lambda self, path: path in (remembered or set(self.store)))
    monkeypatch.setattr(type(memory), "invalidate_cache", lambda self, path=None: remembered.clear())
    accept(base, "signs", old)
    assert plan.remove and carry_out(plan, base, NOW.timestamp()) == []
    memory.store.clear()


def test_an_audit_that_ends_after_the_plan_keeps_what_it_compares_with_where_listings_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in s3fs: a folder's listing says whether a file exists, and to forget a path keeps the folders below it."""
    memory, base = fsspec.filesystem("memory"), "memory://ends/runs"
    old = bundle(base, "signs", 50)
    bundle(base, "signs", 1)
    running = files.join(base, "audits", "signs", f"{NOW:%Y%m%dT%H%M%SZ}-0a1b2c3d-00000000")
    files.write_bytes(files.join(running, "tables", "000_m.parquet"), b"x")
    plan = plan_prune(base, Rules(keep_last=1), NOW.timestamp())
    memory_of = {folder: set(memory.ls(folder, detail=False)) for folder, _, _ in memory.walk("/ends")}

    def exists(self: Any, path: str) -> bool:
        return path in memory_of.get(path.rpartition("/")[0], self.store)

    def invalidate_cache(self: Any, path: str | None = None) -> None:
        for folder in [each for each in memory_of if path is None or f"{path}/".startswith(f"{each}/")]:
            del memory_of[folder]

    monkeypatch.setattr(type(memory), "exists", exists)
    monkeypatch.setattr(type(memory), "invalidate_cache", invalidate_cache)
    assert not files.exists(files.join(running, "bundle.json"))
    assert bundle(base, "signs", 0, gates=(old[:25],)) == running.rpartition("/")[2]
    assert plan.remove and carry_out(plan, base, NOW.timestamp()) == []
    memory.store.clear()


def test_an_audit_that_ends_during_the_removals_keeps_what_it_compares_with(
    base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = bundle(base, "signs", 50), bundle(base, "signs", 40), bundle(base, "signs", 30)
    bundle(base, "signs", 1)
    plan = plan_prune(base, Rules(keep_last=1), NOW.timestamp())
    real = files.remove

    def remove(url: str) -> None:
        real(url)
        if url.endswith(first):
            bundle(base, "signs", 0, gates=(second[:25],))

    monkeypatch.setattr(files, "remove", remove)
    assert [item.path.rpartition("/")[2] for item in carry_out(plan, base, NOW.timestamp())] == [first, third]


@pytest.mark.parametrize("content", [b"{torn", b"[" * 100_000])
def test_nothing_goes_when_what_was_accepted_cannot_be_read(base: str, content: bytes) -> None:
    bundle(base, "signs", 50), bundle(base, "signs", 1)
    files.write_bytes(files.join(base, "audits", "signs", "accepted.json"), content)
    with pytest.raises(StorageError, match="a record of accepted audits"):
        plan_prune(base, Rules(keep_last=1), NOW.timestamp())


def test_a_storage_is_listed_once_and_each_bundle_costs_the_same(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    requested: Counter[str] = Counter()

    def counted(name: str) -> Callable[..., Any]:
        real = getattr(files, name)

        def count(*arguments: Any, **options: Any) -> Any:
            requested[name] += 1
            return real(*arguments, **options)

        return count

    for name in ("walk", "listing", "exists", "read_bytes"):
        monkeypatch.setattr(files, name, counted(name))
    totals = []
    for count in (10, 20):
        home = files.join(base, str(count))
        for days in range(count):
            bundle(home, "signs", days)
        requested.clear()
        rules = Rules(keep_last=1)
        plan = plan_prune(home, rules, NOW.timestamp())
        assert len(plan.remove) == count - 1 and (requested["walk"], requested["listing"]) == (5, 0)
        assert len(carry_out(plan, home, NOW.timestamp())) == count - 1
        totals.append(requested.total())
    assert totals[1] < 2 * totals[0], totals


def test_leftovers_of_killed_processes_go_after_a_day_and_not_before(tmp_path: Path) -> None:
    base = tmp_path / "runs"
    old, new = base / "cache/logits/aa/aa11/.0-1.parquet.0a1b2c3d.part", base / "cache/.0a1b2c3d.probe"
    stopped, writing = base / "audits/signs/20261120T000000Z-1", base / "audits/signs/20261128T110000Z-2"
    for path in (old, new, stopped / "scores/000_m.parquet", writing / "scores/000_m.parquet"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    for path, days in ((old, 2.0), (new, 0.5), (stopped, 3.0), (writing, 0.1)):
        age(path, days)
    assert pruned(str(base)) == {old.name, stopped.name}
    assert new.exists() and writing.exists() and not stopped.exists()


def test_the_command_shows_asks_and_refuses_without_a_terminal(tmp_path: Path) -> None:
    today = datetime.now(UTC)
    base, folders = str(tmp_path), []
    for days in (9, 1):
        folders.append(tmp_path / "audits" / "signs" / f"{today - timedelta(days=days):%Y%m%dT%H%M%SZ}-1")
        folders[-1].mkdir(parents=True)
        (folders[-1] / "bundle.json").write_text('{"config": {}}')
        (folders[-1] / "tracking.json").write_text('{"uploads": [{}]}')
    run = CliRunner().invoke
    refused = run(app, ["prune", base, "--keep-last", "1"])
    assert refused.exit_code == 2
    assert "--dry-run first, then give --yes" in refused.stderr
    shown = run(app, ["prune", base, "--keep-days", "5", "--dry-run"])
    assert (shown.exit_code, folders[0].exists()) == (0, True)
    assert "9 days old" in shown.stdout and "in all 1 item" in shown.stdout
    dry = json.loads(run(app, ["prune", base, "--keep-last", "1", "--dry-run", "--json"]).stdout)
    assert dry["dry_run"] and [item["kind"] for item in dry["removed"]] == ["bundle"]
    done = run(app, ["prune", base, "--keep-last", "1", "--yes"])
    assert done.exit_code == 0, done.output
    assert "removed 1 item" in done.stdout
    assert [folder.exists() for folder in folders] == [False, True]
    for wrong in (tmp_path / "nowhere", folders[1] / "bundle.json"):
        missing = run(app, ["prune", str(wrong), "--dry-run"])
        assert missing.exit_code == 2 and "expected the folder of a storage" in missing.stderr


def test_sizes_are_read_and_shown() -> None:
    assert [parsed_size(text) for text in ("20GB", "1.5 TiB", "512mb", "7")] == [20 * 10**9, 3 * 2**39, 512 * 10**6, 7]
    assert [shown_size(size) for size in (0, 999, 1500, 2 * 10**9, 10**13)] == [
        "0 bytes",
        "999 bytes",
        "1.5 kB",
        "2.0 GB",
        "10.0 TB",
    ]
    for wrong in ("20 bananas", "-1GB", "GB"):
        with pytest.raises(ConfigError, match="--cache-size"):
            parsed_size(wrong)


def test_without_rules_it_says_that_only_leftovers_go(tmp_path: Path) -> None:
    bundle(str(tmp_path), "f", 400)
    bundle(str(tmp_path), "f", 1)
    bare = CliRunner().invoke(app, ["prune", str(tmp_path), "--fleet", "f"])
    assert bare.exit_code == 0 and "in all 0 items" in bare.stdout
    assert (
        "no rule (--keep-last, --keep-days, --cache-days, --cache-size, --submission-days): only leftovers go"
        in bare.stdout
    )
    assert "no rule" not in CliRunner().invoke(app, ["prune", str(tmp_path), "--keep-last", "1", "--dry-run"]).stdout
    assert json.loads(CliRunner().invoke(app, ["prune", str(tmp_path), "--json"]).stdout)["removed"] == []


# --- submissions and the queue ----------------------------------------------------------------------------------


def submission(base: str, name: str, days: float, ending: Ending | None) -> Path:
    """A submission to which nothing was written for so many days."""
    folder = folder_in(base, name)
    files.write_bytes(files.join(folder, "fleet.json"), b"{}")
    if ending is not None:
        write_ending(folder, ending)
    for path in Path(folder).iterdir():
        os.utime(path, (NOW.timestamp() - days * DAY,) * 2)
    return Path(folder)


def named(fleet: str, number: int) -> str:
    return f"{fleet}-{number:016x}"


def test_submissions_go_once_their_bundle_has_and_never_before(tmp_path: Path) -> None:
    base = str(tmp_path)
    there = files.join(base, "audits", "f", bundle(base, "f", 100))
    gone = files.join(base, "audits", "f", "20260101T000000Z-0a1b2c3d-00000000")
    ended = {
        1: ("finished", there, 100, False),
        2: ("finished", gone, 100, True),
        3: ("finished", gone, 10, False),
        4: ("stopped", "", 100, True),
        5: ("running", "", 100, True),
    }
    for number, (state, at, days, _) in ended.items():
        outcome = Outcome.PASS if state == "finished" else None
        when = (NOW - timedelta(days=days)).isoformat()
        submission(base, named("f", number), days, Ending("a", state, outcome, at, at=when))  # type: ignore[arg-type]
    submission(base, named("f", 6), 100, None)
    submission(base, named("g", 7), 100, Ending("a", "stopped"))
    assert pruned(base) == set()
    wanted = {named("f", number) for number, (*_, goes) in ended.items() if goes} | {named("f", 6)}
    assert pruned(base, submission_days=90.0, fleet="f") == wanted
    assert pruned(base, submission_days=90.0) == {named("g", 7)}
    assert {path.name for path in (tmp_path / "submissions").iterdir()} == {named("f", 1), named("f", 3)}


def test_what_waits_in_the_queue_stays_and_entries_of_nothing_go(tmp_path: Path) -> None:
    base, queue = str(tmp_path), Queue(str(tmp_path))
    for number, there in ((1, True), (2, False), (3, False)):
        waiting = Submission(named("f", number), "f", "", folder_in(base, named("f", number)))
        if there:
            submission(base, waiting.id, 100, None)
        queue.put(waiting)
    files.write_bytes(files.join(base, "queue", ".0099-x.json.part"), b"half")
    for path in (tmp_path / "queue").iterdir():
        fresh = named("f", 3) in path.name
        os.utime(path, (NOW.timestamp() - (0.5 if fresh else 2) * DAY,) * 2)
    gone = pruned(base, submission_days=90.0)
    assert len(gone) == 2 and ".0099-x.json.part" in gone and any(named("f", 2) in name for name in gone)
    assert {each.id for each in Queue(base).all()} == {named("f", 1), named("f", 3)}
    assert [path.name for path in (tmp_path / "submissions").iterdir()] == [named("f", 1)]


def test_one_that_was_submitted_again_after_the_plan_stays(tmp_path: Path) -> None:
    base = str(tmp_path)
    for number in (1, 2, 3):
        submission(base, named("f", number), 100, Ending("a", "stopped"))
    plan = plan_prune(base, Rules(submission_days=90.0), NOW.timestamp())
    assert len(plan.remove) == 3
    Queue(base).put(Submission(named("f", 1), "f", "", folder_in(base, named("f", 1))))
    write_ending(folder_in(base, named("f", 2)), Ending("b", "running", at=NOW.isoformat()))
    assert [item.path for item in carry_out(plan, base, NOW.timestamp())] == [f"submissions/{named('f', 3)}"]


@pytest.mark.parametrize("planted", ["cache", "audits", "audits/shop", "submissions", "queue"])
def test_what_a_link_in_the_storage_leads_to_is_never_removed(tmp_path: Path, planted: str) -> None:
    """Workers write to the storage and only read models; whoever prunes may remove both."""
    models = tmp_path / "models"
    for path in ("resnet/v1/w.pt", f"shop/{'a' * 16}/w.pt", f"shop-{'a' * 16}/w.pt"):
        (models / path).parent.mkdir(parents=True, exist_ok=True)
        (models / path).write_bytes(b"weights")
        age(models / path, 1000)
    before = sorted(models.rglob("*"))
    base = tmp_path / "runs"
    (base / planted).parent.mkdir(parents=True, exist_ok=True)
    (base / planted).symlink_to(models)
    rules = {"keep_last": 1, "cache_days": 1.0, "submission_days": 1.0, "even_unsynced": True}
    with suppress(StorageError):
        pruned(str(base), **rules)
    assert sorted(models.rglob("*")) == before
