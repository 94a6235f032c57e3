"""Checks of this machine: versions, cores, memory, GPU, terminal, proxies, storage. None imports what is heavy."""

from __future__ import annotations

import json
import locale
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from jobs.upkeep.findings import SLOW_SECONDS, CheckContext, Finding, Level
from services.devices import control_groups, memory_limits
from services.errors import one_line
from services.storage import files

GIB = 2**30
LOW_DISK = 5 * GIB
LOW_MEMORY = 2 * GIB
SKEW_SECONDS = 5.0
PER_WORKER = 1 * GIB
"""Torch, a small network and a batch."""
TORCH = "import torch; print(torch.cuda.device_count(), torch.version.cuda or 'none')"


def python(around: CheckContext) -> Iterator[Finding]:
    """The interpreter, and whether it may keep byte code."""
    number = platform.python_version()
    if (3, 11) <= sys.version_info[:2] < (3, 13):
        yield Finding("python", "ok", number)
    else:
        yield Finding("python", "fail", number, "use Python 3.11 or 3.12")
    if around.environment.get("PYTHONDONTWRITEBYTECODE"):
        remedy = "unset PYTHONDONTWRITEBYTECODE: every Ray worker compiles torch and its other imports again"
        yield Finding("byte code", "warn", "not written", remedy)


def packages(around: CheckContext) -> Iterator[Finding]:
    """Versions against the ranges that classwise declares."""
    from packaging.requirements import Requirement

    try:
        declared = [Requirement(text) for text in requires("classwise") or ()]
    except PackageNotFoundError:
        yield Finding("packages", "fail", "classwise is not installed", "install it: pip install -e .")
        return
    needed = [each for each in declared if each.marker is None or each.marker.evaluate({"extra": ""})]
    wrong = 0
    for each in needed:
        try:
            installed = version(each.name)
        except PackageNotFoundError:
            installed = ""
        if not installed or not each.specifier.contains(installed, prereleases=True):
            wrong += 1
            remedy = f"pip install '{each.name}{each.specifier}'"
            yield Finding(each.name, "fail", installed or "not installed", remedy)
    if not wrong:
        shown = ", ".join(f"{name} {version(name)}" for name in ("torch", "ray", "mlflow"))
        yield Finding("packages", "ok", f"{len(needed)} in their ranges; {shown}")


OPTIONAL = {
    "torchvision": "torchvision: models and samples, timm:, robustbench:",
    "timm": "timm: models",
    "robustbench": "robustbench: models and samples",
    "onnxruntime": "onnx: models",
    "datasets": "hf: samples",
    "s3fs": "storage on S3",
    "psycopg": "PostgreSQL",
}
"""Packages that some sources need, and which."""
IMPORTS = """
import importlib, importlib.util, json, sys, warnings
warnings.simplefilter("ignore")
broken = {}
for name in sys.argv[1:]:
    try:
        if name == "robustbench" and importlib.util.find_spec(name):  # as classwise imports it, with stand-ins
            importlib.import_module("services.loading.models.robustbench_bridge").robustbench_module()
        else:
            importlib.util.find_spec(name) is None or importlib.import_module(name)
    except Exception as error:
        broken[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
print(json.dumps(broken))
"""


def imports(around: CheckContext) -> Iterator[Finding]:
    """Installed packages that do not import: torchvision of another torch, say, which an audit would meet halfway."""
    try:
        broken = broken_imports(list(OPTIONAL))
    except RuntimeError as error:
        actual = one_line(error)
        yield Finding("imports", "fail", f"importing {', '.join(OPTIONAL)} ends Python: {actual}", "install them again")
        return
    for words in dict.fromkeys(broken.values()):
        name, *others = (name for name in broken if broken[name] == words)
        needed = "; ".join(OPTIONAL[each] for each in (name, *others))
        remedy = f"install {name} to match torch {version('torch')}; needed for {needed}"
        beside = f" (nor {'do' if others[1:] else 'does'} {', '.join(others)})" if others else ""
        yield Finding(name, "warn", f"installed, but does not import{beside}: {words}", remedy)
    if not broken:
        yield Finding("imports", "ok", "what is installed of " + ", ".join(OPTIONAL))


def broken_imports(names: Sequence[str], seconds: float = SLOW_SECONDS) -> dict[str, str]:
    """Of packages, those that are installed and do not import, with the reason; a process of its own imports them.

    Raises:
        RuntimeError: that process ended.
        subprocess.TimeoutExpired: it took longer than `seconds`.
    """
    command = [sys.executable, "-c", IMPORTS, *names]
    run = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    try:
        broken: dict[str, str] = json.loads(run.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise RuntimeError(run.stderr.strip()[-300:] or f"exit status {run.returncode}") from None
    return broken


def cores(around: CheckContext) -> Iterator[Finding]:
    """Cores of the machine, and those that a container grants."""
    visible, granted = os.cpu_count() or 1, _granted_cores()
    if granted is not None and granted < visible:
        remedy = "Ray counts the machine's: set resources.workers, or ray start --num-cpus, to what is granted"
        yield Finding("cores", "warn", f"{visible}, of which the container grants {granted:g}", remedy)
    else:
        yield Finding("cores", "ok", str(visible))


def memory(around: CheckContext) -> Iterator[Finding]:
    """Free memory, and the limit of a container."""
    free = _free_memory()
    if free is None:
        return
    shown = f"{free / GIB:.1f} GiB free"
    workers = around.config.resources.workers if around.config else "auto"
    wanted = PER_WORKER * (workers if isinstance(workers, int) else 1)
    if free < max(LOW_MEMORY, wanted):
        yield Finding("memory", "warn", shown, "lower resources.workers and batch, or give the container more")
    else:
        yield Finding("memory", "ok", shown)


def shared_memory(around: CheckContext) -> Iterator[Finding]:
    """Ray's object store lies in /dev/shm; a container often has 64 MB of it."""
    if not Path("/dev/shm").is_dir():
        return
    size = shutil.disk_usage("/dev/shm").total
    if size < GIB // 2:
        remedy = "start the container with --shm-size=2g; Ray falls back to slow /tmp"
        yield Finding("shared memory", "warn", f"{size / 2**20:.0f} MiB in /dev/shm", remedy)
    else:
        yield Finding("shared memory", "ok", f"{size / GIB:.1f} GiB in /dev/shm")


def gpu(around: CheckContext) -> Iterator[Finding]:
    """Whether torch sees the GPUs that the fleet asks for or the machine has; else torch is not even imported."""
    present = Path("/dev/nvidia0").exists() or shutil.which("nvidia-smi") is not None
    if not (around.gpus or present):
        yield Finding("gpu", "ok", "none, and none asked for")
        return
    command = [sys.executable, "-c", TORCH]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=SLOW_SECONDS - 2, check=False)
    except subprocess.TimeoutExpired:
        yield Finding("gpu", "fail", "torch did not start in time", "look at nvidia-smi and at the machine's load")
        return
    count, _, cuda = process.stdout.strip().partition(" ")
    if process.returncode or not count.isdigit():
        yield Finding("gpu", "fail", " ".join(process.stderr.split())[-200:], "install torch again")
    elif count == "0":
        level: Level = "fail" if around.gpus else "warn"
        remedy = "install the driver and a CUDA build of torch, or set resources.gpus: 0"
        yield Finding("gpu", level, f"torch sees none (built for CUDA {cuda})", remedy)
    else:
        yield Finding("gpu", "ok", f"{count}, CUDA {cuda}")


def terminal(around: CheckContext) -> Iterator[Finding]:
    """Whether names of classes can be printed."""
    encoding = (sys.stdout.encoding or locale.getpreferredencoding(False)).lower()
    if encoding.replace("-", "") != "utf8":
        yield Finding(
            "terminal", "warn", encoding, "set PYTHONUTF8=1 or LANG=C.UTF-8, else some names cannot be printed"
        )
    else:
        yield Finding("terminal", "ok", encoding)


def proxy(around: CheckContext) -> Iterator[Finding]:
    """A proxy must not stand between the processes of one machine."""
    lower = {name.lower(): value for name, value in around.environment.items()}
    set_ = [name for name in ("http_proxy", "https_proxy", "all_proxy") if lower.get(name)]
    spared = {part.strip() for part in lower.get("no_proxy", "").split(",")}
    if set_ and not spared & {"localhost", "127.0.0.1", "*"}:
        remedy = "add localhost,127.0.0.1 and the cluster's addresses to NO_PROXY"
        yield Finding("proxy", "warn", f"{', '.join(set_)} set, and localhost is not in NO_PROXY", remedy)


def storage_works(around: CheckContext) -> Iterator[Finding]:
    """Room, and whether a file can be written, replaced atomically, and dated."""
    url = around.storage
    if files.is_local(url):
        yield _room(url)
    probe = files.join(_standing(url), f".doctor-{uuid.uuid4().hex[:8]}.probe")
    try:
        files.write_bytes(probe, b"one")
        files.write_bytes(probe, b"two")  # moves over what is there
        replaced = files.read_bytes(probe) == b"two"
        dated = files.modified(probe)
    finally:
        files.remove(probe)
    if not replaced:
        yield Finding(
            "storage", "fail", f"{url}: an old file after it was replaced", "use a storage that is consistent"
        )
        return
    yield Finding("storage", "ok", f"{url} can be written")
    skew = abs(dated - time.time()) if dated is not None else 0.0
    if skew > SKEW_SECONDS:
        remedy = "synchronise the clocks: retention and stale runs go by them"
        yield Finding("clock", "warn", f"the storage's differs by {skew:.0f} s", remedy)


def _room(url: str) -> Finding:
    free = shutil.disk_usage(_standing(url)).free
    if free < LOW_DISK:
        remedy = "free some: classwise prune STORAGE --keep-last 10 --cache-days 30 --dry-run"
        return Finding("disk", "warn", f"{free / GIB:.1f} GiB free", remedy)
    return Finding("disk", "ok", f"{free / GIB:.0f} GiB free")


def _standing(url: str) -> str:
    """The storage, or the nearest folder above it that is there: a look makes no folder."""
    if not files.is_local(url):
        return url
    there = Path(files.filesystem(url)[1])
    while not there.exists():
        there = there.parent
    return str(there)


def _granted_cores() -> float | None:
    """The least that a control group of this process grants, in version 2 or version 1; None without a limit."""
    granted = []
    for group in control_groups("cpu"):
        for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
            with suppress(OSError, ValueError):  # "max", or no such file
                quota, period = map(int, " ".join((group / name).read_text() for name in names).split())
                granted += [quota / period] if quota > 0 < period else []
    return min(granted, default=None)


def _free_memory() -> float | None:
    """The least of what the machine has free and what its control groups (container, service) have left."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    match = re.search(r"MemAvailable:\s+(\d+) kB", text)
    free = [float(match[1]) * 1024] if match else []
    return min([*free, *(float(limit - used) for limit, used in memory_limits())], default=None)
