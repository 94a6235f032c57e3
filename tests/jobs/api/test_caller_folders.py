"""Folders of one caller: models and data of one team are not for another, at submission and where it is audited."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from jobs.api.admission import admitted
from jobs.api.serve import build
from jobs.api.settings import Settings, digests, plain
from jobs.submission import submitted
from jobs.submission.signing import KEY
from jobs.submission.submission import content_of, folder_in, read_ending, read_fleet, submission_of, write_fleet

SECRET = "0123456789abcdef" * 3
TOKENS = {name: f"{name}-" + "0123456789abcdef" * 2 for name in ("ours", "theirs", "none", "all")}


@pytest.fixture
def folders(tmp_path: Path, digit_weights: dict[str, str]) -> Path:
    """The same weights in a folder of each team."""
    for team in ("a", "b"):
        (tmp_path / "models" / team).mkdir(parents=True)
        shutil.copy(digit_weights["good"], tmp_path / "models" / team / "net.safetensors")
    return tmp_path / "models"


@pytest.fixture
def shared(settings: Settings, folders: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings with a folder a team, a caller without any, and one with all."""
    for name, token in TOKENS.items():
        monkeypatch.setenv(name.upper(), token)
    monkeypatch.setenv(KEY, SECRET)
    paths = {"ours": [str(folders / "a")], "theirs": [str(folders / "b")], "none": []}
    tokens = [
        {"name": name, "env": name.upper()} | ({"paths": paths[name]} if name in paths else {}) for name in TOKENS
    ]
    data = plain(settings)
    return Settings.model_validate(
        {**data, "tokens": tokens, "allow": {**data["allow"], "paths": [str(folders)]}, "limits": {"per_minute": 9999}}
    )


@pytest.fixture
def callers(shared: Settings) -> Iterator[dict[str, TestClient]]:
    """Clients by name; nothing that is accepted begins."""
    app = build(plain(shared), digests(shared, os.environ))
    yield {name: TestClient(app, headers={"authorization": f"Bearer {token}"}) for name, token in TOKENS.items()}


def fleet_of(folder: Path) -> dict[str, Any]:
    uri = f"factory:services.training.architectures:small_cnn?width=8&weights={folder / 'net.safetensors'}"
    samples = {"uri": "sklearn:digits?split=test"}
    return {"fleet": "digits", "models": [{"name": "good", "uri": uri}], "samples": samples, "measures": ["clean"]}


def why_refused(folder: str) -> str:
    """What a driver says that is to audit it."""
    os.environ[KEY] = SECRET
    assert submitted.main(folder, "a") == 2
    ending = read_ending(folder)
    assert ending is not None
    return "\n".join(map(str, ending.problems))


def test_a_caller_names_what_lies_in_their_own_folders_alone(callers: dict[str, TestClient], folders: Path) -> None:
    accepted = {
        (name, team): callers[name].post("/v1/audits", json=fleet_of(folders / team)).status_code
        for name in TOKENS
        for team in ("a", "b")
    }
    assert accepted == {
        ("ours", "a"): 202, ("ours", "b"): 403, ("theirs", "a"): 403, ("theirs", "b"): 202,
        ("none", "a"): 403, ("none", "b"): 403, ("all", "a"): 202, ("all", "b"): 202,
    }  # fmt: skip
    refused = callers["ours"].post("/v1/audits", json=fleet_of(folders / "b")).json()["problems"][0]
    assert refused["expected"] == f"an absolute path below {folders / 'a'}"  # and not the folders of others
    (folders / "a" / "link").symlink_to(folders / "b")
    assert callers["ours"].post("/v1/audits", json=fleet_of(folders / "a" / "link")).status_code == 403


def test_a_callers_folders_are_signed_and_checked_again_where_it_is_audited(
    callers: dict[str, TestClient], shared: Settings, folders: Path
) -> None:
    name = callers["ours"].post("/v1/audits", json=fleet_of(folders / "a")).json()["id"]
    folder = folder_in(shared.storage, name)
    _, fleet, allow = read_fleet(folder, SECRET.encode())
    assert allow is not None and allow["paths"] == [str(folders / "a")]
    assert fleet.config.confine == (str(folders / "a"),)
    shutil.rmtree(folders / "a")
    (folders / "a").symlink_to(folders / "b")  # who may replace the folder itself chooses what it is
    (folders / "b" / "net.safetensors").rename(folders / "net.safetensors")
    (folders / "b" / "net.safetensors").symlink_to(folders / "net.safetensors")
    assert f"an absolute path below {folders / 'a'}" in why_refused(folder)


def test_a_fleet_that_another_caller_stored_is_not_audited_with_their_folders(shared: Settings, folders: Path) -> None:
    """A driver judges by the list of who submitted: the same content with a narrower list is refused."""
    fleet = admitted(fleet_of(folders / "b"), shared)
    submission = submission_of(fleet)
    ours = shared.allow_of(shared.callers()["ours"]).model_dump(mode="json")
    write_fleet(submission, fleet, SECRET.encode(), ours)
    assert content_of(fleet)["confine"] == [str(folders)]
    assert f"an absolute path below {folders / 'a'}" in why_refused(submission.folder)


@pytest.mark.parametrize("path", ["relative", "/", "/etc", "{}/../b", "{}x", "{}/a/../../.."])
def test_a_callers_folders_are_among_those_of_the_server(shared: Settings, folders: Path, path: str) -> None:
    data = plain(shared)
    data["tokens"][0]["paths"] = [path.format(folders)]
    with pytest.raises(ValueError, match=r"absolute paths without|folders below those of allow\.paths"):
        Settings.model_validate(data)


def test_people_whom_a_proxy_signs_in_have_folders_as_well(shared: Settings, folders: Path) -> None:
    people = {"callers": [{"name": "*@a.example.org", "paths": [str(folders / "a")]}]}
    data = {**plain(shared), "identity": people, "trusted_proxies": ["10.0.0.1"]}
    identity = Settings.model_validate(data).identity
    assert identity is not None and identity.callers[0].caller("x").paths == (str(folders / "a"),)
    people["callers"][0]["paths"] = ["/etc"]
    with pytest.raises(ValueError, match=r"folders below those of allow\.paths"):
        Settings.model_validate(data)


def test_a_server_that_grants_no_folder_has_nothing_opened(settings: Settings, fleet: dict[str, Any]) -> None:
    """Without folders nothing was confined: weights beside a registered ONNX graph were found by any name."""
    bare = settings.model_copy(update={"allow": settings.allow.model_copy(update={"paths": ()})})
    registered = {**fleet, "models": [{"name": "m", "uri": "mlflow:models:/shop/1"}]}
    assert json.loads(json.dumps(content_of(admitted(registered, bare))))["confine"] == []
