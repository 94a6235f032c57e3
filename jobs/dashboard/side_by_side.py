"""Two audits side by side: per model and class both numbers, their difference, and whether their intervals overlap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jobs.dashboard.answers import ClassDifference, Difference, ModelDifference
from jobs.dashboard.views import metrics_of
from services.records import Estimate
from tracking.bundle.classes import GroupRow
from tracking.bundle.group_table import finite
from tracking.bundle.overview import ModelOverview, Overview, SeriesOverview

NO_TEST = (
    "Whether two intervals overlap is not a test. Intervals that do not overlap speak for a difference, though among "
    "many models and numbers some part by chance; intervals that overlap may still hide one: the samples of two audits "
    "are mostly the same, and only a test on paired samples makes use of that."
)


def difference(before: Estimate | None, after: Estimate | None) -> Difference:
    """Both numbers, the later minus the earlier, and whether their intervals overlap."""
    old, new = (finite(estimate.value) if estimate else None for estimate in (before, after))
    change = new - old if old is not None and new is not None else None
    return Difference(before=before, after=after, change=change, overlap=_overlap(before, after))


def model_differences(before: Overview, after: Overview, lens: str) -> list[ModelDifference]:
    """The models of either audit, those of the later one first."""
    old, new = ({model.name: model for model in audit.models} for audit in (before, after))
    return [_model(name, old.get(name), new.get(name), lens) for name in dict.fromkeys([*new, *old])]


def class_differences(before: Sequence[GroupRow], after: Sequence[GroupRow]) -> list[ClassDifference]:
    """The classes of either profile, the largest loss first; a class is the same when index and name are."""
    old, new = _scores(before), _scores(after)
    differences = [
        ClassDifference(index=index, name=name, difference=difference(old.get((index, name)), new.get((index, name))))
        for index, name in dict.fromkeys([*new, *old])
    ]
    return sorted(differences, key=lambda row: (row.difference.change is None, row.difference.change or 0.0, row.index))


def cautions(before: Overview, after: Overview, old: SeriesOverview | None, new: SeriesOverview | None) -> list[str]:
    """What a reader must know before reading a difference."""
    return [*_cautions(before, after, old, new), NO_TEST]


def _cautions(
    before: Overview, after: Overview, old: SeriesOverview | None, new: SeriesOverview | None
) -> Iterator[str]:
    if before.content != after.content:
        yield (
            "The two audits saw other samples: a difference may come from the samples as well as from the models "
            f"({before.samples}, {before.count:,} samples; then {after.samples}, {after.count:,} samples)."
        )
    if old is None and new is not None:
        yield f"The earlier audit did not measure {new.title}."
    if not (before.content and after.content):
        yield "One of the audits does not say what its samples were, so whether they are the same is not known."
    if old is not None and new is not None:
        yield from _measured_otherwise(old, new)
    if old is not None and new is not None and old.delta != new.delta:
        yield f"The intervals have other levels: delta {old.delta:g}, then {new.delta:g}."


def _measured_otherwise(old: SeriesOverview, new: SeriesOverview) -> Iterator[str]:
    """What `jobs.comparison.comparable` refuses to compare, as far as an overview holds it."""
    if (old.title, old.bound) != (new.title, new.bound):
        yield f"The series is not the same in both: {old.title}, then {new.title}."
    elif old.version != new.version:
        yield f"{new.title}: another version of the measure, so its numbers are not compared by any gate."
    elif old.definition and new.definition and old.definition != new.definition:
        yield f"{new.title}: measured with other parameters, so its numbers are not compared by any gate."


def _model(name: str, old: ModelOverview | None, new: ModelOverview | None, lens: str) -> ModelDifference:
    first, second = (metrics_of(model.find(lens) if model else None) for model in (old, new))
    return ModelDifference(
        name=name,
        before=old.outcome if old else None,
        after=new.outcome if new else None,
        same_weights=old.digest == new.digest if old and new else None,
        metrics={metric: difference(first.get(metric), second.get(metric)) for metric in second or first},
    )


def _scores(rows: Sequence[GroupRow]) -> Mapping[tuple[int, str], Estimate]:
    return {(row.group.index, row.group.name): row.group.score for row in rows}


def _overlap(before: Estimate | None, after: Estimate | None) -> bool | None:
    if before is None or after is None:
        return None
    limits = [finite(limit) for estimate in (before, after) for limit in (estimate.low, estimate.high)]
    if any(limit is None for limit in limits):
        return None
    low, high, other_low, other_high = (limit for limit in limits if limit is not None)
    return low <= other_high and other_low <= high
