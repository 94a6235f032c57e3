"""One table over the settings that must not move a number: ``python -m torture.determinism``.

Audits the four models with 1, 2 and 4 workers, batches of 7 and 64, 1 and 2 threads, in process and on Ray, from a cold
and a warm cache, and compares every score table with that of the first setting, bit for bit. Logits may differ in their
last bits, where a kernel sums in another order for another batch or number of threads: how far is measured.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

LOGIT_BOUND = 1e-5
"""Largest difference of a logit over all settings that is promised, relative to the largest logit of its model."""
SCORE_BOUND = 1e-5
"""The same for the columns of GREAT and an attack's margins, which are smooth functions of the logits."""


@dataclass(frozen=True)
class Setting:
    """How an audit is run."""

    runner: str
    workers: int
    batch: int
    threads: int
    shard: int = 60

    def __str__(self) -> str:
        return (
            f"{self.runner:<5} workers {self.workers} batch {self.batch:<2} threads {self.threads} shard {self.shard}"
        )


FIRST = Setting("local", 1, 64, 1)


SHORT = (FIRST, replace(FIRST, batch=7, threads=2), replace(FIRST, shard=200))
"""What a short test compares."""


def settings(ray: bool) -> Iterator[Setting]:
    """In process, where a worker has as many threads as it may; on Ray, as many workers."""
    for batch, threads in itertools.product((7, 64), (1, 2)):
        yield Setting("local", 1, batch, threads)
    yield replace(FIRST, shard=200)
    if ray:
        for workers, batch in itertools.product((1, 2, 4), (7, 64)):
            yield Setting("ray", workers, batch, 1)
        yield Setting("ray", 1, 7, 2)


def audited(weights: Path, storage: Path, setting: Setting) -> dict[str, Any]:
    """Run one setting in this process; a path to the tables of each model, by measure, and the forward passes."""
    import torch

    from jobs.audit.audit import run_audit
    from jobs.fleetfile.reading import validate_fleet
    from jobs.terminal.progress import Quiet

    from .fleet import fleet_of

    torch.set_num_threads(setting.threads)
    resources = {"runner": setting.runner, "workers": setting.workers, "batch": setting.batch, "shard": setting.shard}
    if setting.runner == "local":
        resources["workers"] = setting.threads  # in process, one worker with the threads of so many
    else:
        resources["cpus"] = setting.threads if setting.workers < 4 else 0.5  # four on two cores
    fleet = validate_fleet({**fleet_of(weights, storage, **resources), "tracking": {"enabled": False}})
    result = run_audit(fleet, Quiet()).result
    return {"forwards": sum(model.forwards for model in result.models), "results": _series(result)}


def _series(result: Any) -> str:
    """Everything judged and counted, without the time it took."""
    return json.dumps([asdict(series) for model in result.models for series in model.series], sort_keys=True)


def tables(storage: Path) -> dict[str, dict[str, Any]]:
    """Columns of every table in the cache, by its key."""
    from services.storage.shards import chain, finished_ranges, read_table

    result = {}
    for folder in sorted((storage / "cache").glob("[ls]*/*/*")):
        count = chain(10**9, finished_ranges(str(folder)))[-1][1]
        result[f"{folder.parent.parent.name}/{folder.name}"] = read_table(str(folder), count)
    return result


@dataclass(frozen=True)
class Compared:
    """Two audits: columns that differ in a bit and must not, and the largest relative differences of those that may.

    Attributes:
        exact: columns of attacks, perturbations and right or wrong that differ.
        logits: largest difference of a logit, relative to the largest of its table.
        scores: the same for the columns of GREAT.
        results: whether intervals, metrics and verdicts are equal to the last bit.
    """

    exact: tuple[str, ...]
    logits: float
    scores: float
    identical: int
    columns: int


def compared(one: dict[str, dict[str, Any]], other: dict[str, dict[str, Any]]) -> Compared:
    """Compare all columns of all tables."""
    import numpy as np

    exact, logits, scores, identical, columns = [], 0.0, 0.0, 0, 0
    for key in sorted({*one, *other}):
        smooth = any(name.startswith(("logits", "great")) for name in one.get(key, {}))
        for name in sorted({*one.get(key, {}), *other.get(key, {})}):
            columns += 1
            mine, yours = one.get(key, {}).get(name), other.get(key, {}).get(name)
            if mine is None or yours is None or mine.shape != yours.shape:
                exact.append(f"{key} {name} is missing")
            elif mine.tobytes() == yours.tobytes():
                identical += 1
            elif smooth or name == "margin":  # what an attack leaves of the margin
                gap = float(np.abs(mine - yours).max() / np.abs(mine).max())
                logits, scores = (max(logits, gap), scores) if name == "logits" else (logits, max(scores, gap))
            else:
                exact.append(f"{key} {name}")
    return Compared(tuple(exact), logits, scores, identical, columns)


def main() -> int:
    """Print the table; 1 when a promise is broken."""
    os.environ.update({"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE", "RAY_USAGE_STATS_ENABLED": "0"})
    from .drivers import import_heavy
    from .fleet import train_weights
    from .forks import in_fork

    import_heavy()

    ray, short, broken = "--ray" in sys.argv, "--short" in sys.argv, 0
    with tempfile.TemporaryDirectory(prefix="cw-same-") as home:
        weights = Path(home) / "weights"
        weights.mkdir()
        in_fork(lambda: train_weights(weights), "", 300)
        first = None
        for index, setting in enumerate(SHORT if short else [FIRST, *settings(ray)]):
            storage = Path(home) / str(index)
            cold = in_fork(lambda s=setting, f=storage: audited(weights, f, s), "", 300).value
            warm = in_fork(lambda s=setting, f=storage: audited(weights, f, s), "", 300).value
            result = tables(storage)
            first = first or (result, cold)
            output = compared(first[0], result)
            good = not output.exact and output.logits <= LOGIT_BOUND and output.scores <= SCORE_BOUND
            good = good and warm == {**cold, "forwards": 0}
            broken += not good
            line = f"{setting}  {output.identical}/{output.columns} columns identical, logits {output.logits:.1e}, "
            line += (
                f"GREAT {output.scores:.1e}, results {'equal' if cold['results'] == first[1]['results'] else 'close'}"
            )
            line += f", warm {'equal' if warm == {**cold, 'forwards': 0} else 'DIFFERS'}"
            os.write(1, f"{line}\n".encode())
            for text in output.exact:
                os.write(1, f"  {text}\n".encode())
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
