"""The dashboard's routes over real bundles, among them a broken one and one of hostile names."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from jobs.dashboard import bundles as reading
from jobs.dashboard.answers import Hardest
from jobs.dashboard.bundles import Bundles
from jobs.dashboard.routes import COMPUTING
from services.errors import StorageError
from services.records import AuditResult
from services.storage import files

from .conftest import AUDITS, FLEET, HOSTILE, ID, Audit, keep_why, root_of, write


def get(caller: TestClient, path: str, status: int = 200, **query: Any) -> Any:
    answer = caller.get(f"/v1/{path}", params=query)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_fleets_are_told_with_their_latest_audit_a_broken_one_with_its_reason(caller: TestClient) -> None:
    answer = get(caller, "fleets")
    assert answer["total"] == 2
    by_name = {fleet["name"]: fleet for fleet in answer["fleets"]}
    assert by_name[HOSTILE]["latest"]["outcome"] == "pass" and "<" not in by_name[HOSTILE]["id"]
    robust = next(fleet for fleet in answer["fleets"] if fleet["id"] == FLEET)
    assert robust["audits"] == 4 and robust["latest"]["outcome"] is None
    assert "update classwise" in robust["latest"]["problem"]["remedy"]


def test_audits_come_latest_first_and_in_parts(caller: TestClient) -> None:
    whole = get(caller, f"fleets/{FLEET}/audits")
    assert [audit["audit_id"] for audit in whole["audits"]] == ["", *AUDITS[::-1]] and whole["total"] == 4
    assert [audit["outcome"] for audit in whole["audits"]] == [None, "fail", "pass", "pass"]
    assert whole["audits"][1]["counts"] == {"fail": 1, "pass": 1}
    part = get(caller, f"fleets/{FLEET}/audits", limit=2, offset=2)
    assert part["audits"] == whole["audits"][2:] and part["total"] == 4


def test_the_record_of_what_was_accepted_is_no_audit(caller: TestClient, base: Path) -> None:
    (base / "audits" / FLEET / "accepted.json").write_text("{}")
    answer = get(caller, f"fleets/{FLEET}/audits", limit=2)
    assert answer["total"] == 4 and len(answer["audits"]) == 2
    get(caller, f"fleets/{FLEET}/audits/accepted.json", 404)


def test_a_number_over_time_has_limits_verdicts_and_gaps(caller: TestClient) -> None:
    answer = get(caller, f"fleets/{FLEET}/trend", series="clean", metric="aggregate")
    assert [audit["audit_id"] for audit in answer["audits"]] == [*AUDITS, ""]
    assert [line["model"] for line in answer["lines"]] == ["second", "first"], "those that do not pass first"
    cells = answer["lines"][0]["cells"]
    assert [cell and round(cell[0], 3) for cell in cells] == [0.9, 0.8, 0.7, None]
    assert cells[0] == pytest.approx([0.9, 0.88, 0.92])
    assert answer["lines"][0]["outcomes"] == ["pass", "pass", "fail", None]
    few = get(caller, f"fleets/{FLEET}/trend", model="FIRST", limit=2, most=1)
    assert [line["model"] for line in few["lines"]] == ["first"] and len(few["audits"]) == 2 and few["total"] == 4
    assert few["lens"] == "minimal/l2", "the strongest evidence, and not a claim"


def test_an_audit_has_a_row_a_model_the_worst_first(caller: TestClient) -> None:
    ids = root_of(caller)
    answer = get(caller, f"fleets/{FLEET}/audits/{ids[AUDITS[2]]}", series="clean")
    assert [row["name"] for row in answer["models"]] == ["second", "first"]
    assert answer["models"][0]["why"].startswith("clean wcr >= 0.7") and answer["models"][1]["why"] == ""
    assert answer["models"][0]["metrics"]["wcr"]["value"] == pytest.approx(0.6)
    assert answer["gates"] == [{"text": "clean wcr >= 0.7", "counts": {"fail": 1}}]
    assert (
        answer["verdict"] == "1 of 2 models fails, 1 is not judged: no gates." and answer["earlier"] == ids[AUDITS[1]]
    )
    assert [series["lens"] for series in answer["series"]] == ["minimal/l2", "clean", "great"]
    assert get(caller, f"fleets/{FLEET}/audits/{ids[AUDITS[0]]}")["earlier"] == ""


def test_a_model_s_card_has_reasons_intervals_classes_and_the_bracket(caller: TestClient) -> None:
    ids = root_of(caller)
    card = get(caller, f"fleets/{FLEET}/audits/{ids[AUDITS[2]]}/models/1", series="clean")
    assert (card["name"], card["outcome"]) == ("second", "fail") and len(card["gates"]) == 1
    assert [row["name"] for row in card["classes"]] == ["cat", "bee", "ant"]
    assert card["classes"][0]["worst"] and card["classes"][0]["score"]["low"] == pytest.approx(0.56)
    [bracket] = card["brackets"]
    assert (bracket["unit"], bracket["marks"]) == ("L2 distance", ["GREAT (claimed)", "perturbation found (broken)"])
    assert [each["name"] for each in bracket["classes"]] == ["cat", "bee", "ant"]
    assert bracket["values"][1] == pytest.approx([0.3, 0.4, 0.5])
    [gap] = card["gaps"]
    assert (gap["grouping"], gap["task"], gap["gap"]["high"]) == ("sex", "cat", 0.4) and gap["title"].startswith("EOdd")
    few = get(caller, f"fleets/{FLEET}/audits/{ids[AUDITS[2]]}/models/1", most=1)
    assert len(few["classes"]) == 1 and few["total"] == 3


def test_a_card_has_a_bracket_a_distance(
    caller: TestClient, base: Path, board_audit: Callable[..., AuditResult]
) -> None:
    """What is claimed in L2 stands in Linf at a tenth for images of 100 values."""
    audit = board_audit(AUDITS[0], {"m": ({}, {"clean": 0.9, "great": 0.5, "minimal/linf": 0.04})}, fleet="linf")
    units = {"clean": "", "great": "L2 distance", "minimal/linf": "Linf distance"}
    series = [
        replace(each, series=replace(each.series, unit=units[each.series.key])) for each in audit.models[0].series
    ]
    models = (replace(audit.models[0], series=tuple(series)),)
    write(base, replace(audit, models=models, samples=replace(audit.samples, shape=(1, 10, 10))))
    latest = get(caller, "fleets/linf/audits")["audits"][0]["id"]
    [bracket] = get(caller, f"fleets/linf/audits/{latest}/models/0")["brackets"]
    assert bracket["unit"] == "Linf distance"
    assert bracket["marks"] == ["GREAT (claimed), L2 / sqrt(d)", "perturbation found (broken)"]
    claimed = {group.name: group.score.value for group in series[1].groups}
    assert bracket["values"][0] == pytest.approx([claimed[each["name"]] / 10 for each in bracket["classes"]])


def test_the_class_map_keeps_the_weakest_classes_and_tells_what_it_cannot_read(caller: TestClient, base: Path) -> None:
    ids = root_of(caller)
    path = f"fleets/{FLEET}/audits/{ids[AUDITS[2]]}/classes"
    answer = get(caller, path, series="clean", worst=2)
    assert [each["name"] for each in answer["classes"]] == ["bee", "cat"] and answer["total"] == 3
    assert answer["models"] == ["second", "first"] and answer["values"][0] == pytest.approx([0.7, 0.6])
    table = next((base / "audits" / FLEET / ids[AUDITS[2]] / "tables").glob("001_*"))
    table.write_bytes(b"no table")
    broken = get(caller, path, series="clean")
    assert broken["values"][0] == [None] * 3 and len(broken["problems"]) == 1
    assert broken["problems"][0]["where"].endswith(table.name)


def test_two_audits_are_compared_with_differences_and_no_claim_of_a_test(caller: TestClient, base: Path) -> None:
    ids = root_of(caller)
    query = {"before": ids[AUDITS[0]], "after": ids[AUDITS[2]], "series": "clean", "model": "second"}
    answer = get(caller, f"fleets/{FLEET}/comparison", **query)
    first, second = answer["models"]
    assert (first["name"], first["metrics"]["aggregate"]["change"], first["same_weights"]) == ("first", 0.0, True)
    assert second["metrics"]["aggregate"]["change"] == pytest.approx(-0.2) and second["same_weights"] is False
    assert second["metrics"]["aggregate"]["overlap"] is False and first["metrics"]["wcr"]["overlap"] is True
    assert second["metrics"]["fp"]["overlap"] is None, "no interval, no overlap"
    assert [each["difference"]["change"] for each in answer["classes"]] == pytest.approx([-0.2] * 3)
    assert "is not a test" in answer["notes"][-1] and answer["tested"] is None
    (base / "audits" / FLEET / ids[AUDITS[2]] / "comparison.json").write_text('{"p": NaN, "verdict": "worse"}')
    tested = get(caller, f"fleets/{FLEET}/comparison", **query)["tested"]
    assert tested == {"p": None, "verdict": "worse"}


def test_what_runs_tells_how_far_it_is(caller: TestClient, running: Audit) -> None:
    running.shard()
    [result] = get(caller, "progress")["running"]
    assert (result["id"], result["state"], result["stage"]) == (ID, "running", "measures")
    assert (result["done"], result["total"], result["models"], result["images_per_second"]) == (1, 4, 2, 50.0)


def test_what_ended_without_a_result_says_why(caller: TestClient, running: Audit) -> None:
    running.end()
    assert get(caller, "progress")["running"] == []
    [result] = get(caller, "failures")["failures"]
    assert (result["id"], result["state"]) == (ID, "crashed") and "it said no outcome" in result["why"]


def test_no_schedule_and_no_mlflow_are_said_and_none_is_made(caller: TestClient, base: Path) -> None:
    assert "classwise schedule add" in get(caller, "schedules")["note"]
    assert get(caller, "leaderboard")["notes"] == ["No audit was logged to MLflow yet."]
    assert not list(base.glob("*.db"))


def test_schedules_are_told_with_their_next_firing(caller: TestClient, base: Path, digits: dict[str, Any]) -> None:
    from datetime import UTC, datetime

    from jobs.fleetfile.reading import validate_fleet
    from jobs.schedules.schedule import Overlap
    from jobs.schedules.scheduler import new_schedule
    from jobs.schedules.store import Store

    store = Store(f"sqlite:///{base}/schedules.db")
    now = datetime(2026, 11, 28, 8, tzinfo=UTC)
    for name, cron in (("late", "0 12 * * *"), ("soon", "0 9 * * *")):
        schedule = new_schedule(name, validate_fleet(digits), cron, zone="UTC", overlap=Overlap.SKIP, now=now)
        store.add(schedule)
    store.fire(schedule, now)
    store.close()
    result = get(caller, "schedules")["schedules"]
    assert [(each["name"], each["next_at"]) for each in result] == [
        ("soon", "2026-11-28T09:00:00+00:00"),
        ("late", "2026-11-28T12:00:00+00:00"),
    ]
    assert [firing["state"] for firing in result[0]["firings"]] == ["waiting"] and "content" not in result[0]


@pytest.fixture
def digits(base: Path) -> dict[str, Any]:
    return {
        "fleet": "digits",
        "storage": str(base),
        "samples": {"uri": "sklearn:digits"},
        "models": [{"name": "one", "uri": "torchscript:/nowhere.pt"}],
    }


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("fleets/none/audits", 404, "a fleet of /v1/fleets"),
        ("fleets/../audits", 404, "a path of"),
        ("fleets/%2e%2e/audits", 404, "a fleet of /v1/fleets"),
        ("fleets/..%2f..%2fetc/audits", 404, "a path of"),
        ("fleets/robust/audits/..", 404, "a path of"),
        ("fleets/robust/audits/...", 404, "an audit of"),
        ("fleets/robust/audits/20261128T010000Z", 404, "an audit of"),
        ("fleets/ro%20bust/audits", 422, "pattern"),
        ("fleets/robust/comparison?before=a&after=b", 404, "an audit of"),
        ("fleets/robust/trend?metric=none", 422, "Input should be"),
        ("fleets/robust/trend?series=clena", 422, "did you mean 'clean'"),
        ("fleets?limit=0", 422, "greater than"),
        ("fleets?limit=501", 422, "less than"),
    ],
)
def test_what_is_not_there_is_refused_in_the_one_shape(caller: TestClient, path: str, status: int, said: str) -> None:
    answer = caller.get(f"/v1/{path}")
    assert answer.status_code == status and set(answer.json()) == {"error", "problems"}
    assert said in answer.text


def test_a_broken_audit_and_an_unknown_model_are_refused(caller: TestClient) -> None:
    ids = root_of(caller)
    refused = get(caller, f"fleets/{FLEET}/audits/{ids['broken']}", 503)
    assert refused["problems"][0]["found"] == "99"
    assert "below 2" in json.dumps(get(caller, f"fleets/{FLEET}/audits/{ids[AUDITS[0]]}/models/7", 404))
    query = {"before": ids[AUDITS[0]], "after": ids[AUDITS[1]], "model": "nobody"}
    assert "nobody" in json.dumps(get(caller, f"fleets/{FLEET}/comparison", 404, **query))


class Denied(Exception):
    """What the library of an object store raises."""


def test_a_storage_that_cannot_be_read_is_said(caller: TestClient, base: Path) -> None:
    (base / "audits").rename(base / "elsewhere")
    assert get(caller, "fleets") == {"fleets": [], "total": 0}
    (base / "audits" / FLEET).mkdir(parents=True)
    (base / "audits" / FLEET / "stray.txt").write_text("a file, no audit")
    assert get(caller, f"fleets/{FLEET}/audits")["audits"] == []
    for error in (Denied("no"), PermissionError("no")):
        with pytest.raises(StorageError, match="a storage that can be read"), reading.reachable("s3://bucket"):
            raise error
    with pytest.raises(TypeError), reading.reachable("s3://bucket"):
        raise TypeError("a defect of ours")


def test_an_audit_without_an_overview_or_with_another_s_is_read_from_its_bundle(caller: TestClient, base: Path) -> None:
    ids = root_of(caller)
    folders = {audit: base / "audits" / FLEET / ids[audit] for audit in AUDITS}
    (folders[AUDITS[0]] / "overview.json").unlink()
    (folders[AUDITS[1]] / "overview.json").write_bytes((folders[AUDITS[2]] / "overview.json").read_bytes())
    older = json.loads((folders[AUDITS[2]] / "overview.json").read_text())
    assert older.pop("pixels") > 0
    (folders[AUDITS[2]] / "overview.json").write_text(json.dumps(older))
    assert get(caller, f"fleets/{FLEET}/audits/{ids[AUDITS[2]]}/models/0")["name"], "of before images had a size there"
    by_name = {audit: get(caller, f"fleets/{FLEET}/audits/{ids[audit]}") for audit in AUDITS[:2]}
    assert [body["head"]["audit_id"] for body in by_name.values()] == list(AUDITS[:2])


def test_lists_read_overviews_and_remember_a_bounded_number(
    base: Path, monkeypatch: pytest.MonkeyPatch, board_audit: Any
) -> None:
    result = reading.Bundles(str(base), memory=1)
    monkeypatch.setattr(reading, "read_bundle", None)
    home = result.home(FLEET)
    each, two = (home.folder(name) for name in home.audits[1:3])
    first = result.read(each)
    assert result.read(each) is first, "remembered"
    result.read(two)
    assert len(result.remembered) == 1 and result.remembered.held > result.remembered.limit
    assert result.read(each) is not first and result.read(each) == first
    again = write(base, board_audit(AUDITS[2], {"new": ({}, {"clean": 0.5})}, fleet=FLEET))
    assert each == str(again)
    assert [model.name for model in result.read(each).models] == ["new"], "another file, another content"


@pytest.mark.parametrize(
    "path", ["fleets", "audits", "trend", "audits/{new}", "audits/{new}/classes", "audits/{new}/models/0", "comparison"]
)
def test_a_request_lists_no_folder_twice(path: str, caller: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    ids, listed, listing = root_of(caller), [], files.listing
    monkeypatch.setattr(files, "listing", lambda url: [listed.append(url), listing(url)][1])
    query = {"before": ids[AUDITS[0]], "after": ids[AUDITS[2]]} if path == "comparison" else {}
    requested = path if path == "fleets" else f"fleets/{FLEET}/{path.format(new=ids[AUDITS[2]])}"
    get(caller, requested, **query)
    assert listed and len(listed) == len(set(listed))


def test_no_data_without_the_token_and_the_page_with_none(caller: TestClient) -> None:
    del caller.headers["authorization"]
    for path in ("fleets", f"fleets/{FLEET}/audits", "progress", "failures", "schedules", "leaderboard"):
        assert caller.get(f"/v1/{path}").status_code == 401
    page = caller.get("/")
    assert page.status_code == 200 and "script-src 'self'" in page.headers["content-security-policy"]
    assert FLEET not in page.text and "#0072B2" in page.text
    again = caller.get("/ui/app.js", headers={"if-none-match": caller.get("/ui/app.js").headers["etag"]})
    assert again.status_code == 304 and again.content == b""
    plotly = caller.get("/ui/plotly.js")
    assert plotly.headers["content-encoding"] == "gzip" and "plotly.js v" in plotly.text[:200]
    assert caller.get("/ui/page.html").status_code == 401 and caller.get("/ui/../serve.py").status_code == 401


@pytest.mark.long
def test_a_models_confusions_and_pictures_are_read_from_its_bundle(caller: TestClient, base: Path) -> None:
    keep_why(base, AUDITS[1])
    name = root_of(caller)[AUDITS[1]]
    body = get(caller, f"fleets/{FLEET}/audits/{name}/models/0/why")
    (part,) = body["parts"]
    assert [0, 1, 20, 50] in [cell[:4] for cell in part["cells"]] and not body["cut"]
    assert [(entry["id"], entry["after"]) for entry in body["entries"]] == [(4, 1), (9, 2)] and body["total"] == 2
    assert body["entries"][0]["pictures"][0].startswith("data:image/png;base64,")
    (dark,) = body["slices"]
    assert (dark["words"], dark["n"], dark["rate"]["low"], dark["ids"]) == ("brightness below 0.3", 40, 0.3, [4])
    assert dark["pictures"][0].startswith("data:image/png;base64,")
    empty = get(caller, f"fleets/{FLEET}/audits/{name}/models/1/why")
    assert empty["parts"] == [] and empty["entries"] == [] and empty["slices"] == []
    (hard,) = get(caller, f"fleets/{FLEET}/audits/{name}/hardest")["rows"]
    assert (hard["id"], hard["wrong"], hard["models"], hard["nearest"]) == (4, 2, 2, None)
    other = root_of(caller)[AUDITS[0]]
    assert get(caller, f"fleets/{FLEET}/audits/{other}/hardest")["rows"] == []
    get(caller, f"fleets/{FLEET}/audits/{name}/models/2/why", 404)
    audit = get(caller, f"fleets/{FLEET}/audits/{name}")
    assert "40 % (" in audit["why"][0] and "of ant goes to bee" in audit["why"][0]


def test_few_pages_are_computed_side_by_side(caller: TestClient, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many kept the loop, and so the liveness probe, from its turn."""
    name, busy, most, lock = root_of(caller)[AUDITS[1]], 0, 0, threading.Lock()
    hardest = Bundles.hardest

    def counted(self: Bundles, folder: str) -> Hardest:
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        time.sleep(0.05)
        with lock:
            busy -= 1
        return hardest(self, folder)

    monkeypatch.setattr(Bundles, "hardest", counted)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: get(caller, f"fleets/{FLEET}/audits/{name}/hardest"), range(8)))
    assert answers == [{"rows": []}] * 8 and most == COMPUTING
