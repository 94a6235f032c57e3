"""A fleet that is large in every direction, through the real path: 1,000 classes x 50,000 samples x 200 models.

    python -m benchmarks.load --folder DIR [--models 200 --samples 50000 --classes 1000] [--figure FILE.png]

(a) An audit of tables of logits (``logits:``), MLflow included: the driver's resident memory every two seconds, drawn
    over the shards done. Flat means: its peak over the last half of the shards is at most `GROWTH` above that of the
    first half. What grows is the result itself, an interval a class, series and model, after the last shard.
(b) MLflow with that fleet in it: seconds of what its page asks (the runs of the experiment, one run), and of the
    listing of the parent's artifacts.
(c) The report: its size, and seconds until Chromium has drawn it.
(d) Memory of a worker that estimates PR with 10^6 and with 10^7 draws.

DIR keeps the tables (about 50 MB a model: logits are rounded to 1/16, so that Parquet's dictionaries hold them) and the
audit's storage (as much again). Tables that are there are not made again; (a) is judged only where shards were done,
not in a second run from the cache.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks.drills.page import browser

GROWTH = 0.1
LIMIT_MIB = 1536
REPORT_SECONDS = 3.0
STEP = 1 / 16
ROWS = 10_000

TWO_FRAMES = "requestAnimationFrame(() => requestAnimationFrame(() => done(true)));"

AUDIT = """
import json, sys, threading, time
from jobs.fleetfile.reading import load_fleet
from jobs.terminal.progress import Quiet
from jobs.audit.publish import audit_and_publish

class Counting(Quiet):
    shards, name = 0, "begin"
    def stage(self, name, shards, models): self.name = name
    def done(self, receipt): self.shards += 1

def look():
    while True:
        lines = open("/proc/self/status").read().splitlines()
        held = int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024
        seen.append((time.perf_counter() - began, counting.shards, counting.name, held))
        time.sleep(2)

counting, seen, began = Counting(), [], time.perf_counter()
threading.Thread(target=look, daemon=True).start()
published = audit_and_publish(load_fleet(sys.argv[1]), counting)
print(json.dumps({"seen": seen, "folder": published.folder, "seconds": time.perf_counter() - began}))
"""

DRAWS = """
import sys, numpy as np, torch
from services.measures.probabilistic import Pr
from services.training.architectures import small_cnn
torch.manual_seed(0)
torch.set_num_threads(1)
network = small_cnn(width=2).eval()
images, labels = torch.rand(100, 1, 8, 8), torch.arange(100) % 10
measure = Pr(name="pr", radii=[0.1], draws=int(sys.argv[1]) // len(images))
measure.from_model(network, images, labels, np.arange(len(images)), seed=0)
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


def write_tables(folder: Path, classes: int, samples: int, models: int) -> Path:
    """Labels, a table of logits for each model, and the fleet file."""
    folder.mkdir(parents=True, exist_ok=True)
    labels = np.arange(samples) % classes
    np.savez(folder / "samples.npz", labels=labels, classes=np.array([f"class {k:04d}" for k in range(classes)]))
    noise = np.random.default_rng(0).standard_normal((ROWS, classes), dtype=np.float32)
    for index in range(models):
        path = folder / f"m{index:03d}.parquet"
        if not path.exists():
            _write_table(path, noise, labels, index)
    fleet = {
        "fleet": "large",
        "samples": {"uri": f"npz:{folder / 'samples.npz'}"},
        "models": [{"name": f"m{i:03d}", "uri": f"logits:{folder / f'm{i:03d}.parquet'}"} for i in range(models)],
        "measures": ["clean", {"name": "great", "activation": "softmax"}],
        "storage": str(folder / "runs"),
        "tracking": {"uri": f"sqlite:///{folder / 'mlflow.db'}"},
        "resources": {"workers": 2, "shard": ROWS},
    }
    path = folder / "fleet.yaml"
    path.write_text(yaml.safe_dump(fleet))
    return path


def _write_table(path: Path, noise: np.ndarray, labels: np.ndarray, index: int) -> None:
    """A model that is a little better than the one before, and best at other classes."""
    rng = np.random.default_rng([1, index])
    classes = noise.shape[1]
    skill = rng.uniform(1.0, 2.0, classes).astype(np.float32) + np.float32(2 + index / 100)
    schema = pa.schema([("logits", pa.list_(pa.float32(), classes))])
    partial = path.with_suffix(".part")
    with pq.ParquetWriter(partial, schema, compression="zstd") as file:
        for start in range(0, len(labels), ROWS):
            own = labels[start : start + ROWS]
            logits = np.roll(noise[: len(own)], (index + start // ROWS, 7 * index), axis=(0, 1)).copy()
            logits[np.arange(len(own)), own] += skill[own]
            logits = np.round(logits / STEP) * np.float32(STEP)
            values = pa.FixedSizeListArray.from_arrays(pa.array(logits.reshape(-1)), classes)
            file.write_table(pa.table([values], schema=schema))
    partial.rename(path)


def audited(fleet: Path) -> dict[str, Any]:
    """Run the audit; memory by time, the bundle's folder, seconds."""
    ran = subprocess.run([sys.executable, "-c", AUDIT, str(fleet)], stdout=subprocess.PIPE, text=True, check=True)
    body: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return body


def flat(seen: list[tuple[float, int, str, float]], groups: int, models: int, figure: Path | None) -> bool:
    """Print the driver's memory, draw it, and say whether the last half of the shards needed no more than the first."""
    total = max(shards for _, shards, _, _ in seen)
    before = max(held for _, shards, _, held in seen if shards <= total / 2)
    after = max((held for _, shards, _, held in seen if total / 2 < shards < total), default=before)
    most = max(held for *_, held in seen)
    print(f"driver: {before:.0f} MiB at most over the first half of {total} shards, {after:.0f} MiB over the rest")
    print(f"  then {most:.0f} MiB with all results: {(most - after) * 1024 / groups:.1f} KiB a class, series and model")
    if figure:
        _draw(seen, models, figure)
    return after <= (1 + GROWTH) * before and most <= LIMIT_MIB


def _draw(seen: list[tuple[float, int, str, float]], models: int, figure: Path) -> None:
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(7, 3.2), layout="constrained")
    axes = drawn.add_subplot()
    axes.plot([at / 60 for at, *_ in seen], [held for *_, held in seen], color="#0b5cad", lw=1.2)
    axes.set(xlabel="minutes", ylabel="driver's resident memory, MiB", ylim=(0, None))
    stages = [(at, name) for k, (at, _, name, _) in enumerate(seen) if not k or seen[k - 1][2] != name]
    for at, name in stages[1:]:
        axes.axvline(at / 60, color="#999999", lw=0.6)
        axes.text(at / 60, 0, f" {name}", fontsize=7, color="#555555", rotation=90, va="bottom")
    axes.set_title(f"{models} models", loc="left", fontsize=9)
    drawn.savefig(figure, dpi=130)


def asked_of_mlflow(uri: str) -> None:
    """Seconds of what MLflow's pages ask."""
    import mlflow

    client = mlflow.MlflowClient(uri)
    (experiment,) = [each for each in client.search_experiments() if each.name.endswith("large")]
    requested: dict[str, Callable[[], Any]] = {
        "the experiment's newest 100 runs": lambda: client.search_runs([experiment.experiment_id], max_results=100),
        "the same, by a metric": lambda: client.search_runs(
            [experiment.experiment_id], "metrics.`great-softmax.rdi` > 0", max_results=100
        ),
    }
    runs = client.search_runs([experiment.experiment_id], max_results=1000)
    child = next(run for run in runs if "mlflow.parentRunId" in run.data.tags)
    parent = client.get_run(child.data.tags["mlflow.parentRunId"])
    requested["one model's run"] = lambda: client.get_run(child.info.run_id)
    requested["the parent's artifacts"] = lambda: client.list_artifacts(parent.info.run_id)
    print(
        f"MLflow: {len(runs)} runs, {len(parent.data.metrics)} metrics in the parent and "
        f"{len(child.data.metrics)} in a model's"
    )
    for name, ask in requested.items():
        began = time.perf_counter()
        ask()
        print(f"  {name}: {time.perf_counter() - began:.2f} s")


def drawn(report: Path) -> float:
    """Seconds until Chromium has loaded and laid out the report; 0 where there is no Chromium."""
    if shutil.which("chromedriver") is None:
        print("report: not opened, chromedriver is not installed")
        return 0.0
    chromium = browser()
    times = []
    for _ in range(3):
        began = time.perf_counter()
        chromium.get(report.resolve().as_uri())
        chromium.execute_async_script("const done = arguments[0];" + TWO_FRAMES)
        times.append(time.perf_counter() - began)
    chromium.quit()
    print(f"report: {report.stat().st_size / 1e6:.1f} MB, drawn after {', '.join(f'{each:.2f}' for each in times)} s")
    return min(times)


def draws() -> bool:
    """Peak memory of a process that estimates PR with a million draws, and with ten."""
    peaks = []
    for count in (10**6, 10**7):
        began = time.perf_counter()
        ran = subprocess.run([sys.executable, "-c", DRAWS, str(count)], stdout=subprocess.PIPE, text=True, check=True)
        peaks.append(int(ran.stdout) / 1024)
        print(f"PR, {count:,} draws: peak {peaks[-1]:.0f} MiB, {time.perf_counter() - began:.0f} s")
    return peaks[1] <= (1 + GROWTH) * peaks[0]


def main() -> int:
    """Run all four; 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=50_000)
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--figure", type=Path, help="where to draw the driver's memory")
    options = parser.parse_args()
    fleet = write_tables(options.folder.resolve(), options.classes, options.samples, options.models)
    audit = audited(fleet)
    print(f"{options.models} models x {options.samples} samples x {options.classes} classes: {audit['seconds']:.0f} s")
    kept = [flat(audit["seen"], 2 * options.classes * options.models, options.models, options.figure)]
    asked_of_mlflow(yaml.safe_load(fleet.read_text())["tracking"]["uri"])
    kept.append(drawn(Path(audit["folder"]) / "report.html") <= REPORT_SECONDS)
    kept.append(draws())
    return int(not all(kept))


if __name__ == "__main__":
    sys.exit(main())
