"""The verdict as a table for the terminal, and the sentences that go under it."""

from __future__ import annotations

from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from services.records import AuditResult, ModelResult, Outcome, SeriesResult
from tracking.names import shorten
from tracking.summary import find, lenses
from tracking.words import fleet_words

STYLES = {Outcome.PASS: "green", Outcome.FAIL: "red", Outcome.UNDECIDED: "yellow", Outcome.ERROR: "magenta"}
LEGEND = (
    "score: mean over all samples. worst class: its mean, and >= what is certified. "
    "RDI: best minus worst class. NRGC: inequality relative to the mean, 0 is equal."
)
MOST_MODELS = 100
NUMBER = 5
COLUMNS = (
    ("model", 12, 28),
    ("outcome", 9, 9),
    ("measure", 7, 14),
    ("score", NUMBER, NUMBER),
    ("worst class", 26, 28),
    ("RDI", NUMBER, NUMBER),
    ("NRGC", NUMBER, NUMBER),
)
"""Name, least and most width. Numbers are never cut; names give way, for the report has them whole."""


def verdict_table(result: AuditResult) -> Table:
    """One row a model and measure, at most 100 columns wide; the models that do not pass come first when cut."""
    title = f"{shorten(result.fleet, 60)}: {result.outcome.value}"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for name, least, most in COLUMNS:
        justify: Literal["left", "right"] = "right" if most == NUMBER else "left"
        table.add_column(
            name, justify=justify, no_wrap=True, overflow="ellipsis", min_width=least, max_width=max(least, most)
        )
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
    lines += [Text(sentence) for sentence in fleet_words(result)]
    return Group(verdict_table(result), *lines)


def _shown(result: AuditResult) -> list[ModelResult]:
    if len(result.models) <= MOST_MODELS:
        return list(result.models)
    order = (Outcome.ERROR, Outcome.FAIL, Outcome.UNDECIDED, Outcome.PASS)
    return sorted(result.models, key=lambda model: order.index(model.outcome))[:MOST_MODELS]


def _add(table: Table, model: ModelResult, names: list[str]) -> None:
    head = [Text(shorten(model.spec.name, 28)), Text(model.outcome.value, STYLES[model.outcome])]
    measured = [(name, found) for name in names if (found := find(model, name))]
    if not measured:
        table.add_row(*head, "", "", "", "", "")
    for place, (name, found) in enumerate(measured):
        lead = head if place == 0 else [Text(""), Text("")]
        table.add_row(*lead, Text(name), *_numbers(found))
    if len(measured) > 1:
        table.add_section()


def _numbers(found: SeriesResult) -> list[Text]:
    return [
        Text(_told(found.aggregate.value)),
        Text(_worst(found)),
        Text(_told(found.rdi.value)),
        Text(_told(found.nrgc.value)),
    ]


def _worst(found: SeriesResult) -> str:
    if not found.worst:
        return "–"
    name = shorten(found.worst[0], 12) + (f" +{len(found.worst) - 1}" if len(found.worst) > 1 else "")
    low = "" if found.wcr.low is None else f" >={_told(max(0.0, found.wcr.low))}"
    return f"{name} {_told(found.wcr.value)}{low}"


def _told(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
