"""Logit extraction: one worker against a bare torch loop over the same batches, and two workers against two threads.

``python -m benchmarks.extraction [--seconds 60]``. The bare loop has its images decoded and ready; the worker decodes
them, counts, converts and writes Parquet. Rounds alternate, so that a busy machine slows both.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from services.cluster import Ask, RayRunner
from services.loading.samples import open_samples
from services.records import ModelSpec, SampleSpec, ShardTask
from services.shards import shard_name, shard_ranges
from services.training.architectures import cifar_resnet
from services.workers import Worker

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


def bare(network: torch.nn.Module, images: torch.Tensor) -> float:
    """Seconds of a plain loop over ready tensors."""
    started = time.perf_counter()
    with torch.inference_mode():
        for start in range(0, len(images), BATCH):
            network(images[start : start + BATCH])
    return time.perf_counter() - started


def one_worker(spec: SampleSpec, folder: Path, seconds: float) -> float:
    """Throughput of a worker as a share of the bare loop's, over alternating rounds."""
    samples = open_samples(spec)
    images = torch.from_numpy(samples.images(0, COUNT))
    network = cifar_resnet(n=3).eval()
    worker = Worker("cpu", torch.get_num_threads(), FACTORIES)
    bare(network, images[:SHARD])
    worker.run(tasks(spec, folder)[0])
    rounds: list[tuple[float, float]] = []
    while sum(loop for loop, _ in rounds) < seconds:
        loop = bare(network, images)
        started = time.perf_counter()
        for task in tasks(spec, folder):
            worker.run(task)
        rounds.append((loop, time.perf_counter() - started))
    share = statistics.median(loop / ours for loop, ours in rounds)
    total = sum(loop for loop, _ in rounds)
    listed = ", ".join(f"{loop / ours:.3f}" for loop, ours in rounds)
    print(
        f"one worker: {share:.3f} of the bare loop's throughput, the median of {len(rounds)} rounds over {total:.0f} s"
    )
    print(f"  (at least 0.95; rounds: {listed})")
    return share


def two_workers(spec: SampleSpec, folder: Path, copies: int) -> float:
    """Time of one in-process worker with two threads over that of two Ray workers with one thread each."""
    worker = Worker("cpu", 2, FACTORIES)
    worker.run(tasks(spec, folder)[0])
    with RayRunner(Ask(workers=2, cpus=1, factories=FACTORIES, wait_seconds=120)) as runner:
        list(runner.run([*tasks(spec, folder), *tasks(spec, folder)]))
        one = two = 0.0
        for _ in range(2):
            started = time.perf_counter()
            for task in tasks(spec, folder, copies=copies):
                worker.run(task)
            one += time.perf_counter() - started
            started = time.perf_counter()
            list(runner.run(tasks(spec, folder, copies=copies)))
            two += time.perf_counter() - started
    print(f"two workers: {one / two:.3f} times the speed of one worker with two threads (at least 1)")
    return one / two


def main() -> int:
    """Run both; 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the bare loop")
    options = parser.parse_args()
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        spec = write_images(Path(folder) / "images.npz", COUNT)
        share = one_worker(spec, Path(folder), options.seconds)
        speed = two_workers(spec, Path(folder), copies=2)
    return int(share < 0.95 or speed < 1.0)


if __name__ == "__main__":
    sys.exit(main())
