"""Fuzzes every parser for so many minutes: ``python tests/hostile/fuzz.py MINUTES [SEED]``; ``make fuzz`` calls it.

Valid files are mutated, what passes is mutated further, and what breaks is kept in tests/hostile/corpus, where the
tests find it. A child process opens the files, so that a crash of a C library, a hang or eaten memory is found as well.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing.connection import Connection
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from doors import DOORS  # noqa: E402
from mutations import mutated  # noqa: E402

MEMORY = 6 << 30
SECONDS = 20
KEPT = 200
HEAVY = {"export": 20, "torchscript": 5, "onnx": 3}
"""How much rarer a slow parser is tried."""


def child(pipe: Connection) -> None:
    """Open what comes and answer with the fault's place, or nothing."""
    import torch

    from services.errors import ClasswiseError

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    silence = Path("/dev/null").open("w")  # noqa: SIM115
    with redirect_stdout(silence), redirect_stderr(silence):
        while True:
            name, content = pipe.recv()
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / DOORS[name].file).write_bytes(content)
                signal.alarm(SECONDS)
                try:
                    DOORS[name].open(Path(folder))
                    answer = "value"
                except ClasswiseError:
                    answer = "told"
                except BaseException as error:
                    frame = traceback.extract_tb(error.__traceback__)[-1]
                    answer = f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}: {str(error)[:150]}"
                finally:
                    signal.alarm(0)
            pipe.send(answer)


class Victim:
    """The child process, started again when it dies."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")
        self.start()

    def start(self) -> None:
        self.pipe, other = self._context.Pipe()
        self.process = self._context.Process(target=child, args=(other,), daemon=True)
        self.process.start()
        other.close()

    def opens(self, name: str, content: bytes) -> str:
        try:
            self.pipe.send((name, content))
            if self.pipe.poll(SECONDS * 10):
                return str(self.pipe.recv())
            answer = "hang"
        except (EOFError, OSError):
            answer = "crash"
        self.process.kill()
        self.process.join()
        self.start()
        return answer


def main(minutes: float, seed: int) -> int:
    """Fuzz; returns 1 when something broke."""
    draw = random.Random(seed)
    pools = {name: [door.seed()] for name, door in DOORS.items()}
    names = [name for name in sorted(DOORS) for _ in range(20 // HEAVY.get(name, 1))]
    victim, counts, faults = Victim(), Counter[str](), dict[str, str]()
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        name = draw.choice(names)
        content = mutated(draw.choice(pools[name]), draw.getrandbits(32))
        answer = victim.opens(name, content)
        counts[name] += 1
        if answer == "value" and len(pools[name]) < KEPT and len(content) < 100_000:
            pools[name].append(content)
        place = f"{name}: {answer.partition(': ')[0]}"
        if answer not in ("value", "told") and place not in faults:
            faults[place] = answer
            kept = HERE / "corpus" / f"{name.replace(' ', '_')}-{hashlib.sha256(content).hexdigest()[:8]}"
            kept.parent.mkdir(exist_ok=True)
            kept.write_bytes(content)
            sys.stdout.write(f"{kept.name}: {answer}\n")
            sys.stdout.flush()
    victim.process.kill()
    sys.stdout.write(f"{sum(counts.values())} files in {minutes:g} min with seed {seed}: {dict(counts)}\n")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main(float(sys.argv[1]), int((sys.argv[2:] or [str(time.time_ns() % 2**31)])[0])))
