"""Imports published results from JSON, so that a leaderboard can show them beside its own: marked, never as measured.

The file is small on purpose: where the numbers come from, under which licence, and rows of them. classwise ships none:
the user who imports a table answers for the right to.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from jobs.fleetfile.yamlfile import Kind, Locator, validated
from services.errors import ConfigError, Problem
from services.records.estimates import Estimate
from tracking.leaderboard import spelled
from tracking.leaderboard.numbers import SECONDS
from tracking.leaderboard.rows import UNDECLARED, AuditedModel, Entry

MAX_BYTES = 16 * 2**20
MOST_ROWS = 20_000
NO_INTERVAL = "published without an interval"
_Text = Annotated[str, Field(min_length=1, max_length=300)]
_Number = Annotated[float, Field(allow_inf_nan=False, strict=True)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PublishedRow(_Part):
    """One published model."""

    dataset: _Text
    method: _Text
    architecture: _Text = ""
    seed: str = ""
    threat_model: str = Field(UNDECLARED, description='As classwise writes it: "Linf 0.0313725"; else "not declared".')
    metrics: dict[_Text, _Number] = Field(
        min_length=1,
        max_length=200,
        description="Numbers by series as classwise calls it: clean, pgd20/linf-0.03137, pr/uniform-0.08, "
        "probacc/uniform-0.03137, ge/pgd20/linf-0.03137, train/seconds_per_epoch.",
    )


class PublishedFile(_Part):
    """A file of published results."""

    schema_version: Literal[1]
    source: _Text = Field(description="Where the numbers stand: paper, table, address.")
    license: _Text = Field(description="Under which terms they may be used.")
    unit: Literal["percent", "share"] = Field(description="Of all numbers but seconds; percent is divided by 100.")
    note: str = Field("", max_length=1_000, description="How their samples and definitions differ from the audits'.")
    rows: list[PublishedRow] = Field(min_length=1, max_length=MOST_ROWS)


KIND = Kind("file of published results", "schema_version, source, license, unit and rows")


def read_published(path: str | Path) -> tuple[list[Entry], list[str]]:
    """The rows of a file, marked with their source, and the sentences that must stand beside them.

    Raises:
        ConfigError: with every problem of the file, each with its field, what was expected and what was found.
    """
    where = Locator(str(path), KIND)
    data = _parsed(Path(path))
    if not isinstance(data, dict):
        raise ConfigError(Problem(str(path), f"a mapping with {KIND.keys}", type(data).__name__))
    file, problems = validated(data, PublishedFile, where)
    problems += _range_problems(file, where) if file else []
    if problems or file is None:
        raise ConfigError(problems)
    return [_entry(row, file) for row in file.rows], [_note(file)]


def imported(paths: Sequence[str], filters: Mapping[str, Sequence[str]]) -> tuple[list[Entry], list[str]]:
    """Published rows that pass the filters, and the notes of their files."""
    entries: list[Entry] = []
    notes: list[str] = []
    for path in paths:
        listed, file_notes = read_published(path)
        kept = [entry for entry in listed if _passes(entry, filters)]
        entries += kept
        notes += file_notes if kept else [f"published: no row of {path} passes the filters"]
    return entries, notes


def _passes(entry: Entry, filters: Mapping[str, Sequence[str]]) -> bool:
    named = {"model": entry.name, "seed": " ".join(entry.seeds)}
    named |= {key: str(getattr(entry, key)) for key in ("dataset", "architecture", "method", "threat_model")}
    return all(
        any(_plain(named.get(key, "")) == _plain(value) for value in wanted)
        or (key == "threat_model" and entry.threat_model == UNDECLARED)
        for key, wanted in filters.items()
    )


def beside(
    models_by_setting: Mapping[tuple[str, str, str], list[AuditedModel]], published: Sequence[Entry], together: bool
) -> list[tuple[list[AuditedModel], list[Entry]]]:
    """The models of each board with the published rows of the same data set and, where declared, threat model."""
    if together:
        return [([model for models in models_by_setting.values() for model in models], list(published))]
    boards = []
    placed: set[int] = set()
    for (dataset, threat, _), models in models_by_setting.items():
        mine = [entry for entry in published if _belongs(entry, dataset, threat)]
        placed |= {id(entry) for entry in mine}
        boards.append((models, mine))
    left = [entry for entry in published if id(entry) not in placed]
    for key in dict.fromkeys((_plain(entry.dataset), entry.threat_model) for entry in left):
        boards.append(([], [entry for entry in left if (_plain(entry.dataset), entry.threat_model) == key]))
    return boards


def _belongs(entry: Entry, dataset: str, threat: str) -> bool:
    declared = UNDECLARED not in (entry.threat_model, threat)
    return _plain(entry.dataset) == _plain(dataset) and (not declared or entry.threat_model == threat)


def _plain(text: str) -> str:
    """CIFAR-10 and cifar10 are one data set."""
    return "".join(char for char in text.casefold() if char.isalnum())


def _range_problems(file: PublishedFile, where: Locator) -> list[Problem]:
    """Numbers that cannot be of the file's unit."""
    top = 100.0 if file.unit == "percent" else 1.0
    problems = []
    for place, row in enumerate(file.rows):
        for key, value in row.metrics.items():
            field = where(("rows", place, "metrics", key))
            if key == SECONDS.key and value < 0:
                problems.append(Problem(field, "seconds of at least 0", f"{value:g}"))
            elif key != SECONDS.key and abs(value) > top:
                remedy = "say unit: percent" if file.unit == "share" else ""
                problems.append(Problem(field, f"a {file.unit} within {top:g} of 0", f"{value:g}", remedy))
    return problems


def _note(file: PublishedFile) -> str:
    rows = "1 row is" if len(file.rows) == 1 else f"{len(file.rows)} rows are"
    text = (
        f"published: {rows} from {file.source} ({file.license}), measured by others on other samples, with other "
        "code and perhaps other radii, and without intervals: a difference to an audited row is not a finding"
    )
    return f"{text}. {file.note}" if file.note else text


def _entry(row: PublishedRow, file: PublishedFile) -> Entry:
    divisor = 100.0 if file.unit == "percent" else 1.0
    numbers = {
        spelled.number(name).key: Estimate(
            value if name == SECONDS.key else value / divisor, reason="published without an interval"
        )
        for name, value in row.metrics.items()
    }
    return Entry(
        name=" ".join(part for part in (row.method, row.architecture) if part),
        dataset=row.dataset,
        architecture=row.architecture,
        method=row.method,
        threat_model=row.threat_model,
        numbers=numbers,
        seeds=(row.seed,) if row.seed else (),
        source=file.source,
    )


def _parsed(path: Path) -> Any:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(
                Problem(str(path), f"a file of at most {MAX_BYTES} bytes", f"{path.stat().st_size} bytes")
            )
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_once, parse_constant=_no_number)
    except FileNotFoundError:
        raise ConfigError(Problem(str(path), f"a {KIND.name}", "no such file", "see docs/leaderboard.md")) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(Problem(str(path), "a readable UTF-8 file", str(error))) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(Problem(str(path), "valid JSON", str(error) or "JSON nested too deep")) from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    again = [key for key, times in Counter(key for key, _ in pairs).items() if times > 1]
    if again:
        raise ValueError(f"the key {again[0]!r} twice in one object")
    return dict(pairs)


def _no_number(text: str) -> Any:
    raise ValueError(f"{text}, which is no number of JSON; leave the metric out")
