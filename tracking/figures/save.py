"""Figures as PNG files under the names that all runs share."""

from __future__ import annotations

from services.records import AuditResult, ModelResult
from services.storage import files
from tracking.bundle.summary import lenses
from tracking.figures import from_records
from tracking.figures.attributes import attribute_charts, model_attribute_charts
from tracking.figures.brackets import bracket
from tracking.figures.charts import Chart
from tracking.figures.kept import ANEW, Pictures
from tracking.names import file_name

FIGURES = "figures"
MOST_LENSES = 3
"""Series that get their own set of PNG files; the report has all of them."""


def fleet_charts(audit: AuditResult, lens: str) -> dict[str, Chart]:
    """The charts of one series over the fleet, by file name, in reading order."""
    charts: dict[str, Chart | None] = {
        "heatmap": from_records.heatmap(audit, lens),
        "disparity": from_records.disparity(audit, lens),
        "vulnerability": from_records.vulnerability(audit, lens),
        "score_vs_disparity": from_records.against_disparity(audit, lens),
        "reranking": from_records.reranking(audit, lens),
        "interval_widths": from_records.widths(audit, lens),
        "radar": from_records.radar(audit, lens),
    }
    return {name: chart for name, chart in charts.items() if chart is not None}


def model_charts(model: ModelResult, pixels: int = 0) -> dict[str, Chart]:
    """The charts of one model, by file name: all series in one picture, one more a grouping, and the bracket.

    Args:
        pixels: values of an image, for the bracket in Linf.
    """
    groupings = dict.fromkeys(result.grouping for result in model.series)
    charts: dict[str, Chart | None] = {
        "profile" if grouping == "class" else f"profile_by-{file_name(grouping)}": from_records.profile(model, grouping)
        for grouping in sorted(groupings, key=lambda grouping: grouping != "class")
    }
    charts["bracket"] = bracket(model, pixels)
    charts |= model_attribute_charts(model)
    return {name: chart for name, chart in charts.items() if chart is not None}


def figure_files(audit: AuditResult) -> dict[str, Chart]:
    """The fleet's charts by path within an audit's folder: ``figures/great/heatmap.png``; trends are in the report."""
    by_path: dict[str, Chart] = {}
    for lens in lenses(audit)[:MOST_LENSES]:
        folder = files.join(FIGURES, file_name(lens))
        by_path |= {files.join(folder, f"{name}.png"): chart for name, chart in fleet_charts(audit, lens).items()}
    for about, charts in attribute_charts(audit).items():
        folder = files.join(FIGURES, file_name(about))
        by_path |= {files.join(folder, f"{name}.png"): chart for name, chart in charts.items()}
    curve = from_records.calibration(audit.calibration)
    return {**by_path, files.join(FIGURES, "calibration.png"): curve} if curve else by_path


def write_figures(result: AuditResult, folder: str, pictures: Pictures = ANEW) -> list[str]:
    """Draw the fleet's figures into ``folder/figures`` (a path or any fsspec URL); returns their paths.

    Args:
        pictures: what draws, and keeps what was drawn.

    Raises:
        StorageError: the storage is full, read-only or unreachable.
    """
    paths = []
    for name, chart in figure_files(result).items():
        paths.append(files.join(folder, name))
        files.write_bytes(paths[-1], pictures.png(chart))
    return paths
