"""Pictures of attributes: gaps between groups, tolerance of each latent dimension, where labels flip, traversals."""

from __future__ import annotations

from services.records import AuditResult, LatentDimension, ModelResult, ProjectionResult
from services.records.fairness import METRICS
from services.storage import files
from services.storage.traversals import Traversal
from tracking.bundle.fairness import GAPS, attributes, fairness_of, projection_of, projections
from tracking.bundle.group_table import finite
from tracking.figures.charts import Chart, Dots, Heatmap, Line, Marks, Panel, Radar, Strip, Strips
from tracking.figures.from_records import places
from tracking.names import file_name

MOST = 40
RADAR_LINES = 5
RADAR_AXES = 24
STRIPS = 12
"""Dimensions of a traversal that are drawn, the least tolerant first."""


def attribute_charts(audit: AuditResult) -> dict[str, dict[str, Chart]]:
    """The fleet's charts by what they are about, ``fairness/by-sex`` or ``projection``, and name."""
    by_section: dict[str, dict[str, Chart]] = {}
    for grouping in attributes(audit):
        if (chart := group_gaps(audit, grouping)) is not None:
            by_section[_gaps_of(grouping)] = {"gaps": chart}
    for series, label in projections(audit).items():
        charts = {"attribute_radar": attribute_radar(audit, series), "tolerance": tolerances(audit, series)}
        by_section[label] = {name: chart for name, chart in charts.items() if chart is not None}
    return by_section


def title_of(audit: AuditResult, name: str) -> str:
    """What the charts under that name are about, for a menu."""
    gaps = {_gaps_of(grouping): f"Gaps between groups of {grouping}" for grouping in attributes(audit)}
    return gaps.get(name, f"Attributes, {name}")


def _gaps_of(grouping: str) -> str:
    return f"fairness/by-{grouping}"


def model_attribute_charts(model: ModelResult) -> dict[str, Chart]:
    """One model's charts of attributes."""
    charts: dict[str, Chart | None] = {"task_by_attribute": task_heatmap(model)}
    for projection in model.projection:
        charts[f"boundaries_{file_name(projection.label)}"] = boundaries(model, projection)
    return {name: chart for name, chart in charts.items() if chart is not None}


def group_gaps(audit: AuditResult, grouping: str) -> Dots | None:
    """The largest gaps of each model between the groups of an attribute."""
    pairs = [(model, result) for model in audit.models if (result := fairness_of(model, grouping))]
    pairs = [pair for pair in pairs if any(estimate.value is not None for estimate in pair[1].worst.values())][:MOST]
    if not pairs:
        return None
    panels = []
    for metric in METRICS:
        estimates = [result.worst[metric] for _, result in pairs]
        value, low, high = (tuple(finite(getattr(e, side)) for e in estimates) for side in ("value", "low", "high"))
        panels.append(Panel(str(GAPS[metric]), (Marks(metric, value, low, high),)))
    first = pairs[0][1]
    groups = ", ".join(f"{name} (n={size:,})" for name, size in list(zip(first.groups, first.sizes, strict=True))[:6])
    note = f"Gaps between {groups}; 0 is no gap. Of all classes' decisions the one with the largest gap."
    names = tuple(model.spec.name for model, _ in pairs)
    return Dots(f"Do decisions follow {grouping}?", note, names, tuple(panels), "model")


def task_heatmap(model: ModelResult) -> Heatmap | None:
    """Tasks (rows, "it is this class") by metric and attribute (columns), the largest gaps first."""
    if not model.fairness:
        return None
    worst: dict[str, float] = {}
    for result in model.fairness:
        for task in result.tasks:
            worst[task.task] = max(worst.get(task.task, -1.0), task.gaps["eodd"].value or 0.0)
    rows = sorted(worst, key=lambda task: -worst[task])[:MOST]
    cells = {
        (task.task, f"{GAPS[metric].short} {result.grouping}"): task.gaps[metric].value
        for result in model.fairness
        for task in result.tasks
        for metric in METRICS
    }
    columns = tuple(f"{GAPS[metric].short} {result.grouping}" for result in model.fairness for metric in METRICS)
    values = tuple(tuple(finite(cells.get((row, column))) for column in columns) for row in rows)
    note = "The gap between the groups of each attribute in each decision, the most unequal decision on top."
    note += "" if len(rows) == len(worst) else f" The {len(rows)} most unequal of {len(worst)}."
    title = f"{model.spec.name}, decisions by attribute"
    return Heatmap(title, note, tuple(rows), columns, values, "gap", row_label="class", column_label="attribute")


def attribute_radar(audit: AuditResult, series: str) -> Radar | None:
    """Tolerance to each latent dimension, a line a model; nothing for fewer than three dimensions or too many."""
    pairs = [(model, projection) for model in audit.models if (projection := projection_of(model, series))]
    names = tuple(dimension.name for dimension in pairs[0][1].dimensions) if pairs else ()
    if not 3 <= len(names) <= RADAR_AXES:
        return None
    seats = places(audit)
    chosen = pairs if len(pairs) <= RADAR_LINES else _ends(pairs)
    lines = tuple(
        Line(model.spec.name, tuple(finite(d.tol.value) for d in projection.dimensions), seats[model.spec.name])
        for model, projection in chosen
    )
    note = "Tolerance to each latent factor: how much of its range, both ways, leaves the label as it is (2 is all)."
    note += "" if len(chosen) == len(pairs) else f" The {RADAR_LINES - 1} most tolerant models and the least."
    return Radar("Attribute radar", note, names, lines, 2.0)


def tolerances(audit: AuditResult, series: str) -> Dots | None:
    """Tol, Dev and Cou of each model."""
    overalls = [(model, projection.overall) for model in audit.models if (projection := projection_of(model, series))][
        :MOST
    ]
    if not overalls:
        return None
    labels = {"tol": "Tol: higher is better", "dev": "Dev: 0 is balanced", "cou": "Cou (approximate interval)"}
    panels = []
    for name, label in labels.items():
        estimates = [getattr(overall, name) for _, overall in overalls]
        value, low, high = (tuple(finite(getattr(e, side)) for e in estimates) for side in ("value", "low", "high"))
        panels.append(Panel(label, (Marks(name, value, low, high),)))
    cut = max((overall.censored or 0.0 for _, overall in overalls), default=0.0)
    note = "Over all samples and latent factors. "
    note += f"Where a label never flips Tol is a lower bound: in up to {cut:.0%} of the directions here."
    return Dots("Tolerance to attributes", note, tuple(m.spec.name for m, _ in overalls), tuple(panels), "model")


def boundaries(model: ModelResult, projection: ProjectionResult) -> Heatmap | None:
    """Where along each latent dimension labels flip: shares of the samples by position."""
    shown = sorted(projection.dimensions, key=_tolerance)[:MOST]
    if not shown or not projection.overall.n:
        return None
    parts = len(shown[0].up)
    columns = tuple(f"{(place - parts) / parts:+.1f}" for place in range(parts))
    columns += tuple(f"{(place + 1) / parts:+.1f}" for place in range(parts))
    values = tuple(
        tuple(100 * count / projection.overall.n for count in (*reversed(axis.down), *axis.up)) for axis in shown
    )
    note = "Samples in per cent whose label flips there, by distance from the centre in units; the least tolerant "
    note += "factor on top. Samples that never flip are in no column."
    title = f"{model.spec.name}, where labels flip"
    rows = tuple(axis.name for axis in shown)
    return Heatmap(title, note, rows, columns, values, "% of samples", row_label="factor", column_label="position")


def strips(
    model: ModelResult, projection: ProjectionResult, traversal: Traversal, classes: tuple[str, ...]
) -> Strips | None:
    """The mapper's images along each dimension, with the label at every position and the flip points."""
    place = {int(d): row for row, d in enumerate(traversal.dimensions)}
    shown = [axis for axis in sorted(projection.dimensions, key=_tolerance) if axis.index in place][:STRIPS]
    if not shown:
        return None
    rows = tuple(_strip(axis, traversal, place[axis.index], classes) for axis in shown)
    note = "Every factor is moved from the centre of all of them, the others resting: the images are the mapper's and "
    note += "show no sample. Framed in orange: another label than at the centre; the line is the flip point."
    note += (
        ""
        if len(shown) == len(projection.dimensions)
        else f" The {len(shown)} least tolerant of {len(projection.dimensions)}."
    )
    shape = traversal.images.shape[2:]
    title = f"{model.spec.name}, traversal"
    return Strips(title, note, tuple(traversal.positions.tolist()), (shape[0], shape[1], shape[2]), rows)


def _strip(axis: LatentDimension, traversal: Traversal, row: int, classes: tuple[str, ...]) -> Strip:
    labels = tuple(classes[k] if 0 <= k < len(classes) else "not finite" for k in traversal.labels[row].tolist())
    down, up = (
        None if traversal.censored[row, side] else float(sign * traversal.moves[row, side])
        for side, sign in ((0, -1.0), (1, 1.0))
    )
    return Strip(axis.name, traversal.images[row].tobytes(), labels, down, up)


def traversal_path(folder: str, index: int, model: ModelResult, projection: ProjectionResult) -> str:
    """Where a bundle keeps the traversal of a model."""
    name = f"{index:03d}_{file_name(model.spec.name)}_{file_name(projection.label)}.npz"
    return files.join(folder, "traversals", name)


def traversal_charts(folder: str, index: int, model: ModelResult, classes: tuple[str, ...]) -> dict[str, Chart]:
    """The strips of a model, read from its bundle; empty where it has none.

    Raises:
        StorageError: a file is damaged.
    """
    charts: dict[str, Chart] = {}
    for projection in model.projection:
        path = traversal_path(folder, index, model, projection)
        if files.exists(path):
            chart = strips(model, projection, Traversal.from_bytes(files.read_bytes(path), path), classes)
            if chart is not None:
                charts[f"traversal_{file_name(projection.label)}"] = chart
    return charts


def _tolerance(axis: LatentDimension) -> tuple[bool, float]:
    return axis.tol.value is None, axis.tol.value or 0.0


def _ends(pairs: list[tuple[ModelResult, ProjectionResult]]) -> list[tuple[ModelResult, ProjectionResult]]:
    ranked = sorted(pairs, key=lambda pair: -(pair[1].overall.tol.value or 0.0))
    return [*ranked[: RADAR_LINES - 1], ranked[-1]]
