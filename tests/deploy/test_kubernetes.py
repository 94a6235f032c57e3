"""The manifests are valid by published schemas, give away no right that is not needed, and name what is there."""

from __future__ import annotations

import copy
import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from jobs.api.settings import Settings
from jobs.cli import app
from jobs.submission.ray_jobs import SLOTS
from tests.deploy.manifests import FOLDER, all_manifests, check, pods

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = all_manifests()
README = (ROOT / "deploy" / "README.md").read_text()
SECRETS = {
    "classwise-ray",
    "classwise-api-tokens",
    "classwise-tracking",
    "classwise-schedules",
    "classwise-storage",
} | {"classwise-signing"}
NAMED = [pytest.param(each, id=f"{name}:{each['kind']}") for name, each in MANIFESTS]
WITH_PODS = [pytest.param(each, id=f"{name}:{each['kind']}") for name, each in MANIFESTS if list(pods(each))]


@pytest.mark.parametrize("manifest", NAMED)
def test_a_manifest_is_valid_and_in_the_namespace(manifest: dict[str, Any]) -> None:
    check(manifest)
    where = manifest["metadata"].get("namespace", "")
    assert where == ("" if manifest["kind"] == "Namespace" else "classwise")


def test_all_three_kinds_of_kuberay_are_there() -> None:
    assert {each["kind"] for _, each in MANIFESTS} >= {"RayCluster", "RayJob", "RayService", "CronJob"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "headGroupSpec", "rayStartParams", "num-cpus"), 0),
        (("spec", "headGroupSpec", "template", "spec", "contaners"), []),
        (("spec", "headGroupSpec", "template", "spec", "securityContext", "runAsUser"), "10001"),
        (("spec", "autoscalerOptions", "version"), "v3"),
        (("spec", "autoscalerOptions", "idleTimeout"), 60),
        (("spec", "authOptions", "mode"), "tokens"),
        (("spec", "workerGroupSpecs", 1, "minReplicas"), "0"),
        (("spec", "workerGroupSpec"), []),
    ],
)
def test_a_misspelt_or_mistyped_field_is_found(path: tuple[Any, ...], value: object) -> None:
    (cluster,) = (copy.deepcopy(each) for _, each in MANIFESTS if each["kind"] == "RayCluster")
    check(cluster)
    inner: Any = cluster
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        check(cluster)


@pytest.mark.parametrize("manifest", WITH_PODS)
def test_a_pod_has_no_right_that_it_does_not_need(manifest: dict[str, Any]) -> None:
    for pod in pods(manifest):
        assert pod["securityContext"]["runAsNonRoot"] is True and pod["securityContext"]["runAsUser"] >= 10000
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        creates = pod.get("serviceAccountName") == "classwise-creates-rayjobs"
        autoscaled = manifest["kind"] == "RayCluster" and pod["containers"][0]["name"] == "ray-head"
        if not autoscaled:  # KubeRay gives that one an account of its own, to ask for workers
            assert pod["automountServiceAccountToken"] is creates
        for container in pod["containers"]:
            locked = container["securityContext"]
            assert locked["allowPrivilegeEscalation"] is False and locked["readOnlyRootFilesystem"] is True
            assert locked["capabilities"] == {"drop": ["ALL"]} and "privileged" not in locked
            assert container["resources"]["limits"]["memory"] and container["resources"]["requests"]["cpu"]
            assert ":" in container["image"] and not container["image"].endswith(":latest")
            secret = [each for each in container.get("env", []) if "TOKEN" in each["name"] and "value" in each]
            assert all(each["name"].endswith("_PATH") for each in secret)
        mounted = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_every_secret_and_map_is_made_or_explained() -> None:
    text = "\n".join(json.dumps(each) for _, each in MANIFESTS)
    made = {each["metadata"]["name"] for _, each in MANIFESTS if each["kind"] == "ConfigMap"}
    for name in SECRETS:
        assert f'"{name}"' in text and f"create secret generic {name} " in README, name
    for name in {"classwise-fleet", "classwise-rayjob"} | made:
        assert f'"{name}"' in text
        assert name in made or f"create configmap {name} " in README, name
    assert not [each for _, each in MANIFESTS if each["kind"] == "Secret"]


def test_the_account_that_creates_rayjobs_may_do_nothing_else() -> None:
    (role,) = (each for _, each in MANIFESTS if each["kind"] == "Role")
    assert role["rules"] == [{"apiGroups": ["ray.io"], "resources": ["rayjobs"], "verbs": ["create"]}]
    assert not [each for _, each in MANIFESTS if each["kind"].startswith("Cluster")]


def _mounts(container: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {mount["mountPath"]: mount for mount in container["volumeMounts"]}


@pytest.mark.parametrize("manifest", WITH_PODS)
def test_models_and_data_are_read_only_and_apart_from_results(manifest: dict[str, Any]) -> None:
    for container in (container for pod in pods(manifest) for container in pod["containers"]):
        mounts = {path: each for path, each in _mounts(container).items() if each["name"] == "storage"}
        assert set(mounts) <= {f"/srv/classwise/{part}" for part in ("storage", "models", "data")}
        for path, each in mounts.items():
            assert each["subPath"] == path.rpartition("/")[2]
            assert each.get("readOnly", False) is (each["subPath"] != "storage")


def test_who_submits_and_who_drives_audits_has_the_key_that_signs_and_no_worker_has() -> None:
    holders = set()
    for name, manifest in MANIFESTS:
        for container in (container for pod in pods(manifest) for container in pod["containers"]):
            named = {each["name"]: each.get("value") for each in container.get("env", [])}
            mounted = "/etc/classwise/signing" in _mounts(container)
            assert mounted == (named.get("CLASSWISE_SIGNING_KEY_PATH") == "/etc/classwise/signing/key")
            holders |= {(name, container["name"])} if mounted else set()
    heads = {("raycluster.yaml", "ray-head"), ("rayservice.yaml", "ray-head")}
    assert holders == {*heads, ("api.yaml", "api"), ("scheduler.yaml", "scheduler"), ("cronjob-submit.yaml", "submit")}


def test_no_shipped_settings_admit_programs() -> None:
    for _, each in MANIFESTS:
        if "settings.yaml" in each.get("data", {}):
            allow = Settings.model_validate(yaml.safe_load(each["data"]["settings.yaml"])).allow
            assert "torchscript" not in allow.models and not allow.unpickling


def test_probes_ask_what_the_api_answers() -> None:
    (deployment,) = (each for name, each in MANIFESTS if name == "api.yaml" and each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    probes = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert probes == {"startup": "/health", "liveness": "/health", "readiness": "/ready/results"}


def test_settings_and_commands_are_those_of_this_version() -> None:
    for _, each in MANIFESTS:
        if "settings.yaml" in each.get("data", {}):
            Settings.model_validate(yaml.safe_load(each["data"]["settings.yaml"]))
    words = [
        [*container.get("command", []), *container.get("args", [])]
        for _, each in MANIFESTS
        for pod in pods(each)
        for container in pod["containers"]
        if container["image"].startswith("classwise")
    ]
    words += [shlex.split(each["spec"]["entrypoint"])[1:] for _, each in MANIFESTS if each["kind"] == "RayJob"]
    for command in filter(None, words):
        if command[0] == "sh":
            command = shlex.split(command[-1].replace("$(date -u +%F)", "DATE"))[2:]
        names = [command[0]] if command[0] != "schedule" else command[:2]
        output = CliRunner().invoke(app, [*names, "--help"])
        assert output.exit_code == 0
        for option in (word for word in command if word.startswith("--")):
            assert option in output.output, (command, option)


def test_the_cluster_grows_from_nothing_and_audits_take_turns() -> None:
    (cluster,) = (each for _, each in MANIFESTS if each["kind"] == "RayCluster")
    spec = cluster["spec"]
    assert spec["enableInTreeAutoscaling"] and spec["autoscalerOptions"]["version"] == "v2"
    groups = {each["groupName"]: each for each in spec["workerGroupSpecs"]}
    assert [groups[name]["minReplicas"] for name in ("cpu", "gpu")] == [0, 0]
    (worker,) = groups["gpu"]["template"]["spec"]["containers"]
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == "1" and worker["image"].endswith("-cuda")
    start = spec["headGroupSpec"]["rayStartParams"]
    assert json.loads(json.loads(start["resources"])) == {SLOTS: 4} and start["num-cpus"] == "0"


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kustomize_puts_them_together() -> None:
    built = subprocess.run(["kubectl", "kustomize", str(FOLDER)], capture_output=True, text=True, check=True)
    kinds = sorted(each["kind"] for each in yaml.safe_load_all(built.stdout))
    assert kinds.count("NetworkPolicy") == 3 and kinds.count("Deployment") == 2 and "RayCluster" in kinds
