"""A storage of real bundles: a fleet with three good audits and a broken one, and one of hostile names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from jobs.api.local_dashboard import local_app
from jobs.audit.judging.confusions import Confused, cells, confusion_results
from jobs.dashboard.places import places_of
from jobs.submission.heartbeat import ProgressReporter
from jobs.submission.submission import Ending, write_ending
from services.numerics.confusion_matrix import ConfusionMatrix
from services.records import (
    AuditResult,
    FairnessResult,
    GateResult,
    ModelSpec,
    Outcome,
    Receipt,
    SampleSpec,
    ShardTask,
    SliceResult,
)
from services.records.estimates import Estimate
from services.storage.pictures import png_of
from tests.typed import series_of
from tracking.bundle.bundle import folder_of, read_bundle, write_bundle
from tracking.bundle.reasons.confusions import write_confusions
from tracking.bundle.reasons.gallery import PICTURES, write_gallery
from tracking.bundle.reasons.hardest import write_hardest
from tracking.bundle.reasons.slices import write_slices
from tracking.mlflow.process import this_driver

TOKEN = "t" * 40
FLEET = "robust"
AUDITS = tuple(f"20261128T0{hour}0000Z-0000000{hour}" for hour in (1, 2, 3))
BROKEN = "20261128T040000Z-00000004"
HOSTILE = "<img src=x onerror='window.owned=1'>"
ID = "robust-0123456789abcdef"


@pytest.fixture
def base(tmp_path: Path, board_audit: Callable[..., AuditResult]) -> Path:
    """The storage."""
    storage = tmp_path / "runs"
    for place, audit_id in enumerate(AUDITS):
        write(storage, grown(board_audit, audit_id, place))
    damaged = Path(folder_of(str(storage), FLEET, BROKEN))
    damaged.mkdir(parents=True)
    (damaged / "bundle.json").write_text('{"schema_version": 99}')
    write(storage, hostile(board_audit))
    return storage


def grown(make: Callable[..., AuditResult], audit_id: str, place: int) -> AuditResult:
    """Two models that get a little worse; the second fails a gate at last. GREAT and minimal are in L2 distance."""
    numbers = {"clean": 0.9 - 0.1 * place, "great": 0.5, "minimal/l2": 0.4}
    audit = make(audit_id, {"first": ({}, {**numbers, "clean": 0.9}), "second": ({}, numbers)}, fleet=FLEET)
    hour = f"2026-11-28T0{place + 1}:00:00+00:00"
    models = [replace(model, series=tuple(_in_l2(series) for series in model.series)) for model in audit.models]
    if place == 2:
        gate = GateResult("clean wcr >= 0.7", Outcome.FAIL, Estimate(0.6, 0.56, 0.64), "upper bound 0.64 is below 0.7")
        worst = {"eodd": Estimate(0.25, 0.1, 0.4)}
        fairness = FairnessResult("sex", ("f", "m"), (70, 80), worst, {"eodd": "cat"}, (), 3, 0.05)
        models[1] = replace(
            models[1],
            fairness=(fairness,),
            outcome=Outcome.FAIL,
            gates=(gate,),
            reasons=(f"{gate.text}: {gate.reason}",),
            digest="other",
        )
    outcome = Outcome.FAIL if place == 2 else Outcome.PASS
    return replace(audit, models=tuple(models), started=hour, finished=hour, outcome=outcome)


def _in_l2(series: Any) -> Any:
    unit = "" if series.series.key == "clean" else "L2 distance"
    return replace(series, series=replace(series.series, unit=unit))


def hostile(make: Callable[..., AuditResult]) -> AuditResult:
    """Markup wherever a name may stand."""
    audit = make(AUDITS[0], {"plain": ({}, {"clean": 0.9}), "other": ({}, {"clean": 0.8})}, fleet=HOSTILE)
    models = []
    for model in audit.models:
        series = model.series[0]
        groups = tuple(replace(group, name=f"{HOSTILE} {group.index}") for group in series.groups)
        changed = replace(series, groups=groups, worst=(HOSTILE,), series=replace(series.series, title=HOSTILE))
        spec = ModelSpec(f"{HOSTILE} {model.spec.name}", "factory:x:y")
        gate = GateResult(HOSTILE, Outcome.PASS, Estimate(0.5), HOSTILE)
        models.append(replace(model, spec=spec, series=(changed,), reasons=(HOSTILE,), notes=(HOSTILE,), gates=(gate,)))
    return replace(audit, models=tuple(models), notes=(HOSTILE,))


def write(storage: Path, audit: AuditResult) -> Path:
    """Write a bundle where its fleet's bundles lie."""
    folder = folder_of(str(storage), audit.fleet, audit.audit_id)
    write_bundle(audit, folder)
    return Path(folder)


def keep_why(base: Path, audit_id: str) -> None:
    """Confusions, two pictures, a slice and the hardest samples, in an audit's bundle as an audit writes them."""
    folder = folder_of(str(base), FLEET, audit_id)
    audit = read_bundle(folder)
    matrix = ConfusionMatrix(3, *(np.array(column) for column in ([0, 0, 1, 2], [0, 1, 1, 2], [30, 20, 50, 50])))
    part = Confused(series_of("clean", "clean accuracy"), matrix, 0.05)
    dark = SliceResult(
        "clean", "clean accuracy", "brightness", None, 0.3, 40, 20, Estimate(0.5, 0.3, 0.7), 0.8, 1e-3, 9, 9, (4,)
    )
    first = replace(audit.models[0], confusions=confusion_results([part]), slices=(dark,))
    write_bundle(replace(audit, models=(first, *audit.models[1:])), folder)
    write_confusions(folder, 0, first.spec, cells([part], audit.samples.classes))
    numbers = {name: np.array([0.5, 0.25]) for name in ("margin_before", "margin_after", "l2", "linf", "gain")}
    codes = {"id": [4, 9], "label": [0, 0], "before": [0, 0], "after": [1, 2], "rank": [1, 2], "of": [20, 20]}
    pictures = [png_of(np.full((1, 4, 4), shade)) for shade in (0.1, 0.9)]
    shown = {name: np.array(pictures, dtype=object) for name in PICTURES}
    columns = {name: np.array(values) for name, values in codes.items()}
    write_gallery(folder, 0, first.spec, {**columns, **numbers, **shown, "rounded": np.array([True, False])})
    picture = np.array(pictures[:1], dtype=object)
    write_slices(folder, 0, first.spec, {"slice": np.array([0]), "id": np.array([4]), "picture": picture})
    counts = {"id": 4, "label": 0, "models": 2, "wrong": 2, "votes": 1, "consensus": 1, "broken": 0, "nearest": np.nan}
    texts = {"label_name": HOSTILE, "consensus_name": "bee"}
    table = {
        name: np.array([value], dtype=object if name in texts else None) for name, value in (counts | texts).items()
    }
    write_hardest(folder, {**table, "picture": picture})


class Clock:
    """Seconds that go by when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Audit:
    """An audit that runs, as `jobs.submission.local_jobs` sees one: this very process is its driver."""

    def __init__(self, base: Path, inner: Any) -> None:
        self.folder = base / "submissions" / ID
        self.folder.mkdir(parents=True)
        self.clock = Clock()
        metadata = {"classwise.attempt": "one", "classwise.fleet": FLEET, "classwise.folder": str(self.folder)}
        record = {"driver": this_driver().to_tag(), "metadata": metadata, "started": "2026-11-28T05:00:00+00:00"}
        (self.folder / "fleet.json").write_text("{}")
        (self.folder / "process.json").write_text(json.dumps(record))
        write_ending(str(self.folder), Ending("one", "running"))
        self.telling = ProgressReporter(inner, str(self.folder), "one", self.clock)

    def shard(self) -> None:
        """Two seconds go by, and a shard of 100 images is done."""
        self.clock.now += 2.0
        spec = ModelSpec("first", "factory:x:y")
        task = ShardTask("measure", spec, SampleSpec("npz:x"), 0, 100, 0, 10)
        self.telling.done(Receipt(task, 100, 100, 2.0))

    def end(self) -> None:
        """The job server forgets it."""
        (self.folder / "process.json").unlink()


@pytest.fixture
def running(base: Path) -> Audit:
    """An audit that has begun its measures."""
    from jobs.terminal.progress import Quiet

    audit = Audit(base, Quiet())
    audit.telling.stage("measures", 4, 2)
    return audit


@pytest.fixture
def caller(base: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """A caller with the token of the dashboard alone."""
    for name in ("MLFLOW_TRACKING_URI", "CLASSWISE_SCHEDULES"):
        monkeypatch.delenv(name, raising=False)
    app = local_app(places_of(str(base), None, f"sqlite:///{base}/schedules.db"), TOKEN)
    headers = {"authorization": f"Bearer {TOKEN}"}
    with TestClient(app, headers=headers, raise_server_exceptions=False) as client:
        yield client


def root_of(caller: TestClient, fleet: str = FLEET) -> dict[str, str]:
    """Ids of a fleet's audits by audit id."""
    result = caller.get(f"/v1/fleets/{fleet}/audits").json()["audits"]
    return {audit["audit_id"] or "broken": audit["id"] for audit in result}
