"""The verdict as Markdown, for the summary of a CI run, a pull request or a wiki."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from services.records import AuditResult, ModelResult, Outcome
from tracking.bundle.reasons.why import why_words
from tracking.bundle.summary import worst_first
from tracking.bundle.words import advice_words, verdict_words
from tracking.names import shorten
from tracking.report.junit import RAN

MOST_MODELS, LONGEST = 50, 400
"""Rows of a table, and characters of a text."""
MARKS = {Outcome.PASS: "✅", Outcome.FAIL: "❌", Outcome.UNDECIDED: "❔", Outcome.ERROR: "⚠️"}
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!&])")


def markdown(result: AuditResult) -> str:
    """Heading, sentences, and two tables: models with their outcomes, and the gates that are not passed."""
    judged = worst_first(result.models)
    shown = judged[:MOST_MODELS]
    lines = [f"## {_mark(result.outcome)} {_plain(result.fleet)}", ""]
    sentences = (verdict_words(result), *advice_words(result), *why_words(result))
    lines += [f"{_plain(sentence)}  " for sentence in sentences]
    lines += ["", *_table(("model", "verdict", "gates passed"), map(_model, shown))]
    if len(shown) < len(judged):
        lines += ["", f"{len(shown)} of {len(judged)} models; the report has all of them."]
    missed = list(_missed(shown))
    if missed:
        lines += ["", *_table(("model", "gate", "outcome", "why"), missed)]
    counted = f"{result.samples.count:,} samples of {len(result.samples.classes)} classes"
    return "\n".join([*lines, "", f"Audit {_plain(result.audit_id)}: {counted}.", ""])


def _model(model: ModelResult) -> Sequence[str]:
    passed = sum(gate.outcome is Outcome.PASS for gate in model.gates)
    return (model.spec.name, _mark(model.outcome), f"{passed} of {len(model.gates)}" if model.gates else "none set")


def _missed(models: Iterable[ModelResult]) -> Iterator[Sequence[str]]:
    for model in models:
        if not model.gates and model.outcome is Outcome.ERROR:
            yield model.spec.name, RAN, _mark(model.outcome), "; ".join(model.reasons)
        for gate in model.gates:
            if gate.outcome is not Outcome.PASS:
                yield model.spec.name, gate.text, _mark(gate.outcome), gate.reason


def _mark(outcome: Outcome) -> str:
    return f"{MARKS[outcome]} {outcome.value}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(map(_plain, row))} |"


def _plain(text: str) -> str:
    """Text that Markdown and HTML take for nothing but text, in one line."""
    return _SPECIAL.sub(r"\\\1", shorten(" ".join(text.split()), LONGEST))
