"""Shared fixtures: where the real data lies, and what a CPU-only test environment needs."""

from __future__ import annotations

import gc
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from hypothesis import settings

from services.records import (
    AuditResult,
    CalibrationResult,
    Estimate,
    GapResult,
    GroupScore,
    ModelResult,
    ModelSpec,
    Outcome,
    SampleFacts,
    SeriesResult,
    ThreatModel,
    digest_of,
)
from tests.typed import series_of

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("DO_NOT_TRACK", "true")
# No test reaches beyond this machine: S3 without an endpoint of its own meets a closed port.
os.environ.setdefault("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")

ROOT = Path(__file__).resolve().parents[1]

# The work of tests is small, and workers stand side by side: a library's threads would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# No deadline: a busy machine is not a fault. In CI the same examples every time; at a desk, new ones.
# `make test-all` is thorough. A test's own `max_examples` stands in every profile.
settings.register_profile("desk", deadline=None, max_examples=30)
settings.register_profile("ci", deadline=None, max_examples=30, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=200)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "desk"))

FIXTURES = {
    "ray": {"ray_head", "stack", "cluster"},
    "server": {"ray_head", "stack", "backends", "postgres", "server", "served"},
    "browser": {"browser"},
    "fleet": {"once", "migrated_store"},
}
"""Marks, and the fixtures that give them to the tests that use one."""
MODULES = {"ray": "ray", "subprocess": "process"}
"""What a file of tests imports, and the mark of all its tests."""
FOLDERS = {
    "fleet": (
        "deploy",
        "hostile",
        "jobs/audit",
        "jobs/notebook",
        "jobs/training",
        "torture",
        "tracking/mlflow",
        "upgrade",
    ),
    "outer": (
        "deploy/test_dashboards",
        "deploy/test_monitoring",
        "deploy/test_stack",
        "hostile",
        "jobs/api/test_backlog",
        "jobs/api/test_hostile_links",
        "jobs/api/test_liveness",
        "jobs/api/test_mlflow_hook",
        "jobs/api/test_operations",
        "jobs/api/test_pools",
        "jobs/api/test_served",
        "jobs/api/test_shares",
        "jobs/audit/judging/test_broken_defences",
        "jobs/audit/test_ray_operations",
        "jobs/dashboard/test_browser",
        "jobs/notebook/test_notebook",
        "jobs/submission/test_ray_jobs",
        "jobs/test_own_modules",
        "jobs/test_stops",
        "services/running",
        "torture",
        "tracking/mlflow/test_kill",
        "tracking/mlflow/test_server",
    ),
}
"""Marks of all tests below a folder, or of a file; `outer` is given in no other way."""


# While modules are imported every collection is in vain, and takes as long as half of the collecting of tests.
gc.disable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files unread whose folder alone has `-m` deselect them: importing all takes a worker 10 to 20 s."""
    if not collection_path.name.startswith("test_"):
        return None
    return _deselected(str(config.option.markexpr), frozenset(_folder_marks(collection_path))) or None


@cache
def _deselected(expression: str, marks: frozenset[str]) -> bool:
    """True if `expression` takes no test that has `marks` by its folder, whatever other marks it has."""
    names = set(re.findall(r"\w+", expression)) - {"and", "or", "not"}
    known = {name: name in marks for name in names & {*marks, "outer"}}
    unknown = sorted(names - known.keys())
    return bool(names) and not any(
        eval(expression, {"__builtins__": {}}, {**known, **dict(zip(unknown, given, strict=True))})
        for given in product((False, True), repeat=len(unknown))
    )


def pytest_collection_finish() -> None:
    """What was imported stays: collections leave it out, which is most of what they would look at."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by what they use, for `make check`; the files that take longest begin first, for `make test`."""
    for item in items:
        for mark in _marks(item):
            item.add_marker(mark)
    marked = {item.path: {mark.name for mark in item.iter_markers()} for item in items}
    items.sort(key=lambda item: -len(marked[item.path] & {"ray", "server", "browser", "process", "fleet"}))


def _marks(item: pytest.Item) -> Iterator[str]:
    used, module = set(getattr(item, "fixturenames", ())), getattr(item, "module", None)
    yield from (mark for mark, fixtures in FIXTURES.items() if used & fixtures)
    yield from (mark for name, mark in MODULES.items() if hasattr(module, name))
    yield from _folder_marks(item.path)


def _folder_marks(path: Path) -> set[str]:
    place = path.relative_to(ROOT / "tests").as_posix()
    return {mark for mark, folders in FOLDERS.items() if place.startswith(folders)}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """An audit in this process sets torch's threads for its machine; the next test begins with one again."""
    yield
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)
    if torch is not None and not torch.is_grad_enabled():
        torch.set_grad_enabled(True)
        pytest.fail("gradients were left off, for every test after this one")


def _define_missing_torchvision_operators() -> None:
    """Beside a CPU wheel of torch, torchvision's compiled operators may be missing; two schemas let it import."""
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for name, schema in {
        "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    }.items():
        if not hasattr(torch.ops.torchvision, name):
            library.define(schema)
    globals()["_torchvision_library"] = library


@pytest.fixture(scope="session")
def torchvision_operators() -> None:
    """Ask for this before importing timm, torchvision or robustbench in a test."""
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in [name for name in sys.modules if name.startswith("torchvision")]:
            del sys.modules[name]
        _define_missing_torchvision_operators()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real images, networks and published results; the test is skipped where it is absent."""
    folder = Path(os.environ.get("CLASSWISE_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"real data not found at {folder}; set CLASSWISE_SHARED_DATA")
    return folder


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], None]], Path]:
    """A function of (name, make) to a folder that ``make`` fills once for all workers of this run of pytest."""
    own = tmp_path_factory.getbasetemp()
    root = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def made(name: str, make: Callable[[Path], None]) -> Path:
        folder, part = root / f"once-{name}", root / f"once-{name}.part"
        with FileLock(root / f"once-{name}.lock"):
            if not folder.exists():
                shutil.rmtree(part, ignore_errors=True)
                part.mkdir()
                make(part)
                part.rename(folder)
        return folder

    return made


def _migrate(folder: Path) -> None:
    from mlflow import MlflowClient

    MlflowClient(f"sqlite:///{folder}/mlflow.db").search_experiments(max_results=1)


@pytest.fixture(scope="session")
def migrated_store(once: Callable[[str, Callable[[Path], None]], Path]) -> Callable[[Path], str]:
    """A function of a folder to the URI of a SQLite store in it; the schema is made once and copied."""

    def copy(folder: Path) -> str:
        shutil.copy(once("mlflow", _migrate) / "mlflow.db", folder / "mlflow.db")
        return f"sqlite:///{folder}/mlflow.db"

    return copy


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Headless Chromium, and its console in the log "browser"; the test is skipped where it is not installed."""
    if shutil.which("chromedriver") is None:
        pytest.skip("Chromium's driver (chromedriver) is not installed")
    from benchmarks.drills import page

    driver = page.browser()
    yield driver
    driver.quit()


def _board_series(key: str, value: float, half: float) -> SeriesResult:
    """A series over three classes a tenth apart at most, each with an interval of that half-width."""
    names = ("ant", "bee", "cat")
    step = min(0.1, value / 2)
    means = (value + step, value, value - step)
    scores = [Estimate(mean, mean - half, mean + half) for mean in means]
    groups = tuple(GroupScore(index, names[index], 50, 50, score) for index, score in enumerate(scores))
    gini = 4 * step / 9 / value if value else None
    return SeriesResult(
        series=series_of(key, key, 2.0, binary=key.startswith(("clean", "pgd"))),
        grouping="class",
        metrics={
            "aggregate": Estimate(value, value - half / 2, value + half / 2),
            "rdi": Estimate(2 * step, step, 3 * step),
            "nrgc": Estimate(gini, gini * 0.5, gini * 1.5) if gini else Estimate(None, reason="all scores are 0"),
            "wcr": scores[2],
            "fp": Estimate(value - step),
        },
        worst=("cat",),
        not_separated=(),
        missing=(),
        groups=groups,
        method="exact (fixture)",
        delta=0.05,
    )


@pytest.fixture(scope="session")
def board_audit() -> Callable[..., AuditResult]:
    """A function to an audit for leaderboards: models as ``{name: (tags, {series: value})}``; gaps by model, series."""

    def make(
        audit_id: str,
        models: dict[str, tuple[dict[str, str], dict[str, float]]],
        *,
        fleet: str = "robust",
        epsilon: float | None = 8 / 255,
        digest: str = "5a" * 16,
        half: float = 0.04,
        measures: Sequence[Any] = ("clean", {"name": "pgd", "steps": 20}),
        gaps: Mapping[str, Mapping[str, Estimate]] | None = None,
        seconds: Mapping[str, float] | None = None,
    ) -> AuditResult:
        results = []
        threat = ThreatModel("Linf", epsilon) if epsilon else None
        for name, (tags, series) in models.items():
            spec = ModelSpec(name, f"factory:x:{name}", threat_model=threat, tags=tuple(sorted(tags.items())))
            made = tuple(_board_series(key, value, half) for key, value in series.items())
            errors = tuple(
                GapResult(lens, gap, Estimate(0.9), Estimate(0.8), 100, 150, 0.05)
                for lens, gap in (gaps or {}).get(name, {}).items()
            )
            facts_of_model = {"seconds_per_epoch": seconds[name]} if seconds and name in seconds else {}
            result = ModelResult(spec, digest_of(name), Outcome.PASS, series=made, seconds=1.0)
            results.append(replace(result, generalisation=errors, facts=facts_of_model))
        facts = SampleFacts("npz:test.npz", digest, 150, (1, 8, 8), ("ant", "bee", "cat"), (50, 50, 50))
        config = {"fleet": fleet, "measures": list(measures)}
        policy = CalibrationResult("fixed", 1.0)
        times = ("2026-11-28T00:00:00+00:00", "2026-11-28T00:01:00+00:00")
        return AuditResult(
            audit_id, fleet, *times, Outcome.PASS, facts, tuple(results), policy, config, {"classwise": "0"}
        )

    return make


@pytest.fixture(scope="session")
def log_board(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[str]]:
    """A function that logs an audit without pictures; returns the run ids of its models."""

    def log(audit: AuditResult, uri: str) -> list[str]:
        from tracking.mlflow import artifacts
        from tracking.mlflow.audits import log_audit

        folder = str(tmp_path_factory.mktemp("bundle"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(artifacts, "child_files", lambda *arguments: None)
            patch.setattr(artifacts, "parent_files", lambda *arguments: None)
            runs = log_audit(audit, folder, tracking_uri=uri, experiment=audit.fleet, registry_models=False)
        return list(runs.child_run_ids)

    return log
