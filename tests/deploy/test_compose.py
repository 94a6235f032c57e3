"""compose.yaml is valid by the Compose specification's own schema, keeps secrets in files, and opens little."""

from __future__ import annotations

import json
import os
import re
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from jobs.api.settings import Settings
from jobs.submission.ray_jobs import SLOTS

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
GPU = yaml.safe_load((DEPLOY / "compose.gpu.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: each for name, each in SERVICES.items() if each["image"].startswith("classwise")}


def validate(compose: dict[str, Any]) -> None:
    """Against the schema that check-jsonschema ships."""
    file = resources.files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    schema = json.loads(file.read_text())
    jsonschema.validators.validator_for(schema)(schema).validate(compose)


def test_both_files_are_valid() -> None:
    validate(COMPOSE)
    validate(GPU)


@pytest.mark.parametrize("change", [{"cap_drp": ["ALL"]}, {"ports": 8080}, {"depends_on": {"head": {"when": "up"}}}])
def test_a_misspelt_or_mistyped_field_is_found(change: dict[str, Any]) -> None:
    wrong = {**COMPOSE, "services": {**SERVICES, "api": {**SERVICES["api"], **change}}}
    with pytest.raises(jsonschema.ValidationError):
        validate(wrong)


def test_only_the_api_and_mlflow_are_published_and_only_to_this_host() -> None:
    published = {name: each["ports"] for name, each in SERVICES.items() if "ports" in each}
    assert set(published) == {"api", "mlflow"}
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)
    assert COMPOSE["networks"]["inner"] == {"internal": True}
    assert {name for name, each in SERVICES.items() if "outer" in each["networks"]} == set(published)
    assert all("inner" in each["networks"] for each in SERVICES.values())


def test_no_container_has_more_rights_than_it_needs() -> None:
    for name, each in SERVICES.items():
        assert each["cap_drop"] == ["ALL"] and each["security_opt"] == ["no-new-privileges:true"], name
        assert "privileged" not in each and "network_mode" not in each, name
        assert re.fullmatch(r"[a-z/]+:[\w.-]*\d[\w.-]*", each["image"]), name
        assert "healthcheck" in each, name
    for name, each in OURS.items():
        assert each["user"] == "10001:10001" and each["read_only"] is True and "cap_add" not in each, name


def test_secrets_are_files_of_the_script_and_in_no_variable(tmp_path: Path) -> None:
    subprocess.run([DEPLOY / "compose" / "secrets.sh", tmp_path / "secrets"], check=True, capture_output=True)
    made = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    assert set(made) == set(COMPOSE["secrets"]) and len(set(made.values())) == len(made)
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    assert json.loads(made["s3"])["identities"][0]["credentials"][0]["secretKey"] == made["s3-key"]
    subprocess.run([DEPLOY / "compose" / "secrets.sh", tmp_path / "secrets"], check=True, capture_output=True)
    assert {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()} == made
    for name, each in SERVICES.items():
        assert set(each.get("secrets", [])) <= set(COMPOSE["secrets"]), name
        variables = each.get("environment", {})
        assert all(key.endswith("_FILE") or "PASSWORD" not in key for key in variables), name
    for name in COMPOSE["configs"].values():
        assert (DEPLOY / name["file"]).is_file()


ROLES = {
    "mlflow": ["mlflow", "MLFLOW_BACKEND_STORE_URI", "MLFLOW_AUTH_ADMIN_PASSWORD", "AWS_SECRET_ACCESS_KEY"],
    "prepare": ["python", "MLFLOW_AUTH_ADMIN_PASSWORD", "MLFLOW_TRACKING_PASSWORD", "AWS_SECRET_ACCESS_KEY"],
    "head": ["ray", "MLFLOW_TRACKING_PASSWORD", "CLASSWISE_SIGNING_KEY_PATH"],
    "worker": ["ray"],
    "api": ["classwise", "CLASSWISE_SIGNING_KEY_PATH", "CLASSWISE_SCHEDULES", "MLFLOW_TRACKING_PASSWORD"],
    "scheduler": ["classwise", "CLASSWISE_SCHEDULES", "CLASSWISE_SIGNING_KEY_PATH"],
}


@pytest.mark.parametrize("role", ROLES)
def test_what_a_container_starts_gets_its_secrets_and_shows_none(role: str, tmp_path: Path) -> None:
    """Each role is entered with programs that tell their words and variables."""
    subprocess.run([DEPLOY / "compose" / "secrets.sh", tmp_path / "secrets"], check=True, capture_output=True)
    program, *variables = ROLES[role]
    (tmp_path / program).write_text('#!/bin/sh\necho "$@"\nenv >&2\n')
    (tmp_path / program).chmod(0o755)
    enter = (DEPLOY / "compose" / "enter.sh").read_text().replace("/tmp/auth.ini", f"{tmp_path}/auth.ini")
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SECRETS": str(tmp_path / "secrets")}
    words = ["bash", "-c", enter, "enter", role]
    process = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    secrets = {path.name: path.read_text().strip() for path in (tmp_path / "secrets").iterdir()}
    assert not any(secret in process.stdout for secret in secrets.values())
    got = dict(line.split("=", 1) for line in process.stderr.splitlines() if "=" in line)
    assert all(got.get(name) for name in variables)
    used = set(re.findall(r"[0-9a-f]{48}", process.stderr + "".join(map(Path.read_text, tmp_path.glob("auth.ini")))))
    by_value = {value: name for name, value in secrets.items()}
    granted = set(SERVICES[role]["secrets"])
    by_path = {"ray-token", "signing-key", "api-token", "s3-key"} & granted
    assert {by_value[value] for value in used} | by_path == granted
    assert ("CLASSWISE_SIGNING_KEY_PATH" in got) == ("signing-key" in granted)
    if role == "head":
        assert json.dumps({SLOTS: 2}) in process.stdout


def test_the_settings_are_valid_and_say_what_compose_mounts() -> None:
    settings = Settings.model_validate(yaml.safe_load((DEPLOY / "compose" / "settings.yaml").read_text()))
    assert settings.tokens[0].file == "/run/secrets/api-token" and "api-token" in SERVICES["api"]["secrets"]
    mounted = [volume.rsplit(":", 2 if volume.endswith(":ro") else 1)[1] for volume in SERVICES["api"]["volumes"]]
    assert settings.storage in mounted and set(settings.allow.paths) <= set(mounted)
    assert "torchscript" not in settings.allow.models and not settings.allow.unpickling
    for each in (SERVICES[name] for name in ("api", "head", "worker")):
        assert [volume.endswith(":ro") for volume in each["volumes"]] == [False, True]


def test_the_storage_volume_belongs_to_who_writes_it() -> None:
    """A volume that Docker makes gets the owner of the image's folder at its place."""
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    owned = re.findall(r"install -d -o (\d+) -g (\d+) (\S+)", dockerfile)
    for name, each in OURS.items():
        named = [
            volume.split(":")[1] for volume in each.get("volumes", []) if volume.split(":")[0] in COMPOSE["volumes"]
        ]
        assert all((*each["user"].split(":"), path) in owned for path in named), name


def test_logs_are_rotated_and_temporary_files_bounded() -> None:
    for name, each in SERVICES.items():
        assert each["logging"]["driver"] == "local" and int(each["logging"]["options"]["max-file"]) > 1, name
        assert each["logging"]["options"]["max-size"].endswith("m"), name
    for name, each in OURS.items():
        assert len(each["tmpfs"]) == 2 and all(re.search(r"[,:]size=\d+[gm]", mount) for mount in each["tmpfs"]), name
