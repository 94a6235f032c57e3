"""The leaderboard as records: audited models, the rows and boards made of them, and both as flat tables.

A board holds only what may be ranked together: one data set, one threat model, one set of samples.
"""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import asdict, dataclass, field
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from services.records import SCHEMA_VERSION
from services.records.estimates import Estimate

UNDECLARED = "not declared"
SECONDS = "train/seconds_per_epoch"
NOT_MEASURED = Estimate(None, reason="not measured")
LOWER = frozenset({"rdi", "nrgc", "refuted"})
"""Last parts of the keys of metrics that are smaller for a better model; so are all under ``ge/`` and ``train/``."""


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
        worst: name of the weakest class by series, as far as it can be read from a metric's key.
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

    @property
    def when(self) -> tuple[str, int]:
        """Sort key of time: when the audit was, by its id, then when it was uploaded."""
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

    @property
    def count(self) -> int:
        """Models in the row; 1 for a published one."""
        return max(1, len(self.models))


@dataclass(frozen=True, slots=True)
class Metric:
    """A column that may count for the composite: its short name, the key it is read from, and its weight."""

    name: str
    key: str
    title: str
    weight: float

    @property
    def lower_is_better(self) -> bool:
        return lower_is_better(self.key)


SCALE = (-0.5, 1.5)
"""As far as scores are drawn: 0 and 1 are the worst and the best row, and half of that on either side."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a row stands.

    Attributes:
        place: 1 is best; None without a score.
        score: the composite with its range, or why there is none.
        front: on the Pareto front; None where a criterion is missing.
        with_leader: its range reaches the leader's: not separated; None where a range is unknown.
    """

    place: int | None
    score: Estimate
    front: bool | None
    with_leader: bool | None

    @property
    def wide(self) -> bool:
        """Whether the score's range is wider than what is drawn, so that its numbers say nothing else.

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
    def keys(self) -> list[str]:
        """Keys of all numbers that a row has, in reading order."""
        return sorted({key for entry in self.entries for key in entry.numbers}, key=reading_order)


def lower_is_better(key: str) -> bool:
    """Whether a smaller number under that key is better."""
    return key.startswith(("ge/", "train/")) or key.rpartition("/")[2] in LOWER


def limits(key: str, estimate: Estimate) -> tuple[float | None, float | None]:
    """What a number may be for a composite: its interval, or itself where it is a time, which is as measured."""
    return (estimate.value,) * 2 if key.startswith("train/") else (estimate.low, estimate.high)


def formatted(key: str, value: float | None) -> str:
    """Three decimals in four or five characters: ``.834``, ``-.012``, ``1.205``, ``31.25``; of seconds three digits."""
    if value is None:
        return "–"
    if key.startswith("train/"):
        return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"
    return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 9.9995 else f"{value:.4g}"


def range_of(key: str) -> tuple[float, float]:
    """The range of the number under that key, as far as the key shows it: no score is below 0, no share above 1."""
    if key.startswith("ge/"):
        return -math.inf, math.inf
    share = family(key) in _SHARES or key.endswith(("/nrgc", "/refuted"))
    return (-math.inf if key.endswith("/fp") else 0.0), 1.0 if share else math.inf


def family(key: str) -> str:
    """The kind of measure: ``pgd`` of ``pgd20x5/linf-0.03137/aggregate``."""
    return re.split(r"[/\d-]", key.removeprefix("ge/"), maxsplit=1)[0]


def short_key(key: str) -> str:
    """The key as a user may write it: the aggregate is meant where nothing is said."""
    return key.removesuffix("/aggregate")


_ATTACKS = ("pgd", "apgd", "cw", "square", "autoattack")
_FAMILIES = ("clean", *_ATTACKS, "great", "minimal", "pr", "probacc", "binomial", "radius")
_SHARES = frozenset({"clean", *_ATTACKS, "pr", "probacc", "binomial"})
_NUMBERS = ("aggregate", "wcr", "nrgc", "rdi", "fp")


def reading_order(key: str) -> tuple[Any, ...]:
    """Sort key: the order of PRBench's Table 4, then what it lacks; radii by size."""
    lens, _, number = key.rpartition("/")
    late = key.startswith(("ge/", "train/"))
    if late:
        lens, number = key.partition("/")[2], "aggregate"
    kin = family(lens)
    place = _FAMILIES.index(kin) if kin in _FAMILIES else len(_FAMILIES)
    kind = _NUMBERS.index(number) if number in _NUMBERS else len(_NUMBERS)
    return key.startswith("train/"), kind > 0, late, place, natural(lens), kind, number


def natural(text: str) -> tuple[tuple[int, float, str], ...]:
    """Sort key that compares numbers as numbers: pgd10 before pgd20, linf-0.08 before linf-0.1."""
    parts = re.split(r"(\d+(?:\.\d+)?)", text)
    return tuple((1, float(part), "") if place % 2 else (0, 0.0, part) for place, part in enumerate(parts))


def board_json(board: Board) -> dict[str, Any]:
    """The board as plain values, everything in it."""
    rows = [
        {**asdict(standing), "n": entry.count, **asdict(entry)}
        for entry, standing in zip(board.entries, board.standings, strict=True)
    ]
    head = {key: value for key, value in asdict(board).items() if key not in {"entries", "standings"}}
    metrics = [{**asdict(metric), "lower_is_better": metric.lower_is_better} for metric in board.metrics]
    return {"title": board.title, **head, "metrics": metrics, "rows": rows}


def flat_rows(boards: list[Board]) -> list[dict[str, Any]]:
    """One flat row a model, the same columns for all boards: identity, standing, then every number with its limits."""
    keys = sorted({key for board in boards for key in board.keys}, key=reading_order)
    return [
        {**_head(board, entry, standing), **_numbers(entry, keys)}
        for board in boards
        for entry, standing in zip(board.entries, board.standings, strict=True)
    ]


def csv_text(boards: list[Board]) -> str:
    """The flat rows as CSV; an undefined number is an empty cell."""
    rows = flat_rows(boards)
    page = io.StringIO()
    writer = csv.DictWriter(page, fieldnames=list(rows[0]) if rows else ["board"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
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
    **dict.fromkeys(("place", "n"), pa.int64()),
    **dict.fromkeys(("pareto_front", "not_separated_from_leader"), pa.bool_()),
}


def _head(board: Board, entry: Entry, standing: Standing) -> dict[str, Any]:
    score = standing.score
    return {
        "board": board.title,
        "place": standing.place,
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
