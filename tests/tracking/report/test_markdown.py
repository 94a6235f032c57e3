"""The verdict as Markdown, read by a parser of Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from services.records import AuditResult, Estimate, GateResult, Outcome
from tracking.report.markdown import markdown


def tokens(text: str) -> Iterator[Token]:
    for token in MarkdownIt("commonmark", {"html": True}).enable("table").parse(text):
        yield token
        yield from token.children or ()


def cells(text: str) -> list[list[str]]:
    """The rows of all tables."""
    rows: list[list[str]] = []
    for before, token in zip([None, *tokens(text)], tokens(text), strict=False):
        if token.type == "tr_open":
            rows.append([])
        if token.type == "inline" and before is not None and before.type in ("td_open", "th_open"):
            rows[-1].append("".join(child.content for child in token.children or ()))
    return rows


def test_models_and_the_gates_that_are_missed(small_audit: AuditResult) -> None:
    kinds = (Outcome.PASS, Outcome.FAIL, Outcome.UNDECIDED)
    gates = tuple(
        GateResult(f"clean wcr >= 0.{n}", kind, Estimate(0.1), f"because {n}") for n, kind in enumerate(kinds)
    )
    judged = replace(small_audit.models[0], gates=gates, outcome=Outcome.FAIL)
    crashed = replace(small_audit.models[1], gates=(), series=(), outcome=Outcome.ERROR, reasons=("no weights",))
    audit = replace(small_audit, models=(judged, crashed), outcome=Outcome.ERROR)
    rows = cells(markdown(audit))
    name, other = judged.spec.name, crashed.spec.name
    assert [name, "❌ fail", "1 of 3"] in rows and [other, "⚠️ error", "none set"] in rows
    assert [name, "clean wcr >= 0.1", "❌ fail", "because 1"] in rows
    assert [name, "clean wcr >= 0.2", "❔ undecided", "because 2"] in rows
    assert [other, "the audit ran", "⚠️ error", "no weights"] in rows
    assert not any("because 0" in row for row in rows), "what is passed needs no line"


def test_many_models_are_cut(make_audit: Callable[..., AuditResult]) -> None:
    assert "50 of 150 models; the report has all of them." in markdown(make_audit(150, 3))


@pytest.mark.parametrize(
    "name",
    ["<img src=x>", "a|b", "[x](http://y)", "**b** _i_ `c`", "![i](j)", "# h", "a\n\n| b |", "\\<b>", "&lt;", "~~s~~"],
)
def test_names_are_text(small_audit: AuditResult, name: str) -> None:
    gate = GateResult(name, Outcome.FAIL, Estimate(0.1), name)
    model = replace(small_audit.models[0], spec=replace(small_audit.models[0].spec, name=name), gates=(gate,))
    text = markdown(replace(small_audit, fleet=name, models=(replace(model, outcome=Outcome.FAIL),)))
    kinds = {token.type for token in tokens(text)}
    assert not kinds & {
        "html_inline",
        "html_block",
        "link_open",
        "image",
        "strong_open",
        "em_open",
        "code_inline",
        "s_open",
    }
    plain = " ".join(name.split())
    assert [plain, plain, "❌ fail", plain] in cells(text)
    assert sum(token.type == "heading_open" for token in tokens(text)) == 1
