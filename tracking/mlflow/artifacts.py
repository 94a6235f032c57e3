"""The files a run gets, in a local folder: the same paths in every child run, so that MLflow can compare them."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from services.records import AuditResult
from services.storage import files
from tracking.bundle import group_table
from tracking.bundle.comparison import COMPARISON
from tracking.bundle.fairness import FILE, fill_attributes, has_attributes
from tracking.bundle.reasons.confusions import read_confusions
from tracking.figures.attributes import traversal_charts
from tracking.figures.confusion_chart import confusion_chart
from tracking.figures.kept import ANEW, Pictures
from tracking.figures.save import FIGURES, figure_files, model_charts
from tracking.mlflow.layout import RunContent
from tracking.report.report import REPORT, render, write_report
from tracking.report.why import why_of

MOST_PICTURES = 600_000
"""Bytes of the gallery in the report of one model."""


def parent_files(
    audit: AuditResult, bundle: str, content: RunContent, folder: Path, pictures: Pictures | None = ANEW
) -> None:
    """Report, fleet figures (the bundle's own where it has them) if `pictures` are given, verdict and long texts."""
    _texts(content, folder)
    _verdict(folder, {"outcome": audit.outcome.value, "models": {m.spec.name: m.outcome.value for m in audit.models}})
    source = files.join(bundle, REPORT)
    if files.exists(source):
        (folder / REPORT).write_bytes(files.read_bytes(source))
    else:
        write_report(audit, str(folder))
    compared = files.join(bundle, COMPARISON)
    if files.exists(compared):
        _bytes(folder / COMPARISON, files.read_bytes(compared))
    for path, chart in figure_files(audit).items():
        if pictures is not None:
            drawn = files.join(bundle, path)
            _bytes(folder / path, files.read_bytes(drawn) if files.exists(drawn) else pictures.png(chart))


def child_files(
    audit: AuditResult, index: int, content: RunContent, folder: Path, bundle: str, pictures: Pictures | None = ANEW
) -> None:
    """One model's table, figures, light report and verdict; without `pictures` no figures."""
    model = audit.models[index]
    _texts(content, folder)
    gates = [asdict(gate) for gate in model.gates]
    _verdict(folder, {"outcome": model.outcome.value, "reasons": list(model.reasons), "gates": gates})
    with (folder / "per_class.parquet").open("wb") as file:
        group_table.fill_parquet(model, file)
    if has_attributes(model):
        with (folder / FILE).open("wb") as file:
            fill_attributes(model, file)
    classes = audit.samples.classes
    traversals = traversal_charts(bundle, index, model, classes)
    matrix = confusion_chart(model, read_confusions(bundle, index, model.spec), classes)
    charts = {
        **model_charts(model, math.prod(audit.samples.shape)),
        **traversals,
        **({"confusion": matrix} if matrix else {}),
    }
    for name, chart in charts.items():
        if pictures is not None:
            _bytes(folder / FIGURES / f"{name}.png", pictures.png(chart))
    alone = replace(audit, models=(model,), outcome=model.outcome)
    why = why_of([(index, model)], classes, bundle, MOST_PICTURES)
    page = render(alone, interactive=False, traversals={model.spec.name: traversals}, why=why, pictures=pictures)
    (folder / REPORT).write_text(page, encoding="utf-8")


def _texts(content: RunContent, folder: Path) -> None:
    for path, text in content.texts.items():
        _bytes(folder / path, text.encode())


def _bytes(target: Path, data: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)


def _verdict(folder: Path, body: dict[str, Any]) -> None:
    (folder / "verdict.json").write_text(json.dumps(body, indent=1, default=str), encoding="utf-8")
