"""What all drills do: make a network that the stack's API may read, name fleets, ask the API, print figures."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import requests
import typer

from deploy.stack.layout import Layout, existing
from services.errors import ConfigError, Problem


def stack_in(folder: Path) -> Layout:
    """The stack in a folder.

    Raises:
        ConfigError: there is none.
    """
    layout = existing(folder)
    if layout is None:
        raise ConfigError(Problem("--dir", "the folder of a stack", f"none in {folder}", "deploy/local-stack.sh up"))
    return layout


def network(layout: Layout) -> Path:
    """Weights of a small network for digits, trained once, in the folder that callers may name."""
    path = layout["models"] / "drill.safetensors"
    if not path.exists():
        import torch

        from services.loading.samples.source import open_samples
        from services.records import SampleSpec
        from services.training.architectures import small_cnn
        from services.training.epochs.checkpoints import save_weights
        from services.training.epochs.loop import train
        from services.training.methods.erm import Erm

        samples = open_samples(SampleSpec("sklearn:digits?split=train"))
        torch.manual_seed(0)
        model = small_cnn(width=8)
        images = samples.images(0, len(samples))
        train(model, images, samples.labels, method=Erm(), epochs=12, batch=32, seed=0, lr=0.05)
        save_weights(str(path), model.state_dict())
    return path


def fleet(layout: Layout, name: str, *, workers: int = 1, steps: int = 5) -> dict[str, Any]:
    """A fleet of one network: accuracy and an attack."""
    uri = f"factory:services.training.architectures:small_cnn?width=8&weights={network(layout)}"
    return {
        "fleet": name,
        "samples": {"uri": "sklearn:digits?split=test"},
        "models": [{"name": "small", "uri": uri}],
        "measures": ["clean", {"name": "pgd", "steps": steps, "epsilons": [0.05]}],
        "factories": ["services.training.architectures"],
        "storage": str(layout["storage"]),
        "tracking": {"uri": layout.url("mlflow")},
        "resources": {"runner": "ray", "workers": workers, "cpus": 1, "shard": 100, "batch": 100},
    }


class Api:
    """The stack's REST API."""

    def __init__(self, layout: Layout) -> None:
        self.root = layout.url("api")
        self.session = requests.Session()
        self.headers = {"Authorization": f"Bearer {layout.secret('api.token')}"}
        self.session.headers.update(self.headers)

    def submit(self, body: dict[str, Any], key: str) -> requests.Response:
        headers = {"Idempotency-Key": key}
        return self.session.post(f"{self.root}/v1/audits", json=body, headers=headers, timeout=120)

    def audit(self, name: str) -> dict[str, Any]:
        body: dict[str, Any] = self.session.get(f"{self.root}/v1/audits/{name}", timeout=120).json()
        return body

    def result(self, name: str) -> dict[str, Any]:
        body: dict[str, Any] = self.session.get(f"{self.root}/v1/audits/{name}/result", timeout=120).json()
        return body

    def ready(self) -> int:
        """Status of GET /ready."""
        return self.session.get(f"{self.root}/ready", timeout=120).status_code

    def audits(self, **query: Any) -> list[dict[str, Any]]:
        reply = self.session.get(f"{self.root}/v1/audits", params={"limit": 1000, **query}, timeout=120)
        reply.raise_for_status()
        listing: list[dict[str, Any]] = reply.json()["audits"]
        return listing


def spread(seconds: Sequence[float]) -> str:
    """Median, 95th percentile and maximum of latencies, in milliseconds."""
    if not seconds:
        return "none"
    ordered = sorted(1000 * each for each in seconds)
    late = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return f"{ordered[len(ordered) // 2]:.0f} / {late:.0f} / {ordered[-1]:.0f} ms"


def wait_until(ready: Callable[[], bool], seconds: float, pause: float = 0.5) -> bool:
    """Poll; whether it came about in time."""
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True


def report(title: str, rows: dict[str, Any], faults: Sequence[str]) -> int:
    """Print figures and faults; 1 when there is a fault."""
    typer.echo(title)
    for name, value in rows.items():
        typer.echo(f"  {name:<44} {value}")
    for fault in faults:
        typer.echo(f"  FAULT: {fault}")
    typer.echo(json.dumps({"drill": title, **rows, "faults": list(faults)}), err=True)
    return 1 if faults else 0
