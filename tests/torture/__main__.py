"""The long suite: ``python -m torture --count 200``. A line a schedule; exits 1 when one did not end well."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

os.environ.update({"OMP_NUM_THREADS": "1", "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"})

from .drivers import Bench
from .faults import Fault, draw, draw_at
from .forks import Child
from .ray_bench import RayBench
from .server_bench import ServerBench

BENCHES = {"local": Bench, "servers": ServerBench, "ray": RayBench}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of all schedules")
    parser.add_argument("--first", type=int, default=0, help="number of the first schedule")
    parser.add_argument("--count", type=int, default=200, help="how many")
    parser.add_argument("--lanes", type=int, default=2, help="how many at a time")
    parser.add_argument("--on", choices=("local", "servers", "ray"), default="local", help="what is disturbed")
    parser.add_argument("--fault", nargs=3, action="append", metavar=("POINT", "KIND", "AT"), help="this instead")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    options.lanes = options.lanes if options.on == "local" else 1  # one server, one cluster
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cw-torture-", dir=_memory()) as home, ExitStack() as stack:
        folder = Path(home)
        bench = stack.enter_context(BENCHES[options.on](folder))
        bench.prepare()
        ready = time.monotonic() - started
        _say(f"seed {options.seed}; an undisturbed audit passes {bench.counts}; ready in {ready:.0f} s")
        faults = _faults(bench.counts, options)
        stories = _play(bench, faults, options)
    bad = [number for number, wrong in stories.items() if wrong]
    kinds = Counter(fault.point for fault in faults.values())
    _say(f"{len(faults)} schedules ({dict(kinds)}), {len(bad)} wrong {bad}, {time.monotonic() - started:.0f} s")
    return 1 if bad else 0


def _memory() -> str | None:
    """A file system in memory, where there is one: the suite waits for no disk."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _faults(counts: dict[str, int], options: argparse.Namespace) -> dict[int, Fault]:
    if options.fault:
        return {number: Fault(point, kind, int(at)) for number, (point, kind, at) in enumerate(options.fault)}
    numbers = range(options.first, options.first + options.count)
    if options.on == "local":
        return {number: draw(options.seed, number, counts) for number in numbers}
    point, passages = ("server", counts["mlflow"]) if options.on == "servers" else ("shard", counts["shard"])
    return {number: draw_at(point, options.seed, number, passages) for number in numbers}


def _play(bench: Bench, faults: dict[int, Fault], options: argparse.Namespace) -> dict[int, list[str]]:
    """All of them, some lanes beside each other, each lane a child that forks its drivers itself."""

    def lane(mine: list[int]) -> dict[int, list[str]]:
        output = {}
        for number in mine:
            began = time.monotonic()
            story = bench.play(faults[number], f"s{number}")
            output[number] = story.wrong
            verdict = "ok" if not story.wrong else "WRONG"
            seconds = time.monotonic() - began
            _say(f"{number:4} {faults[number]!s:<28} {', '.join(story.ends):<32} {seconds:5.1f} s {verdict}")
            for line in story.wrong:
                _say(f"     {line}")
            if story.wrong:
                _say(f"     again: --seed {options.seed} --first {number} --count 1")
        return output

    numbers = list(faults)
    if options.lanes == 1:  # here, where servers are started again by whoever ends them
        return lane(numbers)
    lanes = [numbers[start :: options.lanes] for start in range(options.lanes)]
    children = [Child(lambda mine=mine: lane(mine), "") for mine in lanes if mine]
    try:
        results = [child.wait(7200) for child in children]
    finally:
        for child in children:
            child.kill()
        for place in bench.home.glob("s*/"):  # a disk of a lane that was killed with it
            subprocess.run(["umount", str(place)], capture_output=True, check=False)
    return {int(number): wrong for ended in results for number, wrong in ended.value.items()}


def _say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    sys.exit(main())
