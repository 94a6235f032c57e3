"""A repair in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from jobs.repair.record import OPEN, REPAIRED, WORSE, Repair
from services.errors import counted
from services.records import Estimate
from tracking.bundle.comparison import Comparison
from tracking.names import shorten
from tracking.report.comparison_words import comparison_words

MOST_OFFSETS = 100
THE_REPAIR = ("model", "declaration")
"""What a repaired network differs in by itself."""
VERDICTS = {
    REPAIRED: "the worst class gained",
    WORSE: "the worst class lost",
    OPEN: "whether the worst class gained cannot be told",
}


def repair_words(repair: Repair, comparison: Comparison, remedies: Sequence[Repair] = ()) -> Iterator[str]:
    """What the fresh samples show, what it cost, and the line for the fleet file."""
    name = shorten(repair.model, 60)
    shown = VERDICTS[repair.verdict]
    yield f"{name} under {repair.series}: {repair.verdict}; {shown} on {repair.samples:,} fresh samples."
    yield f"worst class  {repair.worst_before:.4f} to {repair.worst_after:.4f}, change {_signed(repair.worst)}"
    yield f"mean         change {_signed(repair.mean)}"
    yield (
        f"Each limit misses with a chance of at most {100 * repair.level:.3g} %. The samples that were kept apart "
        f"were used {counted(repair.use, 'time')} since the last acceptance."
    )
    points = ", ".join(f"{worst:.3f} for {mean:.3f}" for worst, mean in repair.tried)
    yield f"On the {repair.fitted:,} samples of the fit, worst class for mean: {points}."
    others = tuple(each for each in comparison.drift if each.kind not in THE_REPAIR)
    yield from comparison_words(replace(comparison, drift=others), earlier="the audit before the repair")
    if len(remedies) > 1:
        yield from front_words(remedies)
    if repair.uri:
        yield f"For the fleet file: uri: {repair.uri}"
    elif len(repair.offsets) <= MOST_OFFSETS:
        yield f"For the fleet file: offsets: [{', '.join(f'{value:g}' for value in repair.offsets)}]"
    else:
        yield "The offsets stand in repair.json of the bundle."


def front_words(remedies: Sequence[Repair]) -> Iterator[str]:
    """All repairs that the same samples showed, and which of them no other is better than in worst class and mean."""
    yield f"Repairs of {shorten(remedies[0].model, 60)} so far, on the same fresh samples (* none is better in both):"
    points = [(each.worst_after, each.mean.value or 0.0) for each in remedies]
    for each, point in zip(remedies, points, strict=True):
        beaten = any(other != point and other[0] >= point[0] and other[1] >= point[1] for other in points)
        shown = f"worst {_signed(each.worst)}, mean {_signed(each.mean)}"
        yield f"{' ' if beaten else '*'} {each.remedy:8} {each.verdict:9} {shown}"


def _signed(estimate: Estimate) -> str:
    if estimate.value is None:
        return estimate.reason
    return f"{estimate.value:+.4f} ({estimate.low or 0.0:+.4f} to {estimate.high or 0.0:+.4f})"
