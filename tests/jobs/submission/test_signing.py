"""A submitted fleet that was changed, copied or never signed is not audited, whoever can write to the storage."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.fleetfile.reading import Fleet, validate_fleet
from jobs.submission import submitted
from jobs.submission.backend import AT_ONCE
from jobs.submission.client import AuditClient
from jobs.submission.signing import KEY, KEY_PATH, signing_key
from jobs.submission.submission import Submission, read_ending, submission_of, write_fleet
from services.devices import machine_memory
from services.errors import ConfigError
from services.records import Outcome

SECRET = "0123456789abcdef" * 3


@pytest.fixture
def fleet(quick_fleet: dict[str, Any], tmp_path: Path) -> Fleet:
    return validate_fleet({**quick_fleet, "storage": str(tmp_path / "runs")})


def allow(fleet: Fleet, **changes: Any) -> dict[str, Any]:
    """What admits the fleet."""
    folder = str(Path(fleet.config.models[0].uri.partition("weights=")[2]).parent)
    granted = {"models": ["factory"], "samples": ["sklearn"], "factories": ["services.training.architectures"]}
    return {**granted, "paths": [folder], **changes}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "")


def audited(submission: Submission, key: str = SECRET) -> str:
    """Run what a cluster with this key would; "" after an audit, else why there was none."""
    os.environ[KEY] = key
    code = submitted.main(submission.folder, "a")
    ending = read_ending(submission.folder)
    assert ending is not None and (code == 2) == bool(ending.problems)
    if ending.problems:
        assert ending.outcome is Outcome.ERROR and not ending.bundle
    return "\n".join(str(problem) for problem in ending.problems)


def edited(submission: Submission, change: Callable[[dict[str, Any]], object]) -> None:
    path = Path(submission.folder) / "fleet.json"
    body = json.loads(path.read_text())
    change(body)
    path.write_text(json.dumps(body))


def test_a_signed_fleet_is_audited(fleet: Fleet) -> None:
    submission = submission_of(fleet)
    write_fleet(submission, fleet, SECRET.encode(), allow(fleet))
    assert audited(submission) == ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda body: body["fleet"]["models"][0].update(uri="factory:os:system?command=id"), "was changed"),
        (lambda body: body["allow"].update(factories=["os"]), "was changed"),
        (lambda body: body.pop("allow"), "was changed"),
        (lambda body: body.update(signature="0" * 64), "was changed"),
        (lambda body: body.update(signature="é"), "was changed"),
        (lambda body: body.update(id="digits-0123456789abcdef"), "was changed"),
        (lambda body: body.pop("signature"), "without a signature"),
        (lambda body: body.update(signature=None), "without a signature"),
    ],
)
def test_a_fleet_that_was_changed_is_refused_before_anything_is_loaded(
    change: Callable[[dict[str, Any]], object], message: str, fleet: Fleet
) -> None:
    submission = submission_of(fleet)
    write_fleet(submission, fleet, SECRET.encode(), allow(fleet))
    edited(submission, change)
    assert message in audited(submission)


def test_a_fleet_of_another_submission_or_deployment_is_refused(fleet: Fleet) -> None:
    submission, other = submission_of(fleet), submission_of(fleet, "other")
    write_fleet(other, fleet, SECRET.encode())
    Path(submission.folder).mkdir()
    (Path(submission.folder) / "fleet.json").write_bytes((Path(other.folder) / "fleet.json").read_bytes())
    assert "of another submission" in audited(submission)
    write_fleet(submission, fleet, b"another deployment's key, as long")
    assert "another key" in audited(submission)


def test_a_signed_fleet_needs_the_key_where_it_is_audited(fleet: Fleet) -> None:
    submission = submission_of(fleet)
    write_fleet(submission, fleet, SECRET.encode())
    assert KEY_PATH in audited(submission, key="")


def test_the_allow_list_that_admitted_a_fleet_is_checked_again(fleet: Fleet) -> None:
    submission = submission_of(fleet)
    write_fleet(submission, fleet, SECRET.encode(), allow(fleet, paths=["/srv/elsewhere"]))
    assert "an absolute path below /srv/elsewhere" in audited(submission)
    write_fleet(submission, fleet, SECRET.encode(), allow(fleet, unknown=1))
    assert "an allow-list of this version" in audited(submission)


def test_a_callers_files_take_no_more_of_the_head_than_leaves_it_running(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever they make of themselves: a head that runs out of memory ends everybody's audits."""
    taken: list[int] = []
    monkeypatch.setattr(submitted, "take_at_most", taken.append)
    monkeypatch.setenv("RAY_ADDRESS", "local")
    submission = submission_of(fleet)
    write_fleet(submission, fleet, SECRET.encode(), allow(fleet, models=[]))
    audited(submission)
    assert taken == []
    write_fleet(submission, fleet, SECRET.encode(), allow(fleet))
    audited(submission)
    whole, program = machine_memory() * 3 // 4, 3 << 29
    monkeypatch.setenv(AT_ONCE, "16")  # audits that run at the same time share the head
    audited(submission)
    monkeypatch.setenv(AT_ONCE, "what Ray says")
    audited(submission)
    assert taken == [whole, min(whole, program + whole // 16), whole]


def test_an_operator_without_a_key_audits_what_he_names(fleet: Fleet) -> None:
    submission = submission_of(fleet)
    write_fleet(submission, fleet)
    assert audited(submission, key="") == ""


def test_a_client_signs_with_the_key_of_its_environment_and_writes_over_what_lies_there(
    fleet: Fleet, local_client: AuditClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text(f"{SECRET}\n")
    monkeypatch.setenv(KEY_PATH, str(tmp_path / "key"))
    submission = submission_of(fleet)
    write_fleet(submission, fleet)
    edited(submission, lambda body: body["fleet"]["models"][0].update(uri="factory:os:system?command=id"))
    local_client.submit(fleet)
    assert local_client.wait(submission.id, timeout=120).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("environment", "message"),
    [({KEY: "short"}, "at least 24 characters"), ({KEY_PATH: "/nowhere/key"}, "/nowhere/key")],
)
def test_a_key_that_is_none_is_named(environment: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        signing_key(environment)
    assert signing_key({}) == b"" and signing_key({KEY: f" {SECRET}\n", KEY_PATH: "/nowhere"}) == SECRET.encode()


def test_a_driver_with_a_key_follows_no_link_out_of_the_storage(fleet: Fleet, tmp_path: Path) -> None:
    submission = submission_of(fleet)
    write_fleet(submission, fleet, SECRET.encode(), allow(fleet))
    (tmp_path / "elsewhere").mkdir()
    (Path(fleet.config.storage) / "audits").symlink_to(tmp_path / "elsewhere")
    assert "a link that leads out of it" in audited(submission)
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("number", ["NaN", "1e400", "-Infinity"])
def test_a_number_that_is_none_is_a_change_like_any_other(fleet: Fleet, number: str) -> None:
    submission = submission_of(fleet)
    write_fleet(submission, fleet, SECRET.encode(), allow(fleet))
    path = Path(submission.folder) / "fleet.json"
    path.write_text(path.read_text().replace('"schema_version": 1', f'"schema_version": {number}'))
    assert "one that was changed, or signed with another key" in audited(submission)
