"""From overviews to answers: lists, an audit, a model's card, trends. Nothing here reads a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict

from jobs.dashboard.answers import (
    AuditHead,
    Bracket,
    Cell,
    ClassMatrix,
    ClassName,
    ClassRow,
    GapBody,
    GateTally,
    Metric,
    ModelRow,
    SeriesBody,
    SeriesName,
    Trend,
    TrendLine,
)
from jobs.web.problems import ProblemBody
from services.errors import ClasswiseError, ConfigError, Problem
from services.metrics import OF_SERIES
from services.records import WORST_FIRST, Estimate, Evidence, Outcome
from services.registry import did_you_mean
from tracking.bundle.classes import GroupRow
from tracking.bundle.fairness import GAPS
from tracking.bundle.group_table import finite
from tracking.bundle.overview import ModelOverview, Overview, SeriesOverview
from tracking.bundle.summary import tied
from tracking.figures.brackets import panels
from tracking.names import shorten

METRICS: tuple[Metric, ...] = tuple(metric.name for metric in OF_SERIES)
Reading = Overview | ClasswiseError
"""An audit's overview, or why there is none."""
Scores = Mapping[int, tuple[str, float | None]]
"""Name and mean score of each class of a model, by its index."""


def head(name: str, overview: Reading) -> AuditHead:
    """An audit in a list; a broken one with its reason."""
    if isinstance(overview, ClasswiseError):
        return AuditHead(id=name, problem=problem_body(overview))
    return AuditHead(
        id=name,
        fleet=overview.fleet,
        audit_id=overview.audit_id,
        started=overview.started,
        finished=overview.finished,
        outcome=overview.outcome,
        counts=_tally(model.outcome for model in overview.models),
        models=len(overview.models),
        samples=overview.count,
        classes=overview.classes,
    )


def problem_body(error: ClasswiseError) -> ProblemBody:
    """The first problem of an error."""
    return ProblemBody(**asdict(error.problems[0]))


def chosen(overview: Overview, lens: str) -> SeriesOverview | None:
    """The series that was asked for, else the first in reading order; None when nothing was measured.

    Raises:
        ConfigError: the audit has no such series.
    """
    known = overview.lenses
    if not lens:
        return next(iter(known.values()), None)
    if lens not in known:
        remedy = did_you_mean(lens, list(known))
        raise ConfigError(Problem("series", "a series of the audit", repr(lens)[:120], remedy))
    return known[lens]


def series_names(overview: Overview) -> list[SeriesName]:
    """All series of an audit, in reading order."""
    return [
        SeriesName(lens=series.lens, title=series.title, unit=series.unit, bound=series.bound, grouping=series.grouping)
        for series in overview.lenses.values()
    ]


def metrics_of(series: SeriesOverview | None) -> dict[Metric, Estimate]:
    """The summary numbers of a series; empty without one."""
    return {metric: series.metric(metric) for metric in METRICS} if series else {}


def model_rows(overview: Overview, lens: str) -> list[ModelRow]:
    """A row a model with one series, the worst outcome first."""
    rows = [_model_row(place, model, model.find(lens)) for place, model in enumerate(overview.models)]
    return sorted(rows, key=lambda row: WORST_FIRST.index(row.outcome))


def _model_row(place: int, model: ModelOverview, series: SeriesOverview | None) -> ModelRow:
    more = f" (and {len(model.reasons) - 1} more)" if len(model.reasons) > 1 else ""
    return ModelRow(
        index=place,
        name=model.name,
        outcome=model.outcome,
        why=shorten(model.reasons[0], 150) + more if model.reasons and model.outcome is not Outcome.PASS else "",
        worst=tied(series.worst, max(series.ties, len(series.worst))) if series else "",
        metrics=metrics_of(series),
        refuted=series.refuted if series else None,
    )


def gate_tallies(overview: Overview) -> list[GateTally]:
    """For each gate how many models end in each outcome."""
    texts = dict.fromkeys(gate.text for model in overview.models for gate in model.gates)
    ends = [(gate.text, gate.outcome) for model in overview.models for gate in model.gates]
    return [GateTally(text=text, counts=_tally(outcome for named, outcome in ends if named == text)) for text in texts]


def series_body(series: SeriesOverview) -> SeriesBody:
    """One series of a model's card."""
    named = {
        name: getattr(series, name)
        for name in ("lens", "title", "unit", "grouping", "groups", "missing", "close", "delta", "method")
    }
    return SeriesBody(
        **named,
        metrics=metrics_of(series),
        worst=tied(series.worst, max(series.ties, len(series.worst))),
        refuted=series.refuted,
        gap=series.gap,
        words=series.words,
    )


def gap_bodies(model: ModelOverview) -> list[GapBody]:
    """The gaps between groups of a model's card."""
    return [
        GapBody(grouping=gap.grouping, title=str(GAPS.get(gap.metric, gap.metric)), task=gap.task, gap=gap.gap)
        for gap in model.gaps
    ]


def class_rows(rows: Sequence[GroupRow]) -> list[ClassRow]:
    """The classes of one model, the weakest first and the undefined last."""
    ordered = sorted(rows, key=lambda row: (_last(row.group.score.value), row.group.index))
    return [
        ClassRow(
            index=row.group.index,
            name=row.group.name,
            n=row.group.n,
            n_all=row.group.n_all,
            score=row.group.score,
            worst=row.worst,
            close=row.close,
        )
        for row in ordered
    ]


def matrix(
    series: SeriesOverview,
    models: Sequence[ModelOverview],
    rows: Sequence[Scores],
    worst: int,
    problems: Sequence[ProblemBody] = (),
) -> ClassMatrix:
    """Classes by models: the `worst` classes with the smallest mean over the models, in their own order."""
    names = {index: name for line in rows for index, (name, _) in line.items()}
    scores = [_values(line) for line in rows]
    means = {index: _mean([line.get(index) for line in scores]) for index in names}
    kept = sorted(sorted(names, key=lambda index: (_last(means[index]), index))[:worst])
    return ClassMatrix(
        lens=series.lens,
        title=series.title,
        classes=[ClassName(index=index, name=names[index]) for index in kept],
        models=[model.name for model in models],
        values=[[line.get(index) for index in kept] for line in scores],
        total=len(names),
        problems=list(problems),
    )


def brackets(model: ModelOverview, pixels: int, scores: Callable[[SeriesOverview], Scores], most: int) -> list[Bracket]:
    """For each distance what is proved, claimed and broken of the classes, as `panels` says.

    Args:
        pixels: values of an image; 0 where not known.
        scores: the mean scores of a series.
        most: classes at most, those that are broken at the smallest distance.
    """

    def shortest_of(evidence: Evidence, unit: str) -> SeriesOverview | None:
        fits = [s for s in model.series if (s.grouping, s.evidence, s.unit) == ("class", evidence, unit)]
        return min(fits, key=lambda series: len(series.key), default=None)

    return [
        _bracket(unit, {label: (scores(series), by) for label, (series, by) in marks.items()}, most)
        for unit, marks in panels(shortest_of, pixels).items()
    ]


def _bracket(unit: str, by_label: Mapping[str, tuple[Scores, float]], most: int) -> Bracket:
    names = {index: name for line, _ in by_label.values() for index, (name, _) in line.items()}
    values = {
        label: {index: None if value is None else value / by for index, value in _values(line).items()}
        for label, (line, by) in by_label.items()
    }
    broken = list(values.values())[-1]
    order = sorted(names, key=lambda index: (_last(broken.get(index)), index))[:most]
    return Bracket(
        unit=unit,
        marks=list(values),
        classes=[ClassName(index=index, name=names[index]) for index in order],
        values=[[line.get(index) for index in order] for line in values.values()],
    )


def trend(
    fleet: str, audits: Sequence[tuple[str, Reading]], lens_key: str, metric: Metric, wanted: str, most: int, total: int
) -> Trend:
    """One number of each model over audits that are given the earliest first.

    Args:
        lens_key: the series; empty for the first of the latest audit that can be read.
        wanted: only models whose names contain this, whatever the case.
        most: lines at most.
        total: audits that the fleet has.
    """
    read = [entry for _, entry in audits if isinstance(entry, Overview)]
    series = chosen(read[-1], lens_key) if read else None
    names = dict.fromkeys(name for entry in reversed(read) for name in _by_outcome(entry))
    fitting = [name for name in names if wanted.lower() in name.lower()]
    lens = series.lens if series else ""
    by_name = [
        {model.name: model for model in entry.models} if isinstance(entry, Overview) else {} for _, entry in audits
    ]
    lines = [
        TrendLine(
            model=name,
            outcomes=[models[name].outcome if name in models else None for models in by_name],
            cells=[_cell(models.get(name), lens, metric) for models in by_name],
        )
        for name in fitting[:most]
    ]
    return Trend(
        fleet=fleet,
        lens=lens,
        metric=metric,
        series=series_names(read[-1]) if read else [],
        audits=[head(name, entry) for name, entry in audits],
        lines=lines,
        models=len(fitting),
        total=total,
    )


def _by_outcome(overview: Overview) -> list[str]:
    return [model.name for model in sorted(overview.models, key=lambda model: WORST_FIRST.index(model.outcome))]


def _cell(model: ModelOverview | None, lens: str, metric: Metric) -> Cell | None:
    series = model.find(lens) if model else None
    if series is None:
        return None
    estimate = series.metric(metric)
    value = finite(estimate.value)
    return None if value is None else [value, finite(estimate.low), finite(estimate.high)]


def _tally(outcomes: Iterable[Outcome]) -> dict[Outcome, int]:
    counts = Counter(outcomes)
    return {outcome: counts[outcome] for outcome in WORST_FIRST if counts[outcome]}


def _values(scores: Scores) -> dict[int, float | None]:
    return {index: finite(score) for index, (_, score) in scores.items()}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _last(value: float | None) -> float:
    """Sort key that puts the undefined last."""
    return float("inf") if value is None else value
