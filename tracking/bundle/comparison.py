"""What changed between two audits of a fleet, as records, and its file ``comparison.json`` in the bundle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AliasChoices, Field, TypeAdapter

from services.records import Estimate
from tracking.bundle.record_file import RecordFile

COMPARISON = "comparison.json"
SCHEMA_VERSION = 1
OVERALL = "overall"

Flag = Literal["worse", "better", "not separated"]


@dataclass(frozen=True, slots=True)
class GroupChange:
    """One class, or all samples, of one series of one model: then and now.

    Attributes:
        index: the label; -1 for all samples.
        name: of the class; "overall" for all samples.
        n: samples that both audits scored.
        then, now: mean scores over them.
        difference: now minus before; the limits of all differences of a comparison hold together.
        p: adjusted for all comparisons and both directions.
    """

    index: int
    name: str
    n: int
    then: float
    now: float
    difference: Estimate
    p: float
    flag: Flag


@dataclass(frozen=True, slots=True)
class SeriesChange:
    """One series of one model.

    Attributes:
        series, title: its key and its name for people.
        reason: why it was not compared; "" when it was.
        tests: of the p-values: of the classes, and of all samples.
        overall: all samples together; None when not compared.
        groups: the classes; of a comparison of very many, those that are worse or better.
        worse, better, not_separated: classes so flagged.
        bound: scores lie in [0, bound].
    """

    series: str
    title: str
    reason: str = ""
    tests: tuple[str, ...] = ()
    overall: GroupChange | None = None
    groups: tuple[GroupChange, ...] = ()
    worse: int = 0
    better: int = 0
    not_separated: int = 0
    bound: float = 1.0


@dataclass(frozen=True, slots=True)
class MovedPair:
    """A class that goes to another class more often, or less, than in the earlier audit.

    Attributes:
        series, title: under which predictions, and their name for people.
        label, predicted: names of the classes.
        then, now: shares of the class.
        difference: now less then; its limits hold for all pairs of classes of the series together.
    """

    series: str
    title: str
    label: str
    predicted: str
    then: float
    now: float
    difference: Estimate


@dataclass(frozen=True, slots=True)
class ModelChange:
    """One model that both audits have; `reason` says why none of its series was compared.

    Attributes:
        moved: the confusions whose difference is certain, the largest first.
    """

    name: str
    series: tuple[SeriesChange, ...] = ()
    reason: str = ""
    moved: tuple[MovedPair, ...] = ()


@dataclass(frozen=True, slots=True)
class Drift:
    """Something besides the scores that is not what it was.

    Attributes:
        kind: "samples", "class counts", "model", "declaration", "alias", "temperature", "measure", "versions",
            "added", "gone" or "renamed".
        subject: which: a model, a class, a package; "" for the fleet.
        then, now: as text; "" where there is none.
    """

    kind: str
    subject: str
    then: str = ""
    now: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """An audit against an earlier one of its fleet.

    Attributes:
        audit_id, compared_with: the later audit, and the earlier one (the accepted one, or any).
        started, compared_started: when they began.
        alpha: at most this is the probability of one or more false flags among all (`error_rate` says so).
        comparisons: how many were made: models x series x (classes and the whole).
        worse, better: of them, so flagged.
        not_comparable: series of models in both audits that could not be compared.
        drift: what else is not what it was.
        left_out: classes without a flag that are counted and not listed.
        looks: how many audits were compared with the accepted one, this one included; 0 for a comparison of its own.
        bound: the chance of one or more false "worse" in all these audits, at most.
        pooled: earlier audits of the same versions on other samples whose scores were added.
    """

    fleet: str
    audit_id: str
    compared_with: Annotated[str, Field(validation_alias=AliasChoices("compared_with", "baseline"))]
    started: str
    compared_started: Annotated[str, Field(validation_alias=AliasChoices("compared_started", "baseline_started"))]
    alpha: float
    comparisons: int
    worse: int
    better: int
    not_comparable: int
    models: tuple[ModelChange, ...] = ()
    drift: tuple[Drift, ...] = ()
    left_out: int = 0
    looks: int = 0
    bound: float | None = None
    pooled: int = 0
    error_rate: str = "family-wise over all comparisons and both directions (Holm), under any dependence"
    schema_version: int = SCHEMA_VERSION

    def flagged(self, flag: Flag) -> Iterator[tuple[ModelChange, SeriesChange, GroupChange]]:
        """What is so flagged, the largest difference (as a share of the series' range) first."""
        matches = [
            (model, series, group)
            for model in self.models
            for series in model.series
            for group in ((series.overall,) if series.overall else ()) + series.groups
            if group.flag == flag
        ]
        yield from sorted(matches, key=lambda each: -abs(each[2].difference.value or 0.0) / each[1].bound)


_FILE = RecordFile(
    COMPARISON,
    TypeAdapter(Comparison),
    "a comparison of classwise",
    "delete it, and compare with classwise compare",
    SCHEMA_VERSION,
)


def write_comparison(comparison: Comparison, folder: str) -> None:
    """Write ``comparison.json`` into a bundle's folder; raises as `RecordFile.write`."""
    _FILE.write(comparison, folder)


def read_comparison(folder: str) -> Comparison | None:
    """The comparison of the bundle in `folder`; None when it was compared with nothing; raises as `RecordFile.read`."""
    return _FILE.read(folder)


def plain(comparison: Comparison) -> dict[str, object]:
    """As JSON takes it."""
    body: dict[str, object] = _FILE.adapter.dump_python(comparison, mode="json")
    return body
