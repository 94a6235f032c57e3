"""The one place that knows how robustbench 1.1.1 differs from what is installed beside it.

It imports `pkg_resources`, which new setuptools no longer has, and `autoattack`, which is not on the index: its
successor `pyautoattack` has another signature. Stand-ins are put in `sys.modules` for the import alone. Its
`load_model` downloads straight to the final path and creates folders before it knows whether it can: here a download is
written beside its target and moved over it, one process at a time, and folders it leaves empty are removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from services.errors import Problem, SourceError
from services.registry import did_you_mean

DATASETS = ("cifar10", "cifar100", "imagenet")
THREAT_MODELS = ("Linf", "L2", "corruptions")


def robustbench_module(name: str = "robustbench") -> Any:
    """Import robustbench or one of its submodules.

    Raises:
        SourceError: it is not installed, or does not import beside the installed torch and torchvision.
    """
    try:
        with _stand_ins(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return import_module(name)
    except (ImportError, RuntimeError) as error:
        actual = f"{type(error).__name__}: {error}"
        raise SourceError(Problem("robustbench", "the package robustbench to import", actual)) from error


def load_robustbench(name: str, *, dataset: str, threat_model: str, model_dir: Path, where: str) -> Any:
    """Return a model of the zoo through robustbench's own `load_model`, on CPU and in evaluation mode.

    Weights are read from `MODEL_DIR/DATASET/THREAT_MODEL/NAME.pt`, or downloaded there.

    Raises:
        SourceError: no such model, weights neither there nor to be had, or weights that do not load.
    """
    utils = robustbench_module("robustbench.utils")
    _check_name(utils, name, dataset, threat_model, where)
    expected = weight_files(model_dir, dataset, threat_model, name)
    with _tidy(expected[0].parent), atomic_downloads(utils), contextlib.redirect_stdout(io.StringIO()):
        try:
            return utils.load_model(name, model_dir=model_dir, dataset=dataset, threat_model=threat_model)
        except Exception as error:
            raise SourceError(_problem(error, expected, where)) from error


def weight_files(model_dir: Path, dataset: str, threat_model: str, name: str) -> list[Path]:
    """The files of a model in robustbench's layout: `NAME.pt`, or `NAME.pt_m0.pt`, ... of an ensemble when there."""
    single = model_dir / dataset / threat_model / f"{name}.pt"
    parts = sorted(single.parent.glob(f"{single.name}_m*.pt"))
    return parts if parts and not single.is_file() else [single]


def adapted_autoattack(base: type[Any]) -> type[Any]:
    """A class with the `autoattack` package's signature on top of `pyautoattack.AutoAttack`."""

    class AutoAttack(base):  # type: ignore[misc]
        def __init__(
            self,
            model: Any,
            norm: str = "Linf",
            eps: float = 0.3,
            seed: int | None = None,
            verbose: bool = True,
            attacks_to_run: list[str] | None = None,
            version: str = "standard",
            is_tf_model: bool = False,
            device: Any = "cpu",
            log_path: str | None = None,
        ) -> None:
            """Take the old arguments; messages go to the `auto-attack` logger instead of `log_path`."""
            if is_tf_model:
                raise SourceError(Problem("AutoAttack", "a PyTorch model", "is_tf_model=True"))
            attacks = attacks_to_run or None
            super().__init__(model, attacks=attacks, device=device, eps=eps, norm=norm, seed=seed, version=version)
            self.verbose = verbose

        def run_standard_evaluation(
            self, x_orig: Any, y_orig: Any, bs: int = 250, return_labels: bool = False, state_path: Path | None = None
        ) -> Any:
            """Return adversarial images, and their labels if asked for."""
            result = super().run_standard_evaluation(x_orig, y_orig, batch_size=bs, state_path=state_path)
            return result[:2] if return_labels else result[0]

    return AutoAttack


@contextlib.contextmanager
def _stand_ins() -> Iterator[None]:
    """Put stand-ins for absent packages in `sys.modules`, and take them out again."""
    added = [module for name, make in _STAND_INS.items() if find_spec_or_loaded(name) is None for module in make()]
    sys.modules.update({module.__name__: module for module in added})
    try:
        yield
    finally:
        for module in added:
            sys.modules.pop(module.__name__, None)


def find_spec_or_loaded(name: str) -> object | None:
    """The module if it is loaded, or its spec if it could be; None when it is absent."""
    return sys.modules.get(name) or find_spec(name)


def _pkg_resources() -> list[ModuleType]:
    module = ModuleType("pkg_resources")

    def resource_filename(package: str, resource: str) -> str:
        origin = sys.modules[package].__file__ or ""
        return str(Path(origin).parent / resource)

    module.resource_filename = resource_filename  # type: ignore[attr-defined]
    return [module]


def _autoattack() -> list[ModuleType]:
    package, state = ModuleType("autoattack"), ModuleType("autoattack.state")
    package.AutoAttack = adapted_autoattack(import_module("pyautoattack").AutoAttack)  # type: ignore[attr-defined]
    state.EvaluationState = import_module("pyautoattack.state").EvaluationState  # type: ignore[attr-defined]
    return [package, state]


_STAND_INS: dict[str, Callable[[], list[ModuleType]]] = {"pkg_resources": _pkg_resources, "autoattack": _autoattack}


def _check_name(utils: Any, name: str, dataset: str, threat_model: str, where: str) -> None:
    zoo = utils.all_models[utils.BenchmarkDataset(dataset)]
    names = list(zoo.get(utils.ThreatModel(threat_model), {}))
    in_timm = f"{name.lower().replace('-', '_')}_{dataset}_{threat_model.lower()}"
    if name not in names and not utils.timm.is_model(in_timm):
        elsewhere = [f"{other.value}" for other, models in zoo.items() if name in models]
        near = did_you_mean(name, names)
        short = near if near.startswith("did") else f"it has {len(names)} models"
        remedy = f"use threat_model={elsewhere[0]}" if elsewhere else short
        raise SourceError(Problem(where, f"a model of robustbench's {dataset}/{threat_model}", repr(name), remedy))


@contextlib.contextmanager
def _tidy(folder: Path) -> Iterator[None]:
    """Remove the folders that did not exist before and are empty afterwards."""
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        yield
    finally:
        for path in created:
            with contextlib.suppress(OSError):
                path.rmdir()


@contextlib.contextmanager
def atomic_downloads(utils: Any) -> Iterator[None]:
    """Let robustbench download to a file of its own, one process at a time, moved over the target when complete."""
    original = utils.download_gdrive_new

    def download(identity: str, target: str | Path) -> None:
        path = Path(target)
        with _locked(path.with_name(f".{path.name}.lock")):
            if not path.is_file():
                _download(original, identity, path)

    utils.download_gdrive_new = download
    try:
        yield
    finally:
        utils.download_gdrive_new = original


def _download(original: Callable[[str, str], None], identity: str, path: Path) -> None:
    partial = path.with_name(f".{path.name}.part")
    try:
        original(identity, str(partial))
        partial.replace(path)
    finally:
        for left in path.parent.glob(f".{path.name}.part*"):
            left.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file, which is removed afterwards; it is let go of when the process dies.

    A process that waited for a file that was removed meanwhile holds a lock on nothing, and begins again.
    """
    while True:
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not _still(path, file):
                continue
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def _still(path: Path, file: IO[str]) -> bool:
    """Whether `path` is the file that was opened."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _problem(error: Exception, expected: list[Path], where: str) -> Problem:
    absent = next((path for path in expected if not path.is_file()), None)
    if absent is not None:
        actual = f"no file, and the download failed ({type(error).__name__})"
        return Problem(where, f"weights at {absent}", actual, "fetch them where there is a network and put them there")
    from services.loading.models.weights import load_problem

    return load_problem(error, where)
