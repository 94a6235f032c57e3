"""Records to charts. Each function is pure and gives None when there is nothing worth drawing.

Charts stay readable whatever the size of the audit: at most `MOST` classes and models, the weakest first, and the note
says what was left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from services.records import (
    AuditResult,
    CalibrationResult,
    Estimate,
    GroupScore,
    ModelResult,
    SeriesResult,
)
from tracking.bundle.group_table import finite
from tracking.bundle.summary import find, in_reading_order
from tracking.figures.charts import Cloud, Dots, Heatmap, Line, Lines, Marks, Panel, Radar, Scatter

MOST = 40
RADAR_AXES = 24
RADAR_LINES = 5
PANELS = 4
Measured = list[tuple[ModelResult, SeriesResult]]


def measured(audit: AuditResult, lens: str) -> Measured:
    """The models that have the series, with it."""
    return [(model, result) for model in audit.models if (result := find(model, lens))]


def places(audit: AuditResult) -> dict[str, int]:
    """The place of each model in the fleet, by its name: a model has one colour in all figures."""
    return {model.spec.name: place for place, model in enumerate(audit.models)}


def matrix(pairs: Measured) -> tuple[tuple[str, ...], np.ndarray]:
    """Group names and scores (models, groups), NaN where undefined; models may lack groups."""
    names = {group.index: group.name for _, result in pairs for group in result.groups}
    order = {index: position for position, index in enumerate(sorted(names))}
    scores = np.full((len(pairs), len(order)), np.nan)
    for row, (_, result) in enumerate(pairs):
        for group in result.groups:
            scores[row, order[group.index]] = np.nan if group.score.value is None else group.score.value
    return tuple(names[index] for index in sorted(names)), scores


def heatmap(audit: AuditResult, lens: str) -> Heatmap | None:
    """Scores of models (rows, strongest first) and classes (columns; the weakest `MOST` when there are more)."""
    pairs = measured(audit, lens)
    if not pairs:
        return None
    names, scores = matrix(pairs)
    rows = _strongest(pairs)[:MOST]
    columns = _weakest_columns(scores)
    values = tuple(tuple(_plain(scores[row, column]) for column in columns) for row in rows)
    what = _kind(pairs)
    note = f"The mean score of each {what} under each model, the strongest model on top; darker is weaker."
    note += _left_out(len(rows), len(pairs), "models") + _left_out(len(columns), len(names), _plural(what), "weakest")
    label = pairs[0][1].series.title
    shown = tuple(names[column] for column in columns)
    models = tuple(pairs[row][0].spec.name for row in rows)
    return Heatmap(f"{label}, {_by(what)}", note, models, shown, values, label, column_label=what)


def disparity(audit: AuditResult, lens: str) -> Dots | None:
    """RDI, NRGC and WCR of each model with their intervals."""
    pairs = measured(audit, lens)
    if not pairs:
        return None
    rows = [pairs[row] for row in _strongest(pairs)[:MOST]]
    labels = {
        "rdi": "RDI: best minus worst class",
        "nrgc": "NRGC: inequality (0 = equal)",
        "wcr": "WCR: worst class",
    }
    panels = tuple(Panel(label, (_estimates(rows, metric),)) for metric, label in labels.items())
    note = (
        "Dots are estimates, lines their confidence intervals. RDI grows with the scale of the scores; NRGC does not."
    )
    note += _left_out(len(rows), len(pairs), "models")
    title = f"Disparity between classes, {pairs[0][1].series.title}"
    return Dots(title, note, tuple(model.spec.name for model, _ in rows), panels, "model")


def against_disparity(audit: AuditResult, lens: str) -> Scatter | None:
    """The score against RDI, and against NRGC, a point a model."""
    pairs = measured(audit, lens)
    if len(pairs) < 2:
        return None
    label = pairs[0][1].series.title
    names = tuple(model.spec.name for model, _ in pairs)
    x = tuple(finite(result.aggregate.value) for _, result in pairs)
    clouds = tuple(
        Cloud(label, title, names, x, tuple(finite(result.metric(metric).value) for _, result in pairs))
        for metric, title in (("rdi", "RDI: best minus worst"), ("nrgc", "NRGC: inequality"))
    )
    note = "A dot is a model. Read both panels: RDI grows with the scale of the scores, NRGC is relative to their mean."
    return Scatter("Is the stronger model the more equal one?", note, clouds)


def vulnerability(audit: AuditResult, lens: str) -> Dots | None:
    """How often each class is a model's worst, and its mean rank among the classes (1 = worst)."""
    pairs = measured(audit, lens)
    if len(pairs) < 2:
        return None
    names, scores = matrix(pairs)
    mean_rank = _mean_over_known(_ranks(scores), ~np.isnan(scores))
    times = np.array([sum(name in result.worst for _, result in pairs) for name in names], dtype=float)
    order = sorted(range(len(names)), key=lambda column: (-times[column], _last(float(mean_rank[column]))))[:25]
    what = _kind(pairs)
    panels = (
        Panel(
            f"times the worst {what} (of {len(pairs)} models)",
            (Marks("times", tuple(times[order].tolist())),),
            whole=True,
        ),
        Panel(
            "mean rank (1 = worst)", (Marks("rank", tuple(_plain(mean_rank[column]) for column in order)),), whole=True
        ),
    )
    note = f"How often each {what} is the weakest of a model, and its mean rank; a tie counts for each {what} in it."
    note += _left_out(len(order), len(names), _plural(what), "most vulnerable")
    return Dots(f"Which {_plural(what)} pay", note, tuple(names[column] for column in order), panels, what)


def reranking(audit: AuditResult, lens: str) -> Lines | None:
    """Rank of each model by score, by WCR, by FP and by NRGC: lines that cross are rankings that disagree."""
    pairs = measured(audit, lens)
    if len(pairs) < 2:
        return None
    criteria = {"score": ("aggregate", 1), "worst class": ("wcr", 1), "FP": ("fp", 1), "equality (NRGC)": ("nrgc", -1)}
    ranks = {label: _model_ranks(pairs, metric, sign) for label, (metric, sign) in criteria.items()}
    order, seats, marks = _strongest(pairs)[:MOST], places(audit), _threat_marks(pairs)
    lines = tuple(
        Line(_name(pairs, row) + marks[row], tuple(ranks[label][row] for label in criteria), seats[_name(pairs, row)])
        for row in order
    )
    moved = sorted(lines, key=_span, reverse=True)
    note = "Rank 1 is best; lines that cross are rankings that disagree. Coloured: the models that move most."
    note += _left_out(len(order), len(pairs), "models")
    if any(marks):
        note += " The models were made for different threat models: a rank compares those of the same one only."
    return Lines("Does the ranking hold?", note, "ranked by", "rank", tuple(criteria), tuple(moved), falling=True)


def _threat_marks(pairs: Measured) -> list[str]:
    """What each model was made to withstand, to follow its name; empty texts where no two declare different things."""
    threats = [model.spec.threat_model for model, _ in pairs]
    if len({threat for threat in threats if threat}) < 2:
        return [""] * len(pairs)
    return [f" ({threat.norm} {threat.epsilon:.4g})" if threat else " (undeclared)" for threat in threats]


def calibration(result: CalibrationResult) -> Lines | None:
    """The objective over the temperatures, the chosen one, the plateau and whether it touches the grid's edge."""
    if len(result.grid) < 2:
        return None
    band = None
    if result.plateau is not None:
        band = (*result.plateau, "plateau: equally good")
    vertical = None
    if result.temperature is not None:
        edge = " (at the grid's edge)" if result.at_edge else ""
        vertical = (result.temperature, f"T = {result.temperature:g}{edge}")
    line = Line("objective", tuple(finite(value) for value in result.curve))
    return Lines(
        f"Calibration of the temperature, {result.policy}",
        "The objective at every temperature tried: larger is better, the dashed line is the choice.",
        "temperature (log scale)" if min(result.grid) > 0 else "temperature",
        "objective",
        result.grid,
        (line,),
        log=min(result.grid) > 0,
        band=band,
        vertical=vertical,
    )


def widths(audit: AuditResult, lens: str) -> Dots | None:
    """How wide the class intervals of each model are (median, narrowest to widest), and those of RDI and WCR."""
    pairs = measured(audit, lens)
    rows = [pairs[row] for row in _strongest(pairs)[:MOST]]
    spans = [sorted(_widths(result)) for _, result in rows]
    if not any(spans):
        return None
    middle = tuple(float(np.median(span)) if span else None for span in spans)
    low, high = (tuple(span[side] if span else None for span in spans) for side in (0, -1))
    rdi = tuple(_width(result.metric("rdi")) for _, result in rows)
    margin = tuple(_margin(result) for _, result in rows)
    panels = (
        Panel(f"{_kind(pairs)} intervals: median and range", (Marks("width", middle, low, high),)),
        Panel("RDI interval", (Marks("width", rdi),)),
        Panel("WCR: estimate minus lower limit", (Marks("margin", margin),)),
    )
    methods = ", ".join(sorted({result.method for _, result in rows}))
    note = f"Widths of the confidence intervals ({methods}): narrower is surer, and more samples make them narrower."
    note += _left_out(len(rows), len(pairs), "models")
    return Dots("How sure are the numbers?", note, tuple(model.spec.name for model, _ in rows), panels, "model")


def radar(audit: AuditResult, lens: str) -> Radar | None:
    """Class profiles of the strongest models and the weakest; nothing where the axes would be too many or too few."""
    pairs = measured(audit, lens)
    if not pairs:
        return None
    names, scores = matrix(pairs)
    if not 3 <= len(names) <= RADAR_AXES:
        return None
    order, seats = _strongest(pairs), places(audit)
    chosen = order if len(order) <= RADAR_LINES else [*order[: RADAR_LINES - 1], order[-1]]
    lines = tuple(Line(_name(pairs, row), tuple(map(_plain, scores[row])), seats[_name(pairs, row)]) for row in chosen)
    note = f"One axis a {_kind(pairs)}, 0 at the centre: a round line is an equal model, a dent a weak {_kind(pairs)}."
    note += "" if len(order) <= RADAR_LINES else f" The {RADAR_LINES - 1} strongest models and the weakest."
    top = float(np.nanmax(scores[chosen])) if np.isfinite(scores[chosen]).any() else 1.0
    return Radar(f"Profiles, {pairs[0][1].series.title}", note, names, lines, top or 1.0)


def trends(history: Sequence[AuditResult], audit: AuditResult, lens: str) -> Lines | None:
    """The worst class of each model over the audits of the fleet, oldest first."""
    audits = [*sorted(history, key=lambda past: past.audit_id), audit]
    if len(audits) < 2:
        return None
    pairs = measured(audit, lens)
    names, seats = [_name(pairs, row) for row in _strongest(pairs)[:MOST]], places(audit)
    lines = tuple(Line(name, tuple(_past_wcr(past, name, lens) for past in audits), seats[name]) for name in names)
    note = f"The score of each model's worst {_kind(pairs)} in each audit." + _left_out(
        len(names), len(pairs), "models"
    )
    x = tuple(past.started[:16].replace("T", " ") for past in audits)
    return Lines("Over the audits", note, "audit", f"WCR: worst {_kind(pairs)}", x, lines)


def profile(model: ModelResult, grouping: str) -> Dots | None:
    """One model's groups with their intervals, a panel a series, the weakest of the first series on top."""
    ordered = in_reading_order(model)
    pairs: Measured = [(model, result) for result in ordered if result.grouping == grouping and result.groups]
    if not pairs:
        return None
    first = pairs[0][1]
    groups = sorted(first.groups, key=lambda group: (_last(group.score.value), group.index))
    shown = groups[:MOST]
    panels = tuple(Panel(result.series.title, (_intervals(result, shown),)) for _, result in pairs[:PANELS])
    note = f"Dots are means, lines {100 * (1 - first.delta):g} % intervals that hold together ({first.method})."
    note += _left_out(len(shown), len(groups), _plural(_kind(pairs)), "weakest")
    note += _left_out(len(panels), len(pairs), "series", "first")
    labels = tuple(f"{group.name} (n={group.n_all:,})" for group in shown)
    return Dots(f"{model.spec.name}, {_by(_kind(pairs))}", note, labels, panels, _kind(pairs))


def _intervals(result: SeriesResult, order: Sequence[GroupScore]) -> Marks:
    """The scores of these groups under the series, None for a group that it lacks."""
    scores = {group.index: group.score for group in result.groups}
    estimates = [scores.get(group.index, Estimate(None)) for group in order]
    value, low, high = (tuple(finite(getattr(e, side)) for e in estimates) for side in ("value", "low", "high"))
    return Marks(result.series.title, value, low, high)


# --- small helpers -----------------------------------------------------------------------------------------------


def _kind(pairs: Measured) -> str:
    grouping = pairs[0][1].grouping
    return grouping if grouping == "class" else f"group of {grouping}"


def _by(what: str) -> str:
    """``class by class``; ``by group of sex``."""
    return "class by class" if what == "class" else f"by {what}"


def _name(pairs: Measured, row: int) -> str:
    return pairs[row][0].spec.name


def _plural(what: str) -> str:
    return "classes" if what == "class" else what.replace("group", "groups", 1)


def _plain(value: Any) -> float | None:
    return finite(float(value)) if value is not None else None


def _last(value: float | None) -> float:
    """Sort key that puts the undefined last."""
    return float("inf") if value is None or np.isnan(value) else float(value)


def _strongest(pairs: Measured) -> list[int]:
    return sorted(range(len(pairs)), key=lambda row: _last(_negative(pairs[row][1].aggregate.value)))


def _negative(value: float | None) -> float | None:
    return None if value is None else -value


def _weakest_columns(scores: np.ndarray) -> list[int]:
    """All columns in their order, or the `MOST` with the smallest mean, smallest first."""
    if scores.shape[1] <= MOST:
        return list(range(scores.shape[1]))
    means = _mean_over_known(scores, ~np.isnan(scores))
    return [int(column) for column in np.argsort(means, kind="stable")[:MOST]]


def _mean_over_known(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Column means over the known entries, NaN (which sorts last) where there is none."""
    counts = known.sum(axis=0)
    sums = np.where(known, values, 0.0).sum(axis=0)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _ranks(scores: np.ndarray) -> np.ndarray:
    """Rank of each class within its model, 1 = smallest, undefined last."""
    order = np.argsort(np.argsort(np.where(np.isnan(scores), np.inf, scores), axis=1, kind="stable"), axis=1)
    return order + 1.0


def _model_ranks(pairs: Measured, metric: str, sign: int) -> list[float | None]:
    values: list[float | None] = [finite(result.metric(metric).value) for _, result in pairs]
    known = [sign * value for value in values if value is not None]
    return [None if value is None else 1.0 + sum(other > sign * value for other in known) for value in values]


def _span(line: Line) -> float:
    known = [value for value in line.y if value is not None]
    return max(known) - min(known) if known else 0.0


def _estimates(rows: Measured, metric: str) -> Marks:
    estimates = [result.metric(metric) for _, result in rows]
    value, low, high = (tuple(finite(getattr(e, side)) for e in estimates) for side in ("value", "low", "high"))
    return Marks(metric.upper(), value, low, high)


def _width(estimate: Any) -> float | None:
    return None if estimate.low is None or estimate.high is None else finite(estimate.high - estimate.low)


def _widths(result: SeriesResult) -> list[float]:
    return [width for group in result.groups if (width := _width(group.score)) is not None]


def _margin(result: SeriesResult) -> float | None:
    return None if result.wcr.value is None or result.wcr.low is None else finite(result.wcr.value - result.wcr.low)


def _past_wcr(past: AuditResult, name: str, lens: str) -> float | None:
    model = next((model for model in past.models if model.spec.name == name), None)
    result = find(model, lens) if model else None
    return finite(result.wcr.value) if result else None


def _left_out(shown: int, total: int, what: str, which: str = "strongest") -> str:
    return "" if shown >= total else f" The {shown} {which} of {total:,} {what}."
