"""The verdict as a table for the terminal, and the sentences that go under it."""

from __future__ import annotations

from collections.abc import Sequence

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
    "limit."
)
LEGENDS = {
    "RDI": "RDI (gap): best minus worst class.",
    "NRGC": "NRGC (Gini): inequality relative to the mean, 0 is equal.",
}
"""Of the columns that are left out, the last first, where names would be cut for them; the report has them."""
NO_EVIDENCE = "!"
NO_EVIDENCE_LEGEND = f"{NO_EVIDENCE}: by an attack that was inadequate on this model: no evidence of robustness."
MOST_MODELS = 100
WIDTH = 80
HEADS = ("model", "verdict", "measure", "score", "worst", "mean", "low", *LEGENDS)
NAMES = (0, 2)
"""Which of them hold names."""
LEAST, MOST = (8, 10), (15, 22)
"""Columns for the names of models and of measures: to spare, and at most, where the table is no wider than `WIDTH`."""
WORST, TIED = 11, 6
"""Characters of the worst class, and of the first of several that tie; wider tables show more of all names."""
LONGEST = 40


def verdict_table(result: AuditResult, width: int = WIDTH) -> Table:
    """One row a model and measure, no wider than asked for; the models that do not pass come first when cut."""
    models, rows, heads, limits = _laid_out(result, width)
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
    for name in heads[3:]:
        text = name == "worst"
        table.add_column(name, justify="left" if text else "right", no_wrap=True, min_width=None if text else 5)
    for name, outcome, measure, *numbers in rows:
        head = (shorten(name, limits[0]) if name else "", shorten(measure, limits[1]) if measure else "")
        table.add_row(
            Text(head[0]),
            Text(outcome, STYLES[Outcome(outcome)] if outcome else ""),
            Text(head[1]),
            *map(Text, numbers[: len(heads) - 3]),
        )
    if len(models) < len(result.models):
        table.caption = f"{len(models)} of {len(result.models)} models; the report has all of them"
    return table


def verdict_text(result: AuditResult, width: int = WIDTH) -> RenderableType:
    """The table with the explanation and the reasons of what did not pass under it."""
    table = verdict_table(result, width)
    heads = [column.header for column in table.columns]
    lines = [Text(" ".join([LEGEND, *(text for head, text in LEGENDS.items() if head in heads)]), style="dim")]
    if any(attack.adequacy == "inadequate" for model in result.models for attack in model.attacks):
        lines.append(Text(NO_EVIDENCE_LEGEND, STYLES[Outcome.UNDECIDED]))
    lines += [Text(sentence, style="dim") for sentence in early_words(result)]
    for model in [model for model in result.models if model.outcome is not Outcome.PASS][:20]:
        reasons = "; ".join(model.reasons) or "no reason given"
        lines.append(Text(f"{shorten(model.spec.name, 40)} {model.outcome.value}: {reasons}", STYLES[model.outcome]))
    lines += [Text(sentence) for sentence in (verdict_words(result), *advice_words(result), *fleet_words(result))]
    return Group(table, *lines)


def _laid_out(result: AuditResult, width: int) -> tuple[list[ModelResult], list[list[str]], Sequence[str], list[int]]:
    """The models shown, all cells, the heads of as many columns as leave names whole, and columns for names."""
    models = _shown(result)
    rows = [row for model in models for row in _rows(model, lenses(result), _spare(width))]
    widest = [max(len(head), *(len(row[place]) for row in rows), 0) for place, head in enumerate(HEADS)]
    wanted = [min(widest[place], _most(width)[at]) for at, place in enumerate(NAMES)]
    choices = [HEADS[: len(HEADS) - dropped] for dropped in range(len(LEGENDS) + 1)]
    fitting = (heads for heads in choices if _limits(heads, widest, wanted, width) == wanted)
    heads = next(fitting, HEADS)
    return models, rows, heads, _limits(heads, widest, wanted, width)


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


def _most(width: int) -> list[int]:
    """Columns for the names of models and of measures, at most."""
    return [min(usual + _spare(width), max(LONGEST, usual)) for usual in MOST]


def _limits(heads: Sequence[str], widest: Sequence[int], wanted: Sequence[int], width: int) -> list[int]:
    """Columns for models and measures beside the numbers, which are never cut; measures give way last."""
    numbers = sum(max(5, widest[place]) for place in range(len(heads)) if place not in NAMES)
    room = width - len(heads) - 1 - numbers
    model = max(LEAST[0], min(wanted[0], room - wanted[1]))
    return [model, max(LEAST[1], min(wanted[1], room - model))]


def _numbers(result: SeriesResult, spare: int, *, marked: bool) -> list[str]:
    low = None if result.wcr.low is None else max(0.0, result.wcr.low)
    limit = "–" if low is None else _decimals(low)
    score = _decimals(result.aggregate.value) + NO_EVIDENCE * marked
    cells = [score, _worst(result, spare), _decimals(result.wcr.value), limit]
    return [*cells, _decimals(result.metric("rdi").value), _decimals(result.metric("nrgc").value)]


def _worst(result: SeriesResult, spare: int) -> str:
    if not result.worst:
        return "–"
    if len(result.worst) == len(result.groups) > 1:
        return f"all {len(result.worst)}"
    usual = WORST if len(result.worst) == 1 else TIED
    return tied(result.worst, len(result.worst), min(usual + spare, LONGEST))


def _decimals(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
