"""How each shipped deployment starts its API: command, environment and files are read from its own file.

Names that only exist there (`postgres`, `mlflow`, `/run/secrets`) are replaced by what there is here.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
import yaml

from deploy.stack.layout import Layout, write_private
from deploy.stack.parts import variables, waves, write_client_files
from tests.deploy.manifests import all_manifests, pods

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
TOKEN = "of-a-caller-" + "0123456789abcdef" * 2
SIGNING = "0123456789abcdef" * 3


@dataclass(frozen=True)
class Start:
    """What to run."""

    command: list[str]
    environment: dict[str, str]


def bare() -> dict[str, str]:
    """Nothing of ours that a deployment does not set."""
    return {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def ours(layout: Layout, home: Path) -> Mapping[str, str]:
    """What stands here for names of the deployments."""
    return {
        "postgresql+psycopg://schedules:SCHEDULES@postgres/classwise": variables(layout)["CLASSWISE_SCHEDULES"],
        "@postgres/": f"@127.0.0.1:{layout.ports['postgres']}/",
        "http://mlflow:5000": layout.url("mlflow"),
        "https://mlflow.example.org": layout.url("mlflow"),
        "http://127.0.0.1:5000": layout.url("mlflow"),
        "http://head:8265": layout.url("dashboard"),
        "http://classwise-head-svc:8265": layout.url("dashboard"),
        "http://classwise-service-head-svc:8265": layout.url("dashboard"),
        "http://127.0.0.1:8265": layout.url("dashboard"),
        "/srv/classwise/": f"{home}/srv/",
        "/var/lib/classwise": f"{home}/srv/storage",
    }


def replaced(text: str, names: Mapping[str, str]) -> str:
    for name, value in names.items():
        text = text.replace(name, value)
    return text


def settings_at(text: str, names: Mapping[str, str], home: Path) -> Path:
    """A deployment's settings with names that there are here, and folders for what they name."""
    path = home / "settings.yaml"
    path.write_text(replaced(text, names))
    data = yaml.safe_load(path.read_text())
    for folder in (data["storage"], *data["allow"]["paths"]):
        Path(folder).mkdir(parents=True, exist_ok=True)
    return path


def stack(layout: Layout, home: Path, port: int) -> Start:
    """The local stack."""
    write_client_files(layout)
    (part,) = (each for wave in waves(layout) for each in wave if each.name == "api")
    (layout["secrets"] / "api.token").write_text(TOKEN)
    return Start([*part.command[:-1], str(port)], dict(part.environment))


def compose(layout: Layout, home: Path, port: int) -> Start:
    """The container `api` of compose.yaml: enter.sh with the secrets that it is granted."""
    api = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["api"]
    secrets = home / "secrets"
    secrets.mkdir()
    values = {
        "api-token": TOKEN,
        "signing-key": SIGNING,
        "ray-token": SIGNING,
        "s3-key": SIGNING,
        "mlflow-classwise": layout.secret("mlflow-classwise.password"),
        "schedules-db": layout.secret("schedules-db.password"),
    }
    for name in api["secrets"]:
        write_private(secrets / name, values[name])
    names = {"/run/secrets": str(secrets), **ours(layout, home)}
    names["/etc/classwise/settings.yaml"] = str(
        settings_at((DEPLOY / "compose" / "settings.yaml").read_text(), names, home)
    )
    enter = home / "enter.sh"
    enter.write_text(replaced((DEPLOY / "compose" / "enter.sh").read_text(), names).replace("8080", str(port)))
    programs = _programs(home)
    environment = {**bare(), "SECRETS": str(secrets), "HOME": str(home)}
    environment["PATH"] = f"{programs}:{environment['PATH']}"
    return Start(["bash", str(enter), *api["command"]], environment)


def systemd(layout: Layout, home: Path, port: int) -> Start:
    """classwise-api.service with its credentials and environment files."""
    lines = [line for line in (DEPLOY / "systemd" / "classwise-api.service").read_text().splitlines() if "=" in line]
    set_ = [line.partition("=")[::2] for line in lines if not line.startswith("#")]
    etc, credentials = home / "etc", home / "credentials"
    for folder in (etc / "tokens", credentials):
        folder.mkdir(parents=True)
    known = variables(layout)
    written = {
        "ray.token": SIGNING,
        "signing.key": SIGNING,
        "tokens/ci": TOKEN,
        "schedules.env": f"CLASSWISE_SCHEDULES={known['CLASSWISE_SCHEDULES']}",
        "tracking.env": "\n".join(f"{name}={known[name]}" for name in known if name.startswith("MLFLOW_")),
    }
    for name, text in written.items():
        write_private(etc / name, text)
    names = {"/run/credentials/classwise-api.service": str(credentials), **ours(layout, home)}
    settings_at((DEPLOY / "systemd" / "settings.yaml").read_text(), names, home).rename(etc / "settings.yaml")
    environment = bare()
    for name, value in set_:
        if name == "LoadCredential":
            _granted(credentials, value.replace("/etc/classwise", str(etc)))
        elif name == "EnvironmentFile":
            file = Path(value.removeprefix("-").replace("/etc/classwise", str(etc)))
            environment |= dict(line.split("=", 1) for line in file.read_text().splitlines())
        elif name == "Environment" and not value.startswith(("PATH=", "HOME=")):
            environment |= dict([value.replace("%d", str(credentials)).split("=", 1)])
    (command,) = (value for name, value in set_ if name == "ExecStart")
    words = shlex.split(command.replace("%d", str(credentials)))[1:]
    return Start([*classwise(), *words[:-1], str(port)], {**environment, "HOME": str(home)})


def kubernetes(layout: Layout, home: Path, port: int) -> Start:
    """The Deployment of api.yaml, with Secrets as README.md makes them."""
    (container,) = _containers("api.yaml", "Deployment")
    return _pod(layout, home, port, container, "base.yaml", container["args"])


def rayservice(layout: Layout, home: Path, port: int) -> Start:
    """The head of rayservice.yaml: its replica of the API has the head's environment and files."""
    container = next(each for each in _containers("rayservice.yaml", "RayService") if each["name"] == "ray-head")
    words = ["serve", "/etc/classwise/settings.yaml", "--here", "--port", "8080"]
    return _pod(layout, home, port, container, "rayservice.yaml", words)


STARTS: dict[str, Callable[[Layout, Path, int], Start]] = {
    "stack": stack,
    "compose": compose,
    "systemd": systemd,
    "kubernetes": kubernetes,
    "rayservice": rayservice,
}


def classwise() -> list[str]:
    return [sys.executable, "-m", "jobs.cli"]


def _programs(home: Path) -> Path:
    folder = home / "bin"
    folder.mkdir()
    program = folder / "classwise"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(classwise())} "$@"\n')
    program.chmod(0o755)
    return folder


def _granted(credentials: Path, value: str) -> None:
    name, _, source = value.partition(":")
    path = Path(source)
    for file in path.iterdir() if path.is_dir() else [path]:
        os.link(file, credentials / (f"{name}_{file.name}" if path.is_dir() else name))


def _containers(file: str, kind: str) -> list[dict[str, Any]]:
    manifests = [each for name, each in all_manifests() if (name, each["kind"]) == (file, kind)]
    return [container for each in manifests for pod in pods(each) for container in pod["containers"]]


def _pod(layout: Layout, home: Path, port: int, container: dict[str, Any], file: str, words: list[str]) -> Start:
    """A container's command with its variables, and its mounts as folders."""
    known = variables(layout)
    secrets = {
        "classwise-api-tokens": {"ci": TOKEN, "prometheus": TOKEN[::-1]},
        "classwise-ray": {"auth_token": SIGNING},
        "classwise-signing": {"key": SIGNING},
        "classwise-schedules": {"uri": known["CLASSWISE_SCHEDULES"]},
        "classwise-tracking": {name: known[name] for name in known if name.startswith("MLFLOW_")},
        "classwise-storage": {},
    }
    mounted = {"tokens": "classwise-api-tokens", "ray": "classwise-ray", "signing": "classwise-signing"}
    names: dict[str, str] = {}
    for mount in container["volumeMounts"]:
        if mount["name"] in mounted:
            folder = home / mount["name"]
            folder.mkdir()
            for key, text in secrets[mounted[mount["name"]]].items():
                write_private(folder / key, text)
            names[mount["mountPath"]] = str(folder)
    names |= ours(layout, home)
    (text,) = (each["data"]["settings.yaml"] for name, each in all_manifests() if name == file and "data" in each)
    text = text.replace("0" * 64, _digest(TOKEN))
    names["/etc/classwise/settings.yaml"] = str(settings_at(text, names, home))
    environment = {**bare(), "HOME": str(home)}
    for each in container.get("envFrom", []):
        environment |= secrets[each["secretRef"]["name"]]
    for each in container.get("env", []):
        source = each.get("valueFrom", {}).get("secretKeyRef")
        environment[each["name"]] = secrets[source["name"]][source["key"]] if source else replaced(each["value"], names)
    command = [replaced(word, names).replace("8080", str(port)) for word in words]
    return Start([*classwise(), *command], environment)


def _digest(token: str) -> str:
    from hashlib import sha256

    return sha256(token.encode()).hexdigest()


@contextmanager
def serving(start: Start, home: Path, port: int, *, cwd: Path | None = None) -> Iterator[str]:
    """The address of an API that is started so, once it answers; its output goes to `home`/log."""
    log = home / "log"
    with log.open("w") as output:
        process = subprocess.Popen(start.command, env=start.environment, stdout=output, stderr=output, cwd=cwd)
    address = f"127.0.0.1:{port}"
    try:
        end = time.monotonic() + 90
        while not _healthy(address):
            assert process.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.wait(30)


def _healthy(address: str) -> bool:
    try:
        return requests.get(f"http://{address}/health", timeout=5).status_code == 200
    except requests.ConnectionError:
        return False
