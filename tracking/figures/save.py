"""Figures as PNG files under the names that all runs share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from services.records import AuditResult, ModelResult
from tracking.figures import views
from tracking.figures.charts import Chart
from tracking.figures.png import png_bytes
from tracking.names import file_name
from tracking.summary import lens as lens_of
from tracking.summary import lenses

MOST_LENSES = 3
"""Series that get their own set of PNG files; the report has all of them."""


def fleet_charts(audit: AuditResult, lens: str) -> dict[str, Chart]:
    """The charts of one series over the fleet, by file name, in reading order."""
    found: dict[str, Chart | None] = {
        "heatmap": views.heatmap(audit, lens),
        "disparity": views.disparity(audit, lens),
        "score_vs_disparity": views.against_disparity(audit, lens),
        "vulnerability": views.vulnerability(audit, lens),
        "reranking": views.reranking(audit, lens),
        "interval_widths": views.widths(audit, lens),
        "radar": views.radar(audit, lens),
    }
    return {name: chart for name, chart in found.items() if chart is not None}


def model_charts(model: ModelResult, lens: str) -> dict[str, Chart]:
    """The charts of one series of one model, by file name."""
    chart = views.profile(model, lens)
    return {} if chart is None else {"profile": chart}


def save(charts: Mapping[str, Chart], folder: Path) -> None:
    """Draw each chart to ``folder/NAME.png``."""
    for name, chart in charts.items():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.png").write_bytes(png_bytes(chart))


def save_fleet(audit: AuditResult, folder: Path) -> None:
    """``calibration.png`` and, per series, a folder with its charts."""
    for lens in lenses(audit)[:MOST_LENSES]:
        save(fleet_charts(audit, lens), folder / file_name(lens))
    curve = views.calibration(audit.calibration)
    if curve is not None:
        save({"calibration": curve}, folder)


def save_model(model: ModelResult, folder: Path) -> None:
    """Per series a folder with the model's charts."""
    for result in model.series[:MOST_LENSES]:
        lens = lens_of(result)
        save(model_charts(model, lens), folder / file_name(lens))
    _bracket(model, folder)


def _bracket(model: ModelResult, folder: Path) -> None:
    by_kind = {
        kind: next((r for r in model.series if r.grouping == "class" and r.series.key.startswith(kind)), None)
        for kind in ("radius", "great", "minimal")
    }
    if by_kind["radius"] is None and by_kind["minimal"] is None:
        return
    chart = views.bracket(model, **by_kind)
    if chart is not None:
        save({"bracket": chart}, folder)
