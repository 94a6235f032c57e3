"""The leaderboard as records: audited models, the rows and boards made of them, and both as flat tables.

A board holds only what may be ranked together: one data set, one threat model, one set of samples.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from services.records import SCHEMA_VERSION
from services.records.estimates import Estimate
from tracking.leaderboard.known_numbers import Catalogue
from tracking.leaderboard.numbers import Number
from tracking.names import cell, metric_key

UNDECLARED = "not declared"
NOT_MEASURED = Estimate(None, reason="not measured")


@dataclass(frozen=True, slots=True)
class AuditedModel:
    """One run: a model as one audit found it.

    Attributes:
        started: of the run, milliseconds since 1970.
        threat_model: as the audit recorded it: "Linf 0.0313725", or "not declared".
        samples, digest, count: the audited samples: their URI, digest ("" where unknown) and number (0 where unknown).
        temperature: of the calibration, as text.
        outcome: pass, fail, undecided or error.
        tags: what is known of the model: method, architecture, dataset, seed.
        numbers: by key, ``clean/aggregate``, ``ge/clean``; an undefined one with its reason.
        worst: name of the weakest class by series, as far as the run says it.
        catalogue: what the numbers are.
    """

    run_id: str
    experiment: str
    name: str
    audit_id: str
    started: int
    threat_model: str
    samples: str
    digest: str
    count: int
    temperature: str
    outcome: str
    tags: dict[str, str]
    numbers: dict[str, Estimate]
    worst: dict[str, str]
    catalogue: Catalogue = field(default_factory=Catalogue, compare=False)

    @property
    def when(self) -> tuple[str, int]:
        """Sort key of time: when the audit was, as its id tells, then when it was uploaded."""
        return self.audit_id, self.started

    @property
    def setting(self) -> tuple[str, str, str]:
        """What may be ranked together has this in common: data set, threat model, samples."""
        return self.tags.get("dataset", ""), self.threat_model, self.digest or self.samples


@dataclass(frozen=True, slots=True)
class Entry:
    """A row: one model, or the mean over several that differ in the seed alone, or published numbers.

    Attributes:
        seeds: of the models, where known.
        models: their names; empty for a published row.
        spreads: standard deviation over the models, by key; empty for one model.
        run_ids, audits: what the numbers come from.
        source: of published numbers, "" for measured ones.
        catalogue: what the numbers are.
    """

    name: str
    dataset: str
    architecture: str
    method: str
    threat_model: str
    numbers: dict[str, Estimate]
    samples: str = ""
    seeds: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    spreads: dict[str, float] = field(default_factory=dict)
    worst: dict[str, str] = field(default_factory=dict)
    experiments: tuple[str, ...] = ()
    run_ids: tuple[str, ...] = ()
    audits: tuple[str, ...] = ()
    source: str = ""
    catalogue: Catalogue = field(default_factory=Catalogue, compare=False)

    @property
    def count(self) -> int:
        """Models in the row; 1 for a published one."""
        return max(1, len(self.models))


@dataclass(frozen=True, slots=True)
class Metric:
    """A column that may count for the composite: its short name, the number it is, and its weight."""

    name: str
    number: Number
    title: str
    weight: float

    @property
    def key(self) -> str:
        return self.number.key

    @property
    def lower_is_better(self) -> bool:
        return self.number.lower_is_better


SCALE = (-0.5, 1.5)
"""As far as scores are drawn: 0 and 1 are the worst and the best row, and half of that on either side."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a row stands.

    Attributes:
        place: 1 is best; None without a score.
        score: the composite with its range, or why there is none.
        front: on the Pareto front; None where a criterion is missing.
        with_leader: not separated from the leader: its range reaches the leader's, or by pairs the leader is not
            certainly ahead; None where a range is unknown.
        between: the best and the worst place that it may have, by the ranges of all rows; None where its is unknown.
    """

    place: int | None
    score: Estimate
    front: bool | None
    with_leader: bool | None
    between: tuple[int, int] | None = None

    @property
    def wide(self) -> bool:
        """Whether the score's range is wider than what is drawn, so that its numbers tell nothing but that.

        It happens where the rows hardly differ in a metric: scaling stretches that metric's intervals by as much.
        """
        low, high = self.score.low, self.score.high
        return low is not None and high is not None and high - low > SCALE[1] - SCALE[0]


@dataclass(frozen=True)
class Board:
    """Rows that are ranked together, best first.

    Attributes:
        dataset, threat_model, samples: what the rows have in common; "" where they differ.
        count: samples, 0 where unknown or different.
        metrics: what may count, those of weight 0 too.
        even: names of metrics with a weight in which all compared rows are equal, so that they count for none.
        criteria: keys that the Pareto front is drawn over.
        lens: the series of the columns "worst" and "NRGC"; "" where there is none.
        notes: plain sentences that a reader must know.
        split: tag `split` of all models: "train" where they were measured on what they were trained on.
    """

    dataset: str
    threat_model: str
    samples: str
    count: int
    metrics: tuple[Metric, ...]
    even: tuple[str, ...]
    criteria: tuple[str, ...]
    lens: str
    entries: tuple[Entry, ...]
    standings: tuple[Standing, ...]
    notes: tuple[str, ...]
    split: str = ""

    @property
    def title(self) -> str:
        """What is compared, in a line."""
        size = f"{self.count:,} {self.split} samples".replace("  ", " ") if self.count else ""
        threat = "threat model not declared" if self.threat_model == UNDECLARED else self.threat_model
        parts = (self.dataset or self.samples, threat, size if self.dataset or self.samples else "")
        return ", ".join(part for part in parts if part) or "different data sets and threat models"

    @property
    def class_keys(self) -> tuple[str, str]:
        """Keys of the columns "worst" and "NRGC"."""
        return metric_key(self.lens, "wcr"), metric_key(self.lens, "nrgc")

    @property
    def catalogue(self) -> Catalogue:
        """What all numbers of the rows are."""
        return merged(self.entries)

    @property
    def keys(self) -> list[str]:
        """Keys of all numbers that a row has, in reading order."""
        return self.catalogue.sorted(key for entry in self.entries for key in entry.numbers)


def merged(entries: Iterable[Entry]) -> Catalogue:
    """What the numbers of several rows are."""
    return Catalogue(entry.catalogue[key] for entry in entries for key in entry.numbers)


def board_json(board: Board) -> dict[str, Any]:
    """The board as plain values, everything in it."""
    rows = [
        {**asdict(standing), "n": entry.count, **_plain(replace(entry, catalogue=Catalogue()), "catalogue")}
        for entry, standing in zip(board.entries, board.standings, strict=True)
    ]
    metrics = [
        {**_plain(metric, "number"), "key": metric.key, "lower_is_better": metric.lower_is_better}
        for metric in board.metrics
    ]
    head = _plain(replace(board, entries=(), standings=(), metrics=()), "entries", "standings")
    return {"title": board.title, **head, "metrics": metrics, "rows": rows}


def _plain(record: Any, *without: str) -> dict[str, Any]:
    """The fields of a record as plain values, but for some."""
    return {name: value for name, value in asdict(record).items() if name not in without}


def flat_rows(boards: list[Board]) -> list[dict[str, Any]]:
    """One flat row a model, the same columns for all boards: identity, standing, then every number with its limits."""
    entries = [entry for board in boards for entry in board.entries]
    keys = merged(entries).sorted(key for entry in entries for key in entry.numbers)
    return [
        {**_head(board, entry, standing), **_numbers(entry, keys)}
        for board in boards
        for entry, standing in zip(board.entries, board.standings, strict=True)
    ]


def csv_text(boards: list[Board]) -> str:
    """The flat rows as CSV; an undefined number is an empty cell."""
    rows = flat_rows(boards)
    page = io.StringIO()
    writer = csv.writer(page, lineterminator="\n")
    table = [list(rows[0]) if rows else ["board"], *(list(row.values()) for row in rows)]
    writer.writerows([cell(each) if isinstance(each, str) else each for each in row] for row in table)
    return page.getvalue()


def fill_parquet(boards: list[Board], file: IO[bytes]) -> None:
    """Write the flat rows to an open file; an undefined number is null."""
    rows = flat_rows(boards)
    fields = [(name, _KINDS.get(name, pa.float64())) for name in (rows[0] if rows else ())]
    schema = pa.schema(fields, metadata={"schema_version": str(SCHEMA_VERSION)})
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), file, compression="zstd")


_TEXTS = ("board", "score_reason", "name", "dataset", "architecture", "method", "seeds", "threat_model", "samples")
_KINDS = {
    **dict.fromkeys((*_TEXTS, "models", "experiments", "audits", "run_ids", "published", "worst_class"), pa.string()),
    **dict.fromkeys(("place", "place_best", "place_worst", "n"), pa.int64()),
    **dict.fromkeys(("pareto_front", "not_separated_from_leader"), pa.bool_()),
}


def _head(board: Board, entry: Entry, standing: Standing) -> dict[str, Any]:
    score = standing.score
    return {
        "board": board.title,
        "place": standing.place,
        "place_best": None if standing.between is None else standing.between[0],
        "place_worst": None if standing.between is None else standing.between[1],
        "score": score.value,
        "score_low": score.low,
        "score_high": score.high,
        "score_reason": score.reason,
        "pareto_front": standing.front,
        "not_separated_from_leader": standing.with_leader,
        "name": entry.name,
        "dataset": entry.dataset,
        "architecture": entry.architecture,
        "method": entry.method,
        "n": entry.count,
        "seeds": " ".join(entry.seeds),
        "models": " ".join(entry.models),
        "threat_model": entry.threat_model,
        "samples": entry.samples,
        "worst_class": entry.worst.get(board.lens, ""),
        "published": entry.source,
        "experiments": " ".join(entry.experiments),
        "audits": " ".join(entry.audits),
        "run_ids": " ".join(entry.run_ids),
    }


def _numbers(entry: Entry, keys: list[str]) -> dict[str, float | None]:
    numbers: dict[str, float | None] = {}
    for key in keys:
        estimate = entry.numbers.get(key, NOT_MEASURED)
        numbers |= {key: estimate.value, f"{key}_low": estimate.low, f"{key}_high": estimate.high}
        numbers[f"{key}_sd"] = entry.spreads.get(key)
    return numbers
