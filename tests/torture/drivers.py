"""`classwise audit` as a user runs it, in a child, with or without a fault; and what its user does next."""

from __future__ import annotations

import importlib
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

from .faults import Fault, Injector
from .forks import Ended, in_fork

FINISHED = (0, 1, 3)
HEAVY = (
    "torch",
    "jobs.audit.publish",
    "mlflow",
    "tracking.mlflow.audits",
    "tracking.report.report",
    "sklearn.datasets",
)
"""Imported before the first child, so that it is done once; what else a driver imports, the first one tells."""
Deeds = dict[str, Callable[[], object]]


def audit(fleet_file: str, injector: Injector | None = None) -> dict[str, Any]:
    """Run the command to its exit code, with the points that the injector counted."""
    from jobs import cli

    if injector is not None:
        injector.install()
    code = _exit_code(lambda: cli.audit(Path(fleet_file), quiet=True))
    return {"code": code, "counts": injector.counts if injector else {}}


def sync(storage: str) -> dict[str, Any]:
    """Upload what could not be uploaded before."""
    from jobs import cli
    from tracking.bundle.bundle import list_bundles

    folders = list_bundles(storage, "torture")
    return {"code": max(_exit_code(partial(cli.sync, folder)) for folder in folders)}


def _exit_code(command: Callable[[], None]) -> int:
    import typer

    try:
        command()
    except typer.Exit as ended:
        return int(ended.exit_code)
    return 0


@dataclass
class Story:
    """What happened to one audit: the ways its processes ended, and what is wrong after the last."""

    fault: Fault
    ends: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def tell(self, what: str, ended: Ended) -> None:
        """Note how a process ended; only the one with the fault may end otherwise than well."""
        code = ended.value["code"] if ended.value else "crash"
        self.ends.append(f"{what} {signal.Signals(ended.signal).name if ended.signal else code}")
        disturbed = what == "audit" and (ended.signal == signal.SIGKILL or code in (2, 130))
        if not disturbed and code not in FINISHED:
            self.wrong.append(f"{self.ends[-1]} was not expected")


class Bench:
    """A folder with weights, a migrated MLflow store, and the state that an undisturbed audit leaves.

    MLflow is SQLite in each storage; another bench says otherwise by `tracking`, `state` and `enter`.
    """

    seconds = 120.0
    """That a driver may take."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.weights, self.store = home / "weights", home / "store"
        self.reference: dict[str, Any] = {}
        self.counts: dict[str, int] = {}

    def prepare(self) -> None:
        """Train, migrate, audit undisturbed; each in a child, so that this process has run nothing."""
        from .fleet import train_weights

        import_heavy()
        self.weights.mkdir(parents=True)
        self.store.mkdir()
        self._must(lambda: train_weights(self.weights))
        self._must(lambda: _migrate(self.store / "mlflow.db"))
        with self.storage("reference") as (storage, fleet_file):
            done = self._must(lambda: self._inside(lambda: {**audit(fleet_file, Injector()), "modules": _modules()}))
            assert done["code"] in FINISHED, f"exit code {done['code']}: {self._log('reference').read_text()[-3000:]}"
            self.counts = {**done["counts"], "disk": _kib(storage) if may_mount(self.home) else 0}
            self.reference = self._must(lambda: self.state(storage))
            _draw(str(storage))
        for name in done["modules"]:  # what children would import, each for itself
            _import(name)

    def play(self, fault: Fault, name: str) -> Story:
        """An audit with a fault, resumed without, and compared with the undisturbed one."""
        from .verdict import differences

        story = Story(fault)
        with self.storage(name, fault) as (storage, fleet_file):
            deeds = self.deeds(storage)
            ended = self._do(name, lambda: audit(fleet_file, Injector(fault, deeds)))
            story.tell("audit", ended)
            self.repair(storage, fault)
            if not (ended.value and ended.value["code"] in FINISHED):
                story.tell("resume", self._do(name, lambda: audit(fleet_file)))
            if not _uploaded(storage):
                story.tell("sync", self._do(name, lambda: sync(str(storage))))
            result = in_fork(lambda: self.state(storage), str(self._log(name)))
            story.wrong += ["the state cannot be read"] if result.value is None else []
            story.wrong += differences(result.value or {}, self.reference)
        if not story.wrong:
            self._log(name).unlink(missing_ok=True)
        return story

    @contextmanager
    def storage(self, name: str, fault: Fault | None = None) -> Iterator[tuple[Path, str]]:
        """An empty storage with a migrated store, and the fleet file that names it; gone with the block."""
        import yaml

        from .fleet import fleet_of

        storage, fleet_file = self.home / name, self.home / f"{name}.yaml"
        storage.mkdir()
        disk = fault is not None and fault.point == "disk"
        try:
            if fault is not None and disk:
                size = fault.at + _kib(self.store) if fault.kind == "full" else 10 * self.counts["disk"]
                _mount(storage, size)
            shutil.copy(self.store / "mlflow.db", storage / "mlflow.db")
            fleet = {**fleet_of(self.weights, storage, **self.resources()), "tracking": self.tracking(name)}
            fleet_file.write_text(yaml.safe_dump(fleet))
            yield storage, str(fleet_file)
        finally:
            if disk:
                subprocess.run(["umount", str(storage)], check=False)
            shutil.rmtree(storage)
            fleet_file.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing is running."""

    # --- what another bench changes ------------------------------------------------------------------------------

    def tracking(self, name: str) -> dict[str, Any]:
        """The fleet file's tracking."""
        return {}

    def resources(self) -> dict[str, Any]:
        """The fleet file's resources, where they are not those of an audit in process."""
        return {}

    def state(self, storage: Path) -> dict[str, Any]:
        """What is there after an audit."""
        from .verdict import state_of

        return state_of(str(storage))

    def deeds(self, storage: Path) -> Deeds:
        """What a fault does to the world outside its driver."""
        return {"read-only": lambda: subprocess.run(["mount", "-o", "remount,ro", str(storage)], check=True)}

    def repair(self, storage: Path, fault: Fault) -> None:
        """Undo that before the audit is resumed; a full disk is given room."""
        if fault.point == "disk":
            subprocess.run(["mount", "-o", "remount,rw,size=300m", str(storage)], check=True)

    def enter(self) -> None:
        """What a driver does first."""

    # --- children ------------------------------------------------------------------------------------------------

    def _inside(self, function: Callable[[], Any]) -> Any:
        self.enter()
        return function()

    def _do(self, name: str, function: Callable[[], Any]) -> Ended:
        return in_fork(lambda: self._inside(function), str(self._log(name)), self.seconds)

    def _must(self, function: Callable[[], Any]) -> Any:
        log = self._log("reference")
        ended = in_fork(function, str(log), 300)
        assert ended.returned, log.read_text()[-3000:]
        return ended.value

    def _log(self, name: str) -> Path:
        return self.home / f"{name}.log"


def import_heavy() -> None:
    """Import before the first child what all of them need."""
    for name in HEAVY:
        _import(name)


def may_mount(home: Path) -> bool:
    """Whether this process may mount a tmpfs, as root in most containers may."""
    place = home / "mount"
    place.mkdir()
    try:
        _mount(place, 1024)
    except subprocess.CalledProcessError:
        return False
    else:
        subprocess.run(["umount", str(place)], check=True)
        return True
    finally:
        place.rmdir()


def _mount(place: Path, kib: int) -> None:
    command = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "classwise", str(place)]
    subprocess.run(command, check=True, capture_output=True)


def _migrate(database: Path) -> None:
    from mlflow import MlflowClient

    MlflowClient(f"sqlite:///{database}").search_experiments(max_results=1)


def _modules() -> list[str]:
    """What an audit imports on its way."""
    return sorted(name for name, module in sys.modules.items() if getattr(module, "__spec__", None) is not None)


def _draw(storage: str) -> None:
    """Draw the pictures of the audit here, once: children inherit them in the product's own cache."""
    from tracking.bundle.bundle import list_bundles, read_bundle
    from tracking.figures.png import png_bytes
    from tracking.figures.save import figure_files, model_charts

    result = read_bundle(list_bundles(storage, "torture")[0])
    for chart in (*figure_files(result).values(), *(c for m in result.models for c in model_charts(m).values())):
        png_bytes(chart)


def _import(name: str) -> None:
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module(name)


def _uploaded(storage: Path) -> bool:
    from tracking.bundle.bundle import list_bundles
    from tracking.bundle.marker import uploads

    return all(uploads(folder) for folder in list_bundles(str(storage), "torture"))


def _kib(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) // 1024
