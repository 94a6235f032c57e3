"""The manifests are valid by published schemas, give away no right that is not needed, and name what is there."""

from __future__ import annotations

import copy
import json
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from jobs.api.admission import admitted
from jobs.api.bodies import fleet_data
from jobs.api.settings import LimitSettings, Settings, digests
from jobs.cli import app
from jobs.submission.ray_jobs import SLOTS
from services.errors import ConfigError
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
    "classwise-redis",
} | {"classwise-signing"}
NAMED = [pytest.param(each, id=f"{name}:{each['kind']}") for name, each in MANIFESTS]
WITH_PODS = [pytest.param(each, id=f"{name}:{each['kind']}") for name, each in MANIFESTS if list(pods(each))]


@pytest.mark.parametrize("manifest", NAMED)
def test_a_manifest_is_valid_and_in_the_namespace(manifest: dict[str, Any]) -> None:
    check(manifest)
    where = manifest["metadata"].get("namespace", "")
    assert where == ("" if manifest["kind"] in ("Namespace", "PriorityClass") else "classwise")


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
        claimed = {each["metadata"]["name"] for each in manifest["spec"].get("volumeClaimTemplates", [])}
        assert mounted == {volume["name"] for volume in pod["volumes"]} | claimed


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
    assert kinds.count("NetworkPolicy") == 7 and kinds.count("Deployment") == 2 and "RayCluster" in kinds


# --- what an operator asks for ----------------------------------------------------------------------------------


def one(file: str, kind: str) -> dict[str, Any]:
    (manifest,) = (each for name, each in MANIFESTS if (name, each["kind"]) == (file, kind))
    return manifest


@pytest.mark.parametrize("manifest", WITH_PODS)
def test_a_pod_is_ranked_bounded_and_quick_to_start(manifest: dict[str, Any]) -> None:
    """A priority that there is, room on the node's disk that is asked for and limited, no walk over a whole volume."""
    classes = {each["metadata"]["name"] for _, each in MANIFESTS if each["kind"] == "PriorityClass"}
    for pod in pods(manifest):
        assert pod["priorityClassName"] in classes
        if "fsGroup" in pod["securityContext"]:
            assert pod["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
        for container in pod["containers"]:
            resources = container["resources"]
            assert resources["requests"]["ephemeral-storage"] and resources["limits"]["ephemeral-storage"]
        for volume in pod["volumes"]:
            assert "emptyDir" not in volume or volume["emptyDir"]["sizeLimit"], volume


def templates(value: Any) -> Iterator[dict[str, Any]]:
    """Every template of pods in an object."""
    if isinstance(value, dict):
        if isinstance(value.get("spec"), dict) and "containers" in value["spec"]:
            yield value
        for inner in value.values():
            yield from templates(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from templates(inner)


def test_no_autoscaler_of_nodes_takes_a_node_of_rays_away() -> None:
    ray = [each for _, each in MANIFESTS if each["apiVersion"] == "ray.io/v1"]
    nodes = [each for each in templates(ray) if each["spec"]["containers"][0]["name"].startswith("ray-")]
    assert len(nodes) == 7
    for each in nodes:
        annotations = each["metadata"]["annotations"]
        assert annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"


def test_a_head_that_is_lost_comes_back_with_what_it_knew() -> None:
    options = one("raycluster.yaml", "RayCluster")["spec"]["gcsFaultToleranceOptions"]
    service = one("redis.yaml", "Service")
    assert options["redisAddress"] == f"redis://{service['metadata']['name']}:6379"
    reference = options["redisPassword"]["valueFrom"]["secretKeyRef"]
    (pod,) = pods(one("redis.yaml", "StatefulSet"))
    assert reference == {"name": "classwise-redis", "key": "password"}
    assert pod["volumes"] == [{"name": "password", "secret": {"secretName": "classwise-redis", "defaultMode": 0o440}}]
    assert "password" not in " ".join(pod["containers"][0]["command"])


def test_budgets_and_spread_are_of_pods_that_there_are() -> None:
    (deployment,) = (each for name, each in MANIFESTS if name == "api.yaml" and each["kind"] == "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    (pod,) = pods(deployment)
    for each in pod["topologySpreadConstraints"]:
        assert each["labelSelector"]["matchLabels"].items() <= labels.items()
    budget = one("api.yaml", "PodDisruptionBudget")["spec"]
    assert budget["selector"]["matchLabels"].items() <= labels.items()
    assert 0 < budget["minAvailable"] < deployment["spec"]["replicas"]


def test_what_comes_in_goes_out_and_is_watched_is_named() -> None:
    policies = {each["metadata"]["name"]: each["spec"] for _, each in MANIFESTS if each["kind"] == "NetworkPolicy"}
    assert policies["deny-all"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    outward = policies["outward"]["egress"][0]
    assert outward["to"] == [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}}]
    labelled = [
        each for each in templates([m for _, m in MANIFESTS]) if "classwise.org/outward" in str(each["metadata"])
    ]
    assert labelled and not [each for each in labelled if each["spec"]["containers"][0]["name"] == "ray-worker"]
    for name in ("api", "ray-nodes"):
        sources = [str(each.get("from")) for each in policies[name]["ingress"]]
        assert any("'monitoring'" in each for each in sources), name
    ports = {
        container["name"]: {port["name"]: port["containerPort"] for port in container.get("ports", [])}
        for file, each in MANIFESTS
        for pod in pods(each)
        for container in pod["containers"]
        if file in ("raycluster.yaml", "api.yaml")
    }
    monitors = [each["spec"] for _, each in MANIFESTS if each["kind"] == "PodMonitor"]
    assert [each["podMetricsEndpoints"][0]["port"] for each in monitors] == ["http", "metrics"]
    assert ports["api"]["http"] == 8080 and "metrics" in ports["ray-worker"]


def test_a_followed_log_is_not_cut_off_by_the_gateway() -> None:
    (rule,) = one("api.yaml", "HTTPRoute")["spec"]["rules"]
    assert rule["timeouts"] == {"request": "0s", "backendRequest": "0s"}
    assert not [each for _, each in MANIFESTS if each["kind"] == "Ingress"]
    assert LimitSettings().silence < 60  # what proxies wait for at least


def test_no_token_of_a_caller_is_where_audits_run() -> None:
    for name in ("raycluster.yaml", "rayservice.yaml", "rayjob.yaml"):
        assert "classwise-api-tokens" not in (FOLDER / name).read_text()
    settings = Settings.model_validate(yaml.safe_load(one("rayservice.yaml", "ConfigMap")["data"]["settings.yaml"]))
    assert all(token.sha256 and not token.file for token in settings.tokens)
    with pytest.raises(ConfigError):  # the example is no token
        digests(settings, {})


def test_kueue_may_hold_a_rayjob() -> None:
    labels = one("rayjob.yaml", "RayJob")["metadata"]["labels"]
    assert labels == {"kueue.x-k8s.io/queue-name": "classwise", "kueue.x-k8s.io/priority-class": "classwise"}
    assert one("rayjob.yaml", "RayJob")["spec"]["shutdownAfterJobFinishes"] is True  # else its quota stays taken


def test_a_fleet_of_200_models_on_64_gpus_is_admitted() -> None:
    settings = Settings.model_validate(yaml.safe_load(one("base.yaml", "ConfigMap")["data"]["settings.yaml"]))
    models = [{"name": f"m{n:03}", "uri": f"export:/srv/classwise/models/{n:03}.pt2"} for n in range(200)]
    fleet = {"fleet": "all", "models": models, "samples": {"uri": "imagefolder:/srv/classwise/data/test"}}
    fleet |= {"measures": ["clean", "great", "pgd"], "resources": {"workers": 64, "gpus": 1, "cpus": 4}}
    body = json.dumps(fleet)
    assert len(body) < settings.limits.body
    admitted_fleet = admitted(fleet_data(body.encode(), "application/json"), settings)
    assert admitted_fleet.config.resources.workers == 64 and admitted_fleet.config.resources.gpus == 1
    groups = one("raycluster.yaml", "RayCluster")["spec"]["workerGroupSpecs"]
    assert {each["groupName"]: each["maxReplicas"] for each in groups}["gpu"] == 64
