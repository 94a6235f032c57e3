"""Why a class is weak, in sentences: what its samples are taken for, made from the confusions of a record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from services.records import NO_CLASS, AuditResult, ConfusedPair, ConfusionResult, ModelResult, Outcome
from tracking.bundle.headline import deciding_gates, inadequate
from tracking.bundle.summary import in_reading_order, worst_first
from tracking.names import shorten

MOST = 3
"""Sentences."""
NOTABLE = 0.15
"""A share without an attack from which a sentence says that the confusion was there before."""


def why_words(audit: AuditResult) -> list[str]:
    """At most three sentences: what the first model's weakest class goes to, whether others agree, what comes next."""
    judged = worst_first([model for model in audit.models if model.outcome is not Outcome.ERROR])
    pairs = [(model, confusion) for model in judged if (confusion := headline_confusion(model))]
    if not pairs:
        return []
    model, confusion = pairs[0]
    who = f"{shorten(model.spec.name, 40)}: " if len(audit.models) > 1 else ""
    if not confusion.pairs:
        return [f"{who}no sample went to another class {confusion.under}."]
    names, first = audit.samples.classes, confusion.pairs[0]
    lines = [who + pair_words(first, names, confusion) + _before(first) + _unsound(model, confusion) + "."]
    others = [_same(other, confusion) for other in judged]
    lines += _agreement([each for each in others if each is not None], first, names)
    lines += _next(confusion, names, who)
    return lines[:MOST]


def _same(model: ModelResult, confusion: ConfusionResult) -> ConfusionResult | None:
    """The confusions of a model under the same series; None where the attack was inadequate on it."""
    if inadequate(model, confusion.series):
        return None
    return next((each for each in model.confusions if each.series == confusion.series), None)


def headline_confusion(model: ModelResult) -> ConfusionResult | None:
    """The confusions that the verdict is about: of the gate that decided, else of the first attack that was adequate.

    An inadequate attack comes after everything else: what it left in its class says nothing.
    """
    known = {confusion.series: confusion for confusion in model.confusions}
    keys = [result.series.key for result in in_reading_order(model) if result.series.key in known]
    decided = [gate.threshold.measure for gate in deciding_gates(model.gates) if gate.threshold] if model.gates else []
    keys.sort(key=lambda key: (inadequate(model, key), key not in decided, not known[key].attack))
    return known[keys[0]] if keys else None


def pair_words(pair: ConfusedPair, names: tuple[str, ...], confusion: ConfusionResult) -> str:
    """``under PGD-20 accuracy (Linf 8/255) 62 % (55 to 69 %) of cat goes to dog``."""
    share, low, high = (100 * (side or 0.0) for side in (pair.share.value, pair.share.low, pair.share.high))
    return (
        f"{confusion.under} {share:.0f} % ({low:.0f} to {high:.0f} %, {pair.count:,} of {pair.n:,}) of "
        f"{class_words(names, pair.label)} goes to {class_words(names, pair.predicted)}"
    )


def class_words(names: tuple[str, ...], index: int) -> str:
    """The class as a sentence names it."""
    if index == NO_CLASS:
        return "no class (logits that are not finite)"
    name = shorten(names[index], 40) if index < len(names) else str(index)
    return f"class {name}" if name.replace(".", "", 1).isdecimal() else name


def _unsound(model: ModelResult, confusion: ConfusionResult) -> str:
    """An inadequate attack found fewer adversarials than there are."""
    inadequate_one = inadequate(model, confusion.series)
    return "; that attack was inadequate, so it is at least that much" if inadequate_one else ""


def _before(pair: ConfusedPair) -> str:
    if pair.clean is None:
        return ""
    clean = f"{100 * pair.clean:.0f} %"
    return f"; without an attack {clean} does" + (
        "" if pair.clean < NOTABLE else ", so it is confused before any attack"
    )


def _agreement(confusions: list[ConfusionResult], first: ConfusedPair, names: tuple[str, ...]) -> Iterator[str]:
    """In how many models that class goes to that other class most often."""
    tops = [next((p for p in each.pairs if p.label == first.label), None) for each in confusions]
    known = [pair for pair in tops if pair is not None]
    if len(known) < 2:
        return
    target, times = Counter(pair.predicted for pair in known).most_common(1)[0]
    whose = "models in which it is among the weakest" if len(known) < len(confusions) else "models"
    who, to = class_words(names, first.label), class_words(names, target)
    if times < 2:
        yield f"Each of the {len(known)} {whose} takes {who} for a different class most often."
    else:
        yield f"In {times} of {len(known)} {whose} {who} goes to {to} more than to any other class."


def _next(confusion: ConfusionResult, names: tuple[str, ...], who: str) -> Iterator[str]:
    """The largest share of the next class, and whether the two classes are taken for each other."""
    first = confusion.pairs[0]
    back = next((p for p in confusion.pairs if (p.label, p.predicted) == (first.predicted, first.label)), None)
    if back is not None and back.share.value is not None:
        one, other = class_words(names, first.label), class_words(names, first.predicted)
        yield f"{who}{other} goes to {one} too ({100 * back.share.value:.0f} %): the two are taken for each other."
        return
    following = next((p for p in confusion.pairs if p.label != first.label), None)
    if following is not None and following.share.value is not None:
        label, to = class_words(names, following.label), class_words(names, following.predicted)
        yield f"{who}next is {label}, of which {100 * following.share.value:.0f} % goes to {to}."
