"""Logit extraction: one worker against a bare torch loop over the same batches, and two workers against two threads.

``python -m benchmarks.extraction [--seconds 60]``. First the bare loop has its images decoded and ready, and the worker
reads them from an array; then both decode PNG files batch by batch, as a worker does with sets that do not fit in
memory. The worker also counts, converts and writes Parquet. Rounds alternate, so that a busy machine slows both.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from PIL import Image

from services.loading.samples import encoded
from services.loading.samples.source import open_samples
from services.records import ModelSpec, SampleSpec, ShardTask
from services.running.cluster import RayRunner, WorkerRequest
from services.running.workers import Worker
from services.storage.shards import shard_name, shard_ranges
from services.training.architectures import cifar_resnet

BATCH, SHARD, COUNT = 250, 1000, 4000
FACTORIES = ("services.training.*",)
MODEL = ModelSpec("resnet20", "factory:services.training.architectures:cifar_resnet?n=3")


def tasks(samples: SampleSpec, folder: Path, count: int = COUNT, copies: int = 1) -> list[ShardTask]:
    """Logits tasks over all samples, into fresh files."""
    return [
        ShardTask("logits", MODEL, samples, a, b, 0, BATCH, target=str(folder / f"{copy}" / shard_name(a, b)))
        for copy in range(copies)
        for a, b in shard_ranges(count, SHARD)
    ]


def write_images(path: Path, count: int) -> SampleSpec:
    """Random images of CIFAR-10's shape: what a network computes does not depend on what it sees."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, size=(count, 32, 32, 3), dtype=np.uint8)
    np.savez_compressed(path, images=images, labels=np.arange(count) % 10)
    return SampleSpec(f"npz:{path}")


def write_folder(root: Path, count: int) -> SampleSpec:
    """The same as PNG files, in ten class folders."""
    rng = np.random.default_rng(0)
    for index in range(count):
        folder = root / f"class{index % 10}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, size=(32, 32, 3), dtype=np.uint8)).save(folder / f"{index:05d}.png")
    return SampleSpec(f"imagefolder:{root}")


def bare(network: torch.nn.Module, batch: Callable[[int], torch.Tensor], count: int = COUNT) -> float:
    """Seconds of a plain loop over the batches that begin at each row."""
    started = time.perf_counter()
    with torch.inference_mode():
        for start in range(0, count, BATCH):
            network(batch(start))
    return time.perf_counter() - started


def ready(spec: SampleSpec) -> Callable[[int], torch.Tensor]:
    """Batches of tensors that are there."""
    images = torch.from_numpy(open_samples(spec).images(0, COUNT))
    return lambda start: images[start : start + BATCH]


def by_pillow(root: Path) -> Callable[[int], torch.Tensor]:
    """Batches that are decoded when they are asked for, as a script would."""
    paths = sorted(root.rglob("*.png"))

    def batch(start: int) -> torch.Tensor:
        images = [np.asarray(Image.open(path).convert("RGB")) for path in paths[start : start + BATCH]]
        return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float().div(255).contiguous()

    return batch


def one_worker(
    name: str, spec: SampleSpec, batch: Callable[[int], torch.Tensor], folder: Path, seconds: float
) -> float:
    """Throughput of a worker as a share of the bare loop's, over alternating rounds."""
    network = cifar_resnet(n=3).eval()
    worker = Worker("cpu", torch.get_num_threads(), FACTORIES)
    bare(network, batch, SHARD)
    worker.run(tasks(spec, folder)[0])
    rounds: list[tuple[float, float]] = []
    while sum(loop for loop, _ in rounds) < seconds:
        loop = bare(network, batch)
        started = time.perf_counter()
        for task in tasks(spec, folder):
            worker.run(task)
        rounds.append((loop, time.perf_counter() - started))
    share = statistics.median(loop / ours for loop, ours in rounds)
    total = sum(loop for loop, _ in rounds)
    listed = ", ".join(f"{loop / ours:.3f}" for loop, ours in rounds)
    print(f"one worker, {name}: {share:.3f} of the bare loop's throughput")
    print(f"  (median of {len(rounds)} rounds over {total:.0f} s, at least 0.95: {listed})")
    return share


def two_workers(spec: SampleSpec, folder: Path, copies: int) -> float:
    """Time of one in-process worker with two threads over that of two Ray workers with one thread each."""
    worker = Worker("cpu", 2, FACTORIES)
    worker.run(tasks(spec, folder)[0])
    with RayRunner(WorkerRequest(workers=2, cpus=1, factories=FACTORIES, wait_seconds=120)) as runner:
        list(runner.run([*tasks(spec, folder), *tasks(spec, folder)]))
        first = two = 0.0
        for _ in range(2):
            started = time.perf_counter()
            for task in tasks(spec, folder, copies=copies):
                worker.run(task)
            first += time.perf_counter() - started
            started = time.perf_counter()
            list(runner.run(tasks(spec, folder, copies=copies)))
            two += time.perf_counter() - started
    print(f"two workers: {first / two:.3f} times the speed of one worker with two threads (at least 1)")
    return first / two


def main() -> int:
    """Run both; 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the bare loop")
    options = parser.parse_args()
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        spec = write_images(Path(folder) / "images.npz", COUNT)
        share = one_worker("images kept", spec, ready(spec), Path(folder), options.seconds)
        with mock.patch.object(encoded, "KEEP_BYTES", 0):
            files = write_folder(Path(folder) / "files", COUNT)
            decoded = one_worker(
                "PNG by batch", files, by_pillow(Path(folder) / "files"), Path(folder), options.seconds
            )
        speed = two_workers(spec, Path(folder), copies=2)
    return int(min(share, decoded) < 0.95 or speed < 1.0)


if __name__ == "__main__":
    sys.exit(main())
