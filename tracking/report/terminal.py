"""The verdict as a table for the terminal, and the sentences that go under it."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from services.records import AuditResult, ModelResult, Outcome, SeriesResult
from tracking.bundle.headline import inadequate
from tracking.bundle.summary import find, lenses, tied
from tracking.bundle.words import advice_words, early_words, fleet_words, verdict_words
from tracking.names import shorten

STYLES = {Outcome.PASS: "green", Outcome.FAIL: "red", Outcome.UNDECIDED: "yellow", Outcome.ERROR: "magenta"}
LEGEND = (
    "score: mean over all samples. worst: the class with the smallest mean, that mean, and low, its lower confidence "
    "limit. RDI (gap): best minus worst class. NRGC (Gini): inequality relative to the mean, 0 is equal."
)
NO_EVIDENCE = "!"
NO_EVIDENCE_LEGEND = f"{NO_EVIDENCE}: by an attack that was inadequate on this model: no evidence of robustness."
MOST_MODELS = 100
WIDTH = 80
HEADS = ("model", "verdict", "measure", "score", "worst", "mean", "low", "RDI", "NRGC")
LEAST, MOST = (8, 10), (15, 22)
"""Columns for the names of models and of measures: to spare, and at most, where the table is no wider than `WIDTH`."""
WORST, TIED = 11, 6
"""Characters of the worst class, and of the first of several that tie; wider tables show more of all names."""
LONGEST = 40


def verdict_table(result: AuditResult, width: int = WIDTH) -> Table:
    """One row a model and measure, no wider than asked for; the models that do not pass come first when cut."""
    models = _shown(result)
    rows = [row for model in models for row in _rows(model, lenses(result), _spare(width))]
    limits = _limits(rows, width)
    table = Table(
        title=f"{shorten(result.fleet, 60)}: {result.outcome.value}",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 0, 0, 0),
        pad_edge=False,
    )
    table.add_column("model", no_wrap=True, max_width=limits[0])
    table.add_column("verdict", no_wrap=True)
    table.add_column("measure", no_wrap=True, max_width=limits[1])
    for name in ("score", "worst", "mean", "low", "RDI", "NRGC"):
        text = name == "worst"
        table.add_column(name, justify="left" if text else "right", no_wrap=True, min_width=None if text else 5)
    for name, outcome, measure, *numbers in rows:
        head = (shorten(name, limits[0]) if name else "", shorten(measure, limits[1]) if measure else "")
        table.add_row(
            Text(head[0]),
            Text(outcome, STYLES[Outcome(outcome)] if outcome else ""),
            Text(head[1]),
            *map(Text, numbers),
        )
    if len(models) < len(result.models):
        table.caption = f"{len(models)} of {len(result.models)} models; the report has all of them"
    return table


def verdict_text(result: AuditResult, width: int = WIDTH) -> RenderableType:
    """The table with the explanation and the reasons of what did not pass under it."""
    lines = [Text(LEGEND, style="dim")]
    if any(attack.adequacy == "inadequate" for model in result.models for attack in model.attacks):
        lines.append(Text(NO_EVIDENCE_LEGEND, STYLES[Outcome.UNDECIDED]))
    lines += [Text(sentence, style="dim") for sentence in early_words(result)]
    for model in [model for model in result.models if model.outcome is not Outcome.PASS][:20]:
        reasons = "; ".join(model.reasons) or "no reason given"
        lines.append(Text(f"{shorten(model.spec.name, 40)} {model.outcome.value}: {reasons}", STYLES[model.outcome]))
    lines += [Text(sentence) for sentence in (verdict_words(result), *advice_words(result), *fleet_words(result))]
    return Group(verdict_table(result, width), *lines)


def _shown(result: AuditResult) -> list[ModelResult]:
    if len(result.models) <= MOST_MODELS:
        return list(result.models)
    order = (Outcome.ERROR, Outcome.FAIL, Outcome.UNDECIDED, Outcome.PASS)
    return sorted(result.models, key=lambda model: order.index(model.outcome))[:MOST_MODELS]


def _spare(width: int) -> int:
    """Columns more than usual for each of the three kinds of names."""
    return max(0, width - WIDTH) // 3


def _rows(model: ModelResult, names: list[str], spare: int) -> list[list[str]]:
    """The cells of a model, a row a measure; its name and outcome stand in the first."""
    head = [model.spec.name, model.outcome.value]
    shown = [result for name in names if (result := find(model, name))]
    order = list(dict.fromkeys(result.series.key for result in shown))
    measured = sorted(shown, key=lambda result: order.index(result.series.key))
    if not measured:
        return [[*head, *[""] * 7]]
    return [
        [
            *(("", "") if place else head),
            _label(result),
            *_numbers(result, spare, marked=inadequate(model, result.series.key)),
        ]
        for place, result in enumerate(measured)
    ]


def _label(result: SeriesResult) -> str:
    """A series, or what it is profiled by in the rows under it: ``great``, then `` by sex``."""
    return result.series.key if result.grouping == "class" else f" by {result.grouping}"


def _limits(rows: list[list[str]], width: int) -> tuple[int, int]:
    """Columns for models and measures beside the numbers, which are never cut; measures give way last."""
    widest = [max(len(head), *(len(row[place]) for row in rows), 0) for place, head in enumerate(HEADS)]
    room = width - len(HEADS) - 1 - sum(max(5, widest[place]) for place in range(len(HEADS)) if place not in (0, 2))
    most = [min(usual + _spare(width), max(LONGEST, usual)) for usual in MOST]
    model, measure = min(widest[0], most[0]), min(widest[2], most[1])
    model = max(LEAST[0], min(model, room - measure))
    return model, max(LEAST[1], min(measure, room - model))


def _numbers(result: SeriesResult, spare: int, *, marked: bool) -> list[str]:
    low = None if result.wcr.low is None else max(0.0, result.wcr.low)
    limit = "–" if low is None else _decimals(low)
    score = _decimals(result.aggregate.value) + NO_EVIDENCE * marked
    cells = [score, _worst(result, spare), _decimals(result.wcr.value), limit]
    return [*cells, _decimals(result.metric("rdi").value), _decimals(result.metric("nrgc").value)]


def _worst(result: SeriesResult, spare: int) -> str:
    if not result.worst:
        return "–"
    usual = WORST if len(result.worst) == 1 else TIED
    return tied(result.worst, len(result.worst), min(usual + spare, LONGEST))


def _decimals(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
