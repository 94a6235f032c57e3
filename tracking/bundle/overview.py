"""The small file beside a bundle: everything an audit found but the classes, so that a list of audits reads kilobytes.

``overview.json`` is written just before ``bundle.json`` and holds that file's length: an overview of another length
than the bundle beside it is not of that bundle, and is not believed. The classes are in the Parquet tables. Of 500
audits of 20 models and 100 classes it is 29 MB and a second to read; their bundles are 910 MB and 38 seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pydantic import TypeAdapter, ValidationError

from services.records import (
    SCHEMA_VERSION,
    AttackResult,
    AuditResult,
    Estimate,
    Evidence,
    GateResult,
    ModelResult,
    Outcome,
    SeriesResult,
)
from services.storage import files
from tracking.bundle import group_table
from tracking.bundle.headline import Entry, is_refuted, reading_order
from tracking.bundle.reasons.next_steps import next_steps
from tracking.bundle.reasons.why import why_words
from tracking.bundle.summary import in_reading_order, is_sound, lens, refuted
from tracking.bundle.words import advice_words, fleet_words, series_words, verdict_words

OVERVIEW = "overview.json"
MOST_NAMES = 3
MOST_REASONS = 50


@dataclass(frozen=True, slots=True)
class SeriesOverview:
    """One series of one model without its groups.

    Attributes:
        lens: its name, unique within a model: ``great``, ``great/by-sex``.
        key, title, unit, bound, binary, family, evidence: of `services.records.Series`.
        grouping: "class" or the name of a column.
        metrics: of `services.records.SeriesResult`.
        worst: names of the groups with the smallest mean, the first three of those that tie; `ties` are all of these.
        groups, missing, close: how many groups there are, have no samples, are not separated from the worst.
        delta, method: of the intervals.
        refuted: share of a GREAT score's claims that attacks refuted; None where that was not tested.
        gap: train minus test of the aggregate; None unless the audit measured it.
        words: what the numbers mean, as in the report.
        version, definition: of the series; 0 and "" where a record of 0.1.0 does not say.
        sound: False for numbers of an inadequate attack and for a refuted claim.
    """

    lens: str
    key: str
    title: str
    unit: str
    bound: float
    binary: bool
    family: str
    evidence: Evidence
    grouping: str
    metrics: dict[str, Estimate]
    worst: tuple[str, ...]
    groups: int
    missing: int
    close: int
    delta: float
    method: str
    refuted: Estimate | None
    gap: Estimate | None
    words: str
    ties: int = 0
    sound: bool = True
    version: int = 0
    definition: str = ""

    def metric(self, name: str) -> Estimate:
        """The metric of that name; undefined in audits of versions that did not have it."""
        return self.metrics.get(name, Estimate(None, reason="not known in this audit's version"))


@dataclass(frozen=True, slots=True)
class AttributeGap:
    """The largest gap between the groups of an attribute under one metric, and the class of that decision."""

    grouping: str
    metric: str
    task: str
    gap: Estimate


@dataclass(frozen=True, slots=True)
class ModelOverview:
    """One model: its verdict and its series.

    Attributes:
        name, digest, outcome, reasons, gates: of `services.records.ModelResult`; at most 50 reasons.
        threat: the threat model as people write it.
        table: file name of the Parquet table of its groups.
        notes: those of no series.
        gaps: of the attributes that its decisions were judged by.
        attacks: whether each was adequate, without the signs that do not show.
    """

    name: str
    digest: str
    outcome: Outcome
    reasons: tuple[str, ...]
    gates: tuple[GateResult, ...]
    threat: str
    table: str
    series: tuple[SeriesOverview, ...]
    notes: tuple[str, ...] = ()
    gaps: tuple[AttributeGap, ...] = ()
    attacks: tuple[AttackResult, ...] = ()

    def find(self, name: str) -> SeriesOverview | None:
        """The series under that lens."""
        return next((series for series in self.series if series.lens == name), None)


@dataclass(frozen=True, slots=True)
class Overview:
    """One audit: the content of ``overview.json``.

    Attributes:
        audit_id, fleet, started, finished, outcome, compared_with, versions: of `services.records.AuditResult`.
        samples, content, count, classes: of the samples: their URI and digest, how many, of how many classes.
        verdict: the outcome as a sentence.
        words: what the fleet's numbers mean.
        advice, why, steps: for who decides, what the weakest class is taken for, and what to do next.
        size: length of the ``bundle.json`` that this is of.
        pixels: values of an image, C H W.
    """

    audit_id: str
    fleet: str
    started: str
    finished: str
    outcome: Outcome
    compared_with: str
    samples: str
    content: str
    count: int
    classes: int
    verdict: str
    words: tuple[str, ...]
    versions: dict[str, str]
    models: tuple[ModelOverview, ...]
    size: int
    pixels: int
    schema_version: int = SCHEMA_VERSION
    advice: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()

    @property
    def lenses(self) -> dict[str, SeriesOverview]:
        """All series of the audit by lens, the headline first; of those that several models have the first one's."""
        by_lens: dict[str, SeriesOverview] = {}
        every = [series for model in self.models for series in model.series]
        for series in every:
            by_lens.setdefault(series.lens, series)
        entries = (Entry(s.lens, s.grouping, s.evidence, s.family, s.binary, _sound(s)) for s in every)
        return {lens: by_lens[lens] for lens in reading_order(entries, (model.gates for model in self.models))}


def _sound(series: SeriesOverview) -> bool:
    """`sound`; bundles of before it was kept have the refuted share alone."""
    return series.sound and not is_refuted(series.refuted)


_ADAPTER: TypeAdapter[Overview] = TypeAdapter(Overview)


def overview_of(result: AuditResult, size: int) -> Overview:
    """The overview of an audit whose ``bundle.json`` has `size` bytes."""
    return Overview(
        audit_id=result.audit_id,
        fleet=result.fleet,
        started=result.started,
        finished=result.finished,
        outcome=result.outcome,
        compared_with=result.compared_with,
        samples=result.samples.uri,
        content=result.samples.digest,
        count=result.samples.count,
        classes=len(result.samples.classes),
        verdict=verdict_words(result),
        words=tuple(fleet_words(result)),
        versions=result.versions,
        models=tuple(_model(model, group_table.file_of(result, place)) for place, model in enumerate(result.models)),
        size=size,
        advice=tuple(advice_words(result)),
        why=tuple(why_words(result)),
        steps=tuple(next_steps(result)),
        pixels=math.prod(result.samples.shape),
    )


def write_overview(result: AuditResult, folder: str, size: int) -> None:
    """Write ``overview.json`` beside the bundle that is about to be written with `size` bytes."""
    files.write_bytes(files.join(folder, OVERVIEW), _ADAPTER.dump_json(overview_of(result, size)))


def parsed_overview(data: bytes) -> Overview | None:
    """The overview, or None when this is none of this schema version, or of before a field was kept."""
    try:
        overview = _ADAPTER.validate_json(data)
    except ValidationError:
        return None
    return overview if overview.schema_version == SCHEMA_VERSION else None


def _model(model: ModelResult, table: str) -> ModelOverview:
    threat = model.spec.threat_model
    gaps = {gap.lens: gap.gap for gap in model.generalisation}
    repeated = {note for result in model.series for note in result.notes}
    return ModelOverview(
        name=model.spec.name,
        digest=model.digest,
        outcome=model.outcome,
        reasons=model.reasons[:MOST_REASONS],
        gates=model.gates,
        threat=threat.words if threat else "not declared",
        table=table,
        series=tuple(_series(model, result, gaps) for result in in_reading_order(model)),
        notes=tuple(note for note in model.notes if note not in repeated),
        gaps=tuple(
            AttributeGap(result.grouping, metric, result.worst_task.get(metric, ""), gap)
            for result in model.fairness
            for metric, gap in result.worst.items()
        ),
        attacks=tuple(
            replace(attack, signs=tuple(sign for sign in attack.signs if sign.shown)) for attack in model.attacks
        ),
    )


def _series(model: ModelResult, result: SeriesResult, gaps: dict[str, Estimate]) -> SeriesOverview:
    series, name = result.series, lens(result)
    tested = refuted(model, name)
    return SeriesOverview(
        lens=name,
        key=series.key,
        title=series.title,
        unit=series.unit,
        bound=series.bound,
        binary=series.binary,
        family=series.family,
        evidence=series.evidence,
        grouping=result.grouping,
        metrics=result.metrics,
        worst=result.worst[:MOST_NAMES],
        groups=len(result.groups),
        missing=len(result.missing),
        close=len(result.not_separated),
        delta=result.delta,
        method=result.method,
        refuted=tested.overall if tested else None,
        gap=gaps.get(name),
        words=" ".join(series_words(result)),
        ties=len(result.worst),
        sound=is_sound(model, result),
        version=series.version,
        definition=series.definition,
    )
