"""A comparison in sentences and rows, for the terminal, the report, notifications and the schedule's record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from tracking.bundle.comparison import Comparison, Drift, GroupChange
from tracking.bundle.words import interval, number
from tracking.names import shorten

SHOWN = 8
"""Flags, and findings of one kind, that are spelled out; the rest is counted."""

_DRIFT = {
    "samples": "samples changed",
    "class counts": "class sizes changed",
    "model": "weights or code changed under a name",
    "declaration": "declared otherwise",
    "alias": "alias moved",
    "temperature": "temperature changed",
    "measure": "measure changed",
    "versions": "software changed",
    "added": "model added",
    "gone": "model gone",
    "renamed": "model renamed",
}


def summary(record: Comparison) -> str:
    """One line: ``3 worse, 1 better of 66 comparisons with 20261128T...; 2 series not compared``."""
    flagged = f"{record.worse} worse, {record.better} better"
    text = f"{flagged} of {record.comparisons} comparisons with {record.compared_with}"
    text = f"{text}; {record.not_comparable} series not compared" if record.not_comparable else text
    if record.bound is None:
        return text
    return f'{text}; false "worse" in {record.looks} audits since the acceptance: at most {100 * record.bound:.2g} %'


def comparison_words(
    record: Comparison, shown: int = SHOWN, *, flags: bool = True, earlier: str = "the accepted audit"
) -> list[str]:
    """What is worse and better, what could not be compared, and what else changed.

    Args:
        shown: flags, and findings of a kind, that are spelled out.
        flags: False where a table lists them.
        earlier: what the earlier audit is.
    """
    chance = f"the chance that any flag is false is at most {100 * record.alpha:.3g} %"
    if record.bound is not None:
        chance += f", and in all {record.looks} audits since the acceptance at most {100 * record.bound:.3g} %"
    head = f"Since {earlier} {record.compared_with}: {record.worse} worse and {record.better} better"
    lines = [f"{head} of {record.comparisons} comparisons; {chance}."]
    if not record.comparisons:
        lines = [f"Since {earlier} {record.compared_with}: nothing could be compared."]
    lines += [*(_flags(record, shown) if flags else ()), *_moved(record, shown)]
    return [*lines, *_not_compared(record), *drift_words(record, shown)]


def _moved(record: Comparison, shown: int) -> Iterator[str]:
    """Confusions that are certainly others than before."""
    moved = [(model.name, pair) for model in record.models for pair in model.moved]
    moved.sort(key=lambda each: -abs(each[1].difference.value or 0.0))
    for name, pair in moved[:shown]:
        side = "more" if pair.now > pair.then else "less"
        to = shorten(pair.predicted, 40) if pair.predicted else "no class"
        points = [100 * (value or 0.0) for value in (pair.difference.low, pair.difference.high)]
        yield (
            f"{shorten(name, 40)}, {pair.title}: {shorten(pair.label, 40)} goes to {to} {side} often, "
            f"{100 * pair.now:.0f} % instead of {100 * pair.then:.0f} % ({points[0]:+.0f} to {points[1]:+.0f} points)"
        )
    if len(moved) > shown:
        yield f"and {len(moved) - shown} more confusions that changed"


def drift_words(record: Comparison, shown: int = SHOWN) -> Iterator[str]:
    """What else changed, a sentence a kind."""
    for kind in dict.fromkeys(drift.kind for drift in record.drift):
        mine = [drift for drift in record.drift if drift.kind == kind]
        changes = "; ".join(_drift(drift) for drift in mine[:shown])
        more = f"; and {len(mine) - shown} more" if len(mine) > shown else ""
        yield f"{_DRIFT.get(kind, kind)}: {changes}{more}"


def rows(record: Comparison, most: int) -> list[dict[str, Any]]:
    """Rows of the report's table: what is worse, then better, then the wholes that are not separated."""
    listed = [*record.flagged("worse"), *record.flagged("better")]
    listed += [each for each in record.flagged("not separated") if each[2].index < 0]
    return [
        {
            "model": shorten(model.name, 48),
            "series": series.title,
            "group": shorten(group.name, 28),
            "n": group.n,
            "then": number(group.then),
            "now": number(group.now),
            "difference": interval(group.difference),
            "value": group.difference.value,
            "p": _p(group.p).removeprefix("= "),
            "flag": group.flag,
        }
        for model, series, group in listed[:most]
    ]


def _flags(record: Comparison, shown: int) -> Iterator[str]:
    for flag in ("worse", "better"):
        flagged = list(record.flagged(flag))
        for model, series, group in flagged[:shown]:
            yield f"{flag}: {shorten(model.name, 40)}, {series.series}, {_group(group)}"
        if len(flagged) > shown:
            yield f"and {len(flagged) - shown} more {flag}"


def _group(change: GroupChange) -> str:
    name = "all samples" if change.index < 0 else f"class {shorten(change.name)}"
    return f"{name}: {number(change.then)} to {number(change.now)}, p {_p(change.p)}"


def _not_compared(record: Comparison) -> Iterator[str]:
    reasons = Counter(series.reason for model in record.models for series in model.series if series.reason)
    for reason, count in reasons.most_common(SHOWN):
        yield f"not compared: {count} series, {reason}"


def _drift(drift: Drift) -> str:
    if drift.kind == "renamed":
        return f"{shorten(drift.then, 40)} is now {shorten(drift.now, 40)}"
    if drift.kind in ("added", "gone"):
        return shorten(drift.subject, 40)
    subject = f"{shorten(drift.subject, 60)}: " if drift.subject else ""
    return f"{subject}{drift.then}, now {drift.now}"


def _p(value: float) -> str:
    return "< 0.0001" if value < 0.0001 else f"= {value:.2g}"
