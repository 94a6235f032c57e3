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


def summary(found: Comparison) -> str:
    """One line: ``3 worse, 1 better of 66 comparisons with 20261128T...; 2 series not compared``."""
    text = f"{found.worse} worse, {found.better} better of {found.comparisons} comparisons with {found.baseline}"
    return f"{text}; {found.not_comparable} series not compared" if found.not_comparable else text


def comparison_words(
    found: Comparison, shown: int = SHOWN, *, flags: bool = True, earlier: str = "the accepted audit"
) -> list[str]:
    """What is worse and better, what could not be compared, and what else changed.

    Args:
        shown: flags, and findings of a kind, that are spelled out.
        flags: False where a table lists them.
        earlier: what the earlier audit is.
    """
    chance = f"the chance that any flag is false is at most {100 * found.alpha:g} %"
    head = f"Since {earlier} {found.baseline}: {found.worse} worse and {found.better} better"
    lines = [f"{head} of {found.comparisons} comparisons; {chance}."]
    if not found.comparisons:
        lines = [f"Since {earlier} {found.baseline}: nothing could be compared."]
    return [*lines, *(_flags(found, shown) if flags else ()), *_not_compared(found), *drift_words(found, shown)]


def drift_words(found: Comparison, shown: int = SHOWN) -> Iterator[str]:
    """What else changed, a sentence a kind."""
    for kind in dict.fromkeys(one.kind for one in found.drift):
        mine = [one for one in found.drift if one.kind == kind]
        changes = "; ".join(_drift(one) for one in mine[:shown])
        more = f"; and {len(mine) - shown} more" if len(mine) > shown else ""
        yield f"{_DRIFT.get(kind, kind)}: {changes}{more}"


def rows(found: Comparison, most: int) -> list[dict[str, Any]]:
    """Rows of the report's table: what is worse, then better, then the wholes that are not separated."""
    listed = [*found.flagged("worse"), *found.flagged("better")]
    listed += [each for each in found.flagged("not separated") if each[2].index < 0]
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


def _flags(found: Comparison, shown: int) -> Iterator[str]:
    for flag in ("worse", "better"):
        flagged = list(found.flagged(flag))
        for model, series, group in flagged[:shown]:
            yield f"{flag}: {shorten(model.name, 40)}, {series.series}, {_group(group)}"
        if len(flagged) > shown:
            yield f"and {len(flagged) - shown} more {flag}"


def _group(change: GroupChange) -> str:
    name = "all samples" if change.index < 0 else f"class {shorten(change.name)}"
    return f"{name}: {number(change.then)} to {number(change.now)}, p {_p(change.p)}"


def _not_compared(found: Comparison) -> Iterator[str]:
    reasons = Counter(series.reason for model in found.models for series in model.series if series.reason)
    for reason, count in reasons.most_common(SHOWN):
        yield f"not compared: {count} series, {reason}"


def _drift(one: Drift) -> str:
    if one.kind == "renamed":
        return f"{shorten(one.then, 40)} is now {shorten(one.now, 40)}"
    if one.kind in ("added", "gone"):
        return shorten(one.subject, 40)
    subject = f"{shorten(one.subject, 60)}: " if one.subject else ""
    return f"{subject}{one.then}, now {one.now}"


def _p(value: float) -> str:
    return "< 0.0001" if value < 0.0001 else f"= {value:.2g}"
