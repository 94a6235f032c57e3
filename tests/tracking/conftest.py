"""Audits to track: the published GF-Score results, synthetic ones of any size, and one of hostile names."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from services.records import (
    AuditResult,
    CalibrationResult,
    Estimate,
    GateResult,
    GroupScore,
    ModelResult,
    ModelSpec,
    Outcome,
    RefutedResult,
    SampleFacts,
    Series,
    SeriesResult,
    ThreatModel,
    Threshold,
    digest_of,
)
from tests.typed import series_of
from tracking.leaderboard.rows import Board, Entry, Metric, Standing
from tracking.leaderboard.spelled import number
from tracking.mlflow import artifacts
from tracking.mlflow.audits import LoggedRuns, log_audit

BOUND = math.sqrt(math.pi / 2)
GREAT = series_of("great", "GREAT score (sigmoid, T=1)", BOUND, unit="L2 distance")
CLEAN = series_of("clean", "clean accuracy", 1.0, binary=True)


def profile(series: Series, names: Sequence[str], mean: Any, std: Any, count: Any) -> SeriesResult:
    """A series' result by GF 3.2 and 3.3, with normal intervals (enough for pictures)."""
    mean, std, count = (np.asarray(values, dtype=float) for values in (mean, std, count))
    half = 2.81 * std / np.sqrt(count)
    groups = tuple(
        GroupScore(
            index,
            name,
            int(count[index]),
            int(count[index]),
            Estimate(mean[index], max(0.0, mean[index] - half[index]), min(series.bound, mean[index] + half[index])),
            {"accuracy": 0.9},
        )
        for index, name in enumerate(names)
    )
    worst = int(np.argmin(mean))
    rdi = float(np.ptp(mean))
    nrgc = float(np.abs(mean[:, None] - mean[None, :]).sum() / (2 * len(mean) ** 2 * mean.mean()))
    low = float(np.max([0.0, np.min(mean - 0.6 * half)]))
    close = tuple(group.name for group in groups if group.index != worst and group.score.low < groups[worst].score.high)
    return SeriesResult(
        series=series,
        grouping="class",
        metrics={
            "aggregate": Estimate(float(np.average(mean, weights=count)), float(mean.mean() - half.mean() / 3)),
            "rdi": Estimate(rdi, max(0.0, rdi - 2 * half.max()), rdi + 2 * half.max()),
            "nrgc": Estimate(nrgc, nrgc * 0.85, nrgc * 1.15),
            "wcr": Estimate(float(mean.min()), low),
            "fp": Estimate(float(mean.mean() - 0.5 * rdi)),
        },
        worst=(names[worst],),
        not_separated=close,
        missing=(),
        groups=groups,
        method="normal (fixture)",
        delta=0.05,
        extras={"saturated": 0.02},
    )


def model_result(name: str, series: Sequence[SeriesResult], **changes: Any) -> ModelResult:
    """A model judged by the gate ``great wcr >= 0.3``."""
    wcr = series[0].wcr
    low = wcr.low or 0.0
    outcome = Outcome.PASS if low >= 0.3 else Outcome.FAIL if (wcr.value or 0.0) < 0.28 else Outcome.UNDECIDED
    reason = f"lower bound {low:.3f} against 0.3"
    spec = ModelSpec(name, f"robustbench:{name}?dataset=cifar10&threat_model=L2", threat_model=ThreatModel("L2", 0.5))
    gate = GateResult("great wcr >= 0.3", outcome, wcr, reason, Threshold("great", "wcr", "class", ">=", 0.3))
    made = ModelResult(spec, digest_of(name), outcome, (reason,), (gate,), tuple(series))
    return replace(made, forwards=10_000, seconds=12.5, **changes)


def audit_of(models: Sequence[ModelResult], classes: Sequence[str], **changes: Any) -> AuditResult:
    """An audit of these models."""
    grid = tuple(round(0.1 + 0.05 * step, 3) for step in range(59))
    curve = tuple(0.871 - 0.08 * max(0.0, 2.7 - T) ** 1.5 for T in grid)
    notes = (
        "The best temperature reaches the edge of the grid: the grid chose it, not the objective.",
        "great: higher scores go with higher RDI (Spearman +0.90) but with lower NRGC (-0.81).",
    )
    calibration = CalibrationResult(
        "class-accuracy", 2.7, 0.871, True, (2.7, 3.0), 0.5196, 0.6618, 0.8627, grid, curve, notes=notes[:1]
    )
    order = ("error", "fail", "undecided", "pass")
    outcome = min((model.outcome for model in models), key=lambda o: order.index(o.value), default=Outcome.PASS)
    counts = tuple(group.n for group in models[0].series[0].groups) if models and models[0].series else ()
    audit = AuditResult(
        audit_id="20261128T001500Z-0a1b2c3d",
        fleet="cifar10 robust models",
        started="2026-11-28T00:15:00+00:00",
        finished="2026-11-28T00:21:13+00:00",
        outcome=outcome,
        samples=SampleFacts("npz:cifar10/test.npz", "9f" * 16, sum(counts), (3, 32, 32), tuple(classes), counts),
        models=tuple(models),
        calibration=calibration,
        config={"fleet": "cifar10", "measures": [{"name": "great"}], "seed": 0, "gates": ["great wcr >= 0.3"]},
        versions={"classwise": "0.1.0", "python": "3.11"},
        notes=notes,
    )
    return replace(audit, **changes)


@pytest.fixture(scope="session")
def gf_audit(shared_data: Path) -> AuditResult:
    """17 models x 10 classes: published means, deviations and accuracies of GF-Score on CIFAR-10."""
    oracle = json.loads((shared_data / "oracles" / "gf_cifar10.json").read_text())
    models = []
    for name, entry in oracle["models"].items():
        great = profile(GREAT, oracle["classes"], entry["T1"]["mean"], entry["T1"]["std"], entry["count"])
        accuracy = np.array(entry["clean_accuracy"])
        clean = profile(CLEAN, oracle["classes"], accuracy, np.sqrt(accuracy * (1 - accuracy)), entry["count"])
        models.append(model_result(name, (great, clean)))
    return audit_of(models, oracle["classes"])


@pytest.fixture(scope="session")
def make_audit() -> Callable[..., AuditResult]:
    """A function of (models, classes) to a synthetic audit of that size."""

    def make(
        models: int, classes: int, *, names: Sequence[str] = (), series: Sequence[Series] = (GREAT,)
    ) -> AuditResult:
        draw = np.random.default_rng(7)
        labels = list(names) or [f"n{index:08d} class number {index}" for index in range(classes)]
        results = []
        for index in range(models):
            level = draw.uniform(0.1, 0.6)
            made = []
            for kind in series:
                mean = np.clip(draw.normal(level, 0.1, classes), 0.01, kind.bound)
                made.append(profile(kind, labels, mean, np.full(classes, 0.2), np.full(classes, 50)))
            results.append(model_result(f"model_{index:03d}", made))
        return audit_of(results, labels)

    return make


@pytest.fixture(scope="session")
def attacked_audit(make_audit: Callable[..., AuditResult]) -> AuditResult:
    """3 models x 6 classes whose GREAT claims were attacked: a quarter refuted, the more the higher the class."""
    minimal = series_of("minimal/l2", "smallest adversarial perturbation", 2.0, unit="L2 distance")
    audit = make_audit(3, 6, series=(GREAT, minimal))
    return replace(audit, models=tuple(replace(model, refuted=(_refuted(model),)) for model in audit.models))


def _refuted(model: ModelResult) -> RefutedResult:
    """Ten samples refuted in class 0, eleven in class 1, and so on, of the fifty in each."""
    groups = model.series[0].groups
    counts = [10 + group.index for group in groups]
    shares = tuple(
        replace(group, score=Estimate(count / group.n, 0.05, 0.6)) for group, count in zip(groups, counts, strict=True)
    )
    counted = sum(group.n for group in groups)
    overall = Estimate(sum(counts) / counted, 0.2, 0.31)
    return RefutedResult("great", "class", overall, shares, sum(counts), counted, 0, 0.05)


@pytest.fixture(scope="session")
def small_audit(make_audit: Callable[..., AuditResult]) -> AuditResult:
    """3 models x 6 classes, two series."""
    return make_audit(3, 6, series=(GREAT, CLEAN))


HOSTILE = (
    "",
    "cat & dog, 'pet' (small)",
    "line\nbreak",
    "‮right to left‬",
    "<script>alert(1)</script>",
    '"quoted" \\ </script>',
    "a//b",
    "../../etc/passwd",
    "ключ",
    "猫",
    "x" * 10_000,
    "$\\frac{1}{2}$ 100 %",
    "cat?dog",
    "cat!dog",
    "nul\x00byte",
)


@pytest.fixture(scope="session")
def hostile_names() -> tuple[str, ...]:
    """Names that break metric keys, file names, HTML, JSON in scripts, mathematics in matplotlib, or PostgreSQL."""
    return HOSTILE


@pytest.fixture(scope="session")
def hostile_audit(make_audit: Callable[..., AuditResult]) -> AuditResult:
    """Hostile class, model and fleet names."""
    audit = make_audit(2, len(HOSTILE), names=HOSTILE)
    renamed = [
        replace(model, spec=replace(model.spec, name=name))
        for model, name in zip(audit.models, ("<img src=x onerror=alert(1)>", "y" * 10_000), strict=True)
    ]
    return replace(audit, models=tuple(renamed), fleet="fleet </title><script>alert(2)</script>")


@pytest.fixture(scope="session")
def make_board() -> Callable[..., Board]:
    """A function to a board of so many rows and metrics; the last row of three or more lacks the second metric."""
    keys = ["clean", "pgd20/linf-0.03137", "pr/uniform-0.08", "probacc/uniform-0.03137"]
    known = [*(f"{key}/aggregate" for key in keys), "ge/pgd20/linf-0.03137", "ge/pr/uniform-0.08"]
    known += ["train/seconds_per_epoch"]

    def make(rows: int, *, metrics: int = 2, names: Sequence[str] = (), dataset: str = "mnist", seed: int = 3) -> Board:
        draw = np.random.default_rng(seed)
        named = ("acc", "ar", "pr", "probacc", "ge_ar", "ge_pr", "time")[:metrics]
        entries = []
        for index in range(rows):
            numbers = {}
            for key in known[:metrics]:
                value = float(draw.uniform(0.1, 0.9))
                limits = () if key.startswith("train/") else (value - 0.05, value + 0.05)
                numbers[key] = Estimate(value, *limits)
            if rows > 2 and index == rows - 1 and metrics > 1:
                del numbers[known[1]]
            numbers |= {"pgd20/linf-0.03137/wcr": Estimate(0.1, 0.05), "pgd20/linf-0.03137/nrgc": Estimate(0.2)}
            facts = (f"arch{index % 3}", f"method {index % 4}", "Linf 0.0313725")
            name = names[index] if names else f"model {index:03d}"
            entries.append(Entry(name, dataset, *facts, numbers, samples="npz:x", models=(name,)))
        columns = tuple(Metric(name, number(key), name, 1.0) for name, key in zip(named, known, strict=False))
        standings = tuple(
            Standing(None, Estimate(None, reason="ar not measured"), None, None)
            if len(entry.numbers) < metrics + 2
            else Standing(place + 1, Estimate(0.9 - place / 100, 0.5, 0.95), place % 2 == 0, place < 2)
            for place, entry in enumerate(entries)
        )
        criteria = tuple(known[: min(metrics, 3)])
        lens = "pgd20/linf-0.03137"
        return Board(
            dataset, "Linf 0.0313725", "npz:x", 150, columns, (), criteria, lens, tuple(entries), standings, ("a note",)
        )

    return make


@pytest.fixture(scope="module")
def store(migrated_store: Callable[[Path], str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """URI of an empty MLflow store on SQLite."""
    return migrated_store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def client(store: str) -> Any:
    """MLflow's client of that store."""
    from mlflow import MlflowClient

    return MlflowClient(store)


@pytest.fixture(scope="module")
def audit(make_audit: Callable[..., AuditResult]) -> AuditResult:
    """2 models x 4 classes."""
    return make_audit(2, 4)


@pytest.fixture
def no_artifacts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of states and faults need no pictures."""
    monkeypatch.setattr(artifacts, "child_files", lambda *arguments: None)
    monkeypatch.setattr(artifacts, "parent_files", lambda *arguments: None)


def log(audit: AuditResult, folder: str, store: str, **options: Any) -> LoggedRuns:
    """Log an audit to the store as `classwise audit` does."""
    fields = {"experiment": audit.fleet, "registry_models": True, **options}
    return log_audit(audit, folder, tracking_uri=store, **fields)
