"""What it costs to train as a job: one trial on Ray against the bare loop, in turns on the same core.

    python -m benchmarks.training_job [--seconds 60] [--rounds 3]

Both train the same network by PGD on the same images with one thread, for an epoch of about so many seconds. The job
is timed from the moment a worker has taken the trial until the driver knows that it ended, so it includes checkpoints,
the way of the data through the object store, and what is told between processes. Starting Ray and its worker is told
apart: it happens once a sweep. Exit code 1 when the median overhead is above `--limit`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from services.records.trials import Begun, DataFacts, TrialDone, TrialTask
from services.running.cluster import WorkerRequest
from services.running.sweeps import RaySweep
from services.training.architectures.build import build
from services.training.data.images import checked
from services.training.data.sets import TrainingSet
from services.training.epochs.loop import train
from services.training.methods import method_from
from services.training.recipe import Recipe

BATCH, SIDE, CLASSES = 64, 32, 10
NETWORK = {"channels": 3, "classes": CLASSES, "size": SIDE}


def images_of(steps: int) -> TrainingSet:
    """Random images for so many steps of an epoch."""
    count = steps * BATCH
    pixels = np.random.default_rng(0).integers(0, 256, (count, 3, SIDE, SIDE), dtype=np.uint8)
    data = checked(pixels, np.arange(count) % CLASSES, CLASSES, "benchmark")
    facts = DataFacts("noise", "noise", "", (), (), (3, SIDE, SIDE), tuple(str(k) for k in range(CLASSES)))
    return TrainingSet(data, None, facts)


def bare(data: TrainingSet) -> float:
    """Seconds of one epoch of the loop itself."""
    network = build("cnn4", seed=0, **NETWORK)
    began = time.perf_counter()
    train(network, data.train.images, data.train.labels, method=method_from("pgd"), epochs=1, batch=BATCH)
    return time.perf_counter() - began


def steps_for(seconds: float) -> int:
    """Steps of an epoch of about so many seconds."""
    bare(images_of(2))
    return max(2, round(seconds / bare(images_of(8)) * 8))


def jobs(data: TrainingSet, folder: Path) -> Iterator[float]:
    """Seconds of one epoch as a job, as often as asked; the first value is that of the start."""
    recipe = Recipe(epochs=1, batch=BATCH).model_dump_json()
    began = time.perf_counter()
    with RaySweep(WorkerRequest(workers=1, cpus=1.0, threads=1, wait_seconds=300), {"noise": data}) as runner:
        number = 0
        while True:
            name = f"trial-{number}"
            options = tuple(sorted(NETWORK.items()))
            method = method_from("pgd").canonical()
            task = TrialTask(name, name, str(folder / name), method, recipe, "cnn4", options, "noise")
            for event in runner.run([task]):
                if isinstance(event, Begun):
                    if number == 0:
                        yield time.perf_counter() - began
                    began = time.perf_counter()
                elif isinstance(event, TrialDone):
                    yield time.perf_counter() - began
            number += 1


def main() -> int:
    """Measure in turns; 1 when the median overhead is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of an epoch")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds; one more warms up")
    parser.add_argument("--limit", type=float, default=0.03, help="largest overhead, as a share")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data, ratios = images_of(steps_for(arguments.seconds)), []
    with tempfile.TemporaryDirectory() as folder:
        timed = jobs(data, Path(folder))
        print(f"Ray and its worker start in {next(timed):.1f} s, once a sweep", flush=True)
        next(timed)
        for number in range(arguments.rounds):
            alone, job = bare(data), next(timed)
            ratios.append(job / alone - 1)
            print(f"round {number + 1}: bare {alone:.2f} s, as a job {job:.2f} s, {ratios[-1]:+.2%}", flush=True)
        timed.close()
    overhead = float(np.median(ratios))
    print(f"overhead of a job: {overhead:+.2%} (at most {arguments.limit:.0%})")
    return int(overhead > arguments.limit)


if __name__ == "__main__":
    sys.exit(main())
