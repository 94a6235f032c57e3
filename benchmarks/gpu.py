"""What a GPU brings: training, attacks and a whole audit, against peers and against the CPU in the same run.

    python -m benchmarks.gpu --data ../shared/data [--parts training attacks audit] [--peers DIR] [--device cuda]

* training: images a second of PGD adversarial training of a ResNet-18, ours against a plain published-style loop
  (`benchmarks.training`), in float32 and in bfloat16; epochs of 50,000 images an hour follow from it.
* attacks: PGD-20 at Linf 8/255 against torchattacks and foolbox, survivors beside the times (`benchmarks.attacks`).
* audit: the same fleet through `run_audit` on the GPU and on the CPU: seconds a stage, and how far the scores differ.

Needs neither Ray nor MLflow: the audit runs in this process and tells no server.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import attacks
from benchmarks import training as plain
from services.records import Receipt

FLEET = ("cifar10_resnet56", "cifar10_wide_madry8", "cifar10_cnn_a_mix4", "cifar10_resnet2b")
MEASURES: tuple[Any, ...] = (
    "clean",
    "great",
    {"name": "pgd", "steps": 20, "epsilons": [2 / 255, 8 / 255]},
    {"name": "minimal", "attacks": ["fmn"]},
    {"name": "pr", "radii": [8 / 255], "draws": 100},
    {"name": "probacc", "radii": [8 / 255]},
    {"name": "radius", "sigma": 0.25, "draws": 1000},
)


class Stages:
    """A reporter that takes the time of each measure of each stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def stage(self, name: str, shards: int, models: int) -> None:
        """Ignore."""

    def done(self, receipt: Receipt) -> None:
        """Add up the worker's seconds."""
        key = json.loads(receipt.task.measure)["name"] if receipt.task.measure else receipt.task.kind
        self.seconds[key] = self.seconds.get(key, 0.0) + receipt.seconds

    def remaining(self, share: float, seconds: float) -> None:
        """Ignore."""

    def note(self, text: str) -> None:
        """Ignore."""


def training(options: argparse.Namespace) -> None:
    """One line a precision: images a second of the plain loop and of ours."""
    print(
        f"\nPGD-10 training, ResNet-18 of width {options.width:g}, batch {options.batch}: images a second", flush=True
    )
    for precision in ("float32", "bfloat16"):
        arguments = argparse.Namespace(
            steps=options.steps,
            batch=options.batch,
            rounds=2,
            arch="resnet18",
            width=options.width,
            device=options.device,
            precision=precision,
            channels_last=precision == "bfloat16",
        )
        row = plain.compare("pgd", arguments)
        hours = row["images_per_s"] * 3600 / 50_000
        print(f"{precision:<10} {row}  {hours:.0f} epochs of 50,000 images an hour", flush=True)


def audit(options: argparse.Namespace) -> None:
    """The fleet on both devices; prints seconds a measure and the largest differences of the scores."""
    runs = []
    for device, count in ((options.device, options.images), ("cpu", options.cpu_images)):
        with tempfile.TemporaryDirectory() as folder:
            runs.append((*_audited(options.data, Path(folder), device, count), count))
    (fast, scores, many), (slow, others, few) = runs
    print(f"\naudit of {len(FLEET)} networks: ms an image and network on {options.device}, on the CPU, ratio")
    for key in fast:
        ours, theirs = 1e3 * fast[key] / (len(FLEET) * many), 1e3 * slow[key] / (len(FLEET) * few)
        print(f"{key:<10} {ours:9.3f} {theirs:9.3f}  x{theirs / ours:.1f}")
    print(f"scores of the first {few} images on both devices: share that differ by over 1e-6, largest difference")
    for key, values in scores.items():
        gap = np.abs(values[:, :few] - others[key])
        print(f"{key:<28} {(gap > 1e-6).mean():.4f} {gap.max():.2e}")


def _audited(data: Path, folder: Path, device: str, count: int) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Seconds by measure, and scores (models, images) by series."""
    from jobs.audit.audit import run_audit
    from jobs.fleetfile.reading import validate_fleet
    from services.running.runners import LocalRunner
    from services.running.workers import Worker
    from tracking.bundle.scores import read_kept_scores

    with np.load(data / "cifar10" / "test.npz") as archive:
        np.savez(folder / "test.npz", **{k: v if k == "classes" else v[:count] for k, v in archive.items()})
    raw = {
        "fleet": "gpu",
        "samples": {"uri": f"npz:{folder}/test.npz"},
        "storage": str(folder),
        "factories": ["benchmarks.zoo"],
        "models": [{"name": name, "uri": f"factory:benchmarks.zoo:audited?data={data}&name={name}"} for name in FLEET],
        "measures": list(MEASURES),
        "resources": {"runner": "local", "gpus": int(device != "cpu"), "batch": 500, "shard": 1000},
        "tracking": {"enabled": False},
    }
    stages, began = Stages(), time.perf_counter()
    worker = Worker(device, torch.get_num_threads(), ("benchmarks.zoo",))
    done = run_audit(validate_fleet(raw, source="benchmark"), stages, runner=lambda: LocalRunner(worker))
    print(f"{device}: {count} images of {len(FLEET)} networks in {time.perf_counter() - began:.1f} s", flush=True)
    models = done.result.models
    tables = [read_kept_scores(done.folder, index, model.spec) for index, model in enumerate(models)]
    keys = [each.series.key for each in models[0].series]
    return stages.seconds, {key: np.stack([table[key] for table in tables]) for key in keys}


def main() -> None:
    """Read the options and run the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the shared real data")
    parser.add_argument("--parts", nargs="*", default=["training", "attacks", "audit"])
    parser.add_argument("--peers", default="", help="folder in which torchattacks and foolbox are installed")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--images", type=int, default=2000, help="images of the audit on the GPU, and of PGD")
    parser.add_argument("--cpu-images", type=int, default=200, help="images of the audit on the CPU")
    parser.add_argument("--steps", type=int, default=24, help="batches of a timed training epoch")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--width", type=float, default=1.0)
    options = parser.parse_args()
    if options.device == "cuda":
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    if "training" in options.parts:
        training(options)
    if "attacks" in options.parts:
        peers = attacks.installed_peers(options.peers)
        attacks.compare_pgd(options.data, options.images, list(FLEET), peers, options.device)
    if "audit" in options.parts:
        audit(options)


if __name__ == "__main__":
    main()
