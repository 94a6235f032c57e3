"""The driver: its peak memory on a fleet that is large in every direction, and how soon the first network runs.

``python -m benchmarks.driver [--classes 1000 --samples 50000 --models 20]``. Logits are synthetic tables on disk
(``logits:``), so that the whole path of an audit runs (shards, scores, profiles, intervals, bundle) without networks.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import yaml

from services.loading.samples.source import open_samples
from services.records import SampleSpec
from services.training.architectures import small_cnn
from services.training.epochs.checkpoints import save_weights
from services.training.epochs.loop import train
from services.training.methods.erm import Erm

LIMIT_GIB = 1.5
STARTUP_SECONDS = 15.0
HELP_SECONDS = 0.5


def write_fleet(folder: Path, classes: int, samples: int, models: int) -> Path:
    """Tables of logits, labels, and the fleet file."""
    rng = np.random.default_rng(0)
    labels = np.arange(samples) % classes
    names = np.array([f"class {k}" for k in range(classes)])
    np.savez(folder / "samples.npz", labels=labels, classes=names)
    for index in range(models):
        logits = rng.standard_normal((samples, classes), dtype=np.float32)
        logits[np.arange(samples), labels] += rng.uniform(2.0, 5.0, size=samples).astype(np.float32)
        np.savez(folder / f"m{index}.npz", logits=logits)
    fleet = {
        "fleet": "large",
        "samples": {"uri": f"npz:{folder / 'samples.npz'}"},
        "models": [{"name": f"m{i}", "uri": f"logits:{folder / f'm{i}.npz'}"} for i in range(models)],
        "measures": ["clean", {"name": "great", "activation": "softmax"}],
        "storage": str(folder / "runs"),
        "tracking": {"enabled": False},
        "resources": {"workers": 2, "shard": 10_000},
    }
    path = folder / "fleet.yaml"
    path.write_text(yaml.safe_dump(fleet))
    return path


PEAK = """
import json, sys, time
from jobs.fleetfile.reading import load_fleet
from jobs.terminal.progress import Quiet
from jobs.audit.publish import audit_and_publish
started = time.perf_counter()
audit_and_publish(load_fleet(sys.argv[1]), Quiet())
lines = open("/proc/self/status").read().splitlines()  # ru_maxrss would count the process that forked this one
peak = int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 2**20
print(json.dumps({"gib": peak, "seconds": time.perf_counter() - started}))
"""


def peak_memory(fleet: Path) -> dict[str, float]:
    """Peak resident memory of the driver's process alone, workers not counted."""
    ran = subprocess.run([sys.executable, "-c", PEAK, str(fleet)], capture_output=True, text=True, check=True)
    body: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return body


def trained(path: Path) -> Path:
    """A small network that knows digits well enough to pass preflight."""
    samples = open_samples(SampleSpec("sklearn:digits?split=train"))
    network = small_cnn()
    train(network, samples.images(0, len(samples)), samples.labels, method=Erm(), epochs=5, batch=32, seed=0, lr=0.05)
    save_weights(str(path), network.state_dict())
    return path


def first_forward(folder: Path) -> float:
    """Seconds from `classwise audit` to the first finished logits shard, an upper bound of the first forward pass."""
    weights = trained(folder / "m.safetensors")
    fleet = {
        "fleet": "start",
        "samples": {"uri": "sklearn:digits?split=test"},
        "models": [{"name": "m", "uri": f"factory:services.training.architectures:small_cnn?weights={weights}"}],
        "storage": str(folder / "runs"),
        "tracking": {"enabled": False},
    }
    path = folder / "fleet.yaml"
    path.write_text(yaml.safe_dump(fleet))
    started = time.perf_counter()
    command = [sys.executable, "-m", "jobs.cli", "audit", str(path), "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        while process.poll() is None and not list((folder / "runs").rglob("preflight/**/*.json")):
            time.sleep(0.05)
        seconds = time.perf_counter() - started
        process.wait()
    return seconds


def help_seconds() -> float:
    """Best of five: seconds of `classwise --help`."""
    times = []
    for _ in range(5):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "jobs.cli", "--help"], capture_output=True, check=True)
        times.append(time.perf_counter() - started)
    return min(times)


def main() -> int:
    """Run all three; 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=50_000)
    parser.add_argument("--models", type=int, default=20)
    options = parser.parse_args()
    shown = help_seconds()
    print(f"classwise --help: {shown:.2f} s (at most {HELP_SECONDS})")
    with tempfile.TemporaryDirectory() as folder:
        first = first_forward(Path(folder))
    print(f"first forward pass after {first:.1f} s (at most {STARTUP_SECONDS:g})")
    with tempfile.TemporaryDirectory() as folder:
        peak = peak_memory(write_fleet(Path(folder), options.classes, options.samples, options.models))
    size = f"{options.classes} classes x {options.samples} samples x {options.models} models"
    print(f"driver, {size}: peak {peak['gib']:.2f} GiB in {peak['seconds']:.0f} s (at most {LIMIT_GIB})")
    return int(peak["gib"] > LIMIT_GIB or first > STARTUP_SECONDS or shown > HELP_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
