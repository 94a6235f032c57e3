"""The verdict as a table for the terminal, and the sentences that go under it."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from services.records import AuditResult, ModelResult, Outcome, SeriesResult
from tracking.names import shorten
from tracking.summary import find, lenses
from tracking.words import fleet_words, verdict_words

STYLES = {Outcome.PASS: "green", Outcome.FAIL: "red", Outcome.UNDECIDED: "yellow", Outcome.ERROR: "magenta"}
LEGEND = (
    "score: mean over all samples. worst: the class with the smallest mean, that mean, and low, its certified bound. "
    "RDI: best minus worst class. NRGC: inequality relative to the mean, 0 is equal."
)
MOST_MODELS = 100


def verdict_table(result: AuditResult) -> Table:
    """One row a model and measure, 80 columns wide; the models that do not pass come first when cut."""
    table = Table(
        title=f"{shorten(result.fleet, 60)}: {result.outcome.value}",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 0, 0, 0),
        pad_edge=False,
    )
    table.add_column("model", no_wrap=True, max_width=15)
    table.add_column("verdict", no_wrap=True, min_width=9)
    table.add_column("measure", no_wrap=True, max_width=22)
    for name in ("score", "worst", "mean", "low", "RDI", "NRGC"):
        text = name == "worst"
        table.add_column(name, justify="left" if text else "right", no_wrap=True, min_width=None if text else 5)
    models = _shown(result)
    for model in models:
        _add(table, model, lenses(result))
    if len(models) < len(result.models):
        table.caption = f"{len(models)} of {len(result.models)} models; the report has all of them"
    return table


def verdict_text(result: AuditResult) -> RenderableType:
    """The table with the explanation and the reasons of what did not pass under it."""
    lines = [Text(LEGEND, style="dim")]
    for model in [model for model in result.models if model.outcome is not Outcome.PASS][:20]:
        reasons = "; ".join(model.reasons) or "no reason given"
        lines.append(Text(f"{shorten(model.spec.name, 40)} {model.outcome.value}: {reasons}", STYLES[model.outcome]))
    lines += [Text(sentence) for sentence in (verdict_words(result), *fleet_words(result))]
    return Group(verdict_table(result), *lines)


def _shown(result: AuditResult) -> list[ModelResult]:
    if len(result.models) <= MOST_MODELS:
        return list(result.models)
    order = (Outcome.ERROR, Outcome.FAIL, Outcome.UNDECIDED, Outcome.PASS)
    return sorted(result.models, key=lambda model: order.index(model.outcome))[:MOST_MODELS]


def _add(table: Table, model: ModelResult, names: list[str]) -> None:
    head = [Text(shorten(model.spec.name, 15)), Text(model.outcome.value, STYLES[model.outcome])]
    measured = [(name, found) for name in names if (found := find(model, name))]
    if not measured:
        table.add_row(*head)
    for place, (name, found) in enumerate(measured):
        lead = head if place == 0 else [Text(""), Text("")]
        table.add_row(*lead, Text(shorten(name, 22)), *_numbers(found))


def _numbers(found: SeriesResult) -> list[Text]:
    low = None if found.wcr.low is None else max(0.0, found.wcr.low)
    certified = "–" if low is None else _told(low)
    told = [_told(found.aggregate.value), _worst(found), _told(found.wcr.value), certified]
    return [Text(cell) for cell in (*told, _told(found.rdi.value), _told(found.nrgc.value))]


def _worst(found: SeriesResult) -> str:
    if not found.worst:
        return "–"
    others = f" +{len(found.worst) - 1}" if len(found.worst) > 1 else ""
    return shorten(found.worst[0], 11 - len(others)) + others


def _told(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
