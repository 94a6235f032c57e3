"""The leaderboard: reads audited models from MLflow, makes rows, ranks what may be ranked together, says what to know.

A ranking across threat models or samples compares numbers of different questions. It is refused: each setting gets a
board of its own, unless `together` is asked for, and then a note says what differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from jobs.fleetfile.mlflow_uri import tracking_uri
from jobs.fleetfile.tree import FleetConfig
from jobs.leaderboard.comparable import measure_notes
from jobs.leaderboard.pairs import Bundles, by_pairs
from jobs.leaderboard.presets import Choice, board_metrics, check_choice, front_metrics, left_out, resolved
from jobs.leaderboard.published import beside, imported
from jobs.leaderboard.rows import rows, settings
from jobs.leaderboard.words import COMMON, composite_notes, nothing_left, place_notes, setting_notes
from services.errors import ConfigError
from services.numerics.ranking.composite import composite, pareto_front, places, with_leader
from services.numerics.ranking.place_sets import place_sets
from services.records.estimates import Estimate
from tracking.bundle.marker import without_secret
from tracking.leaderboard.audited_runs import read_models
from tracking.leaderboard.numbers import Number, natural
from tracking.leaderboard.rows import NOT_MEASURED, AuditedModel, Board, Entry, Metric, Standing, merged

NO_METRIC = "none of the metrics was measured"


@dataclass(frozen=True)
class Request:
    """What is asked for; the defaults are those of the command line.

    Attributes:
        filters: wanted values by key: dataset, architecture, method, threat_model, model, or any tag.
        imports: files of published rows.
        together: one board of all settings.
        since: milliseconds since 1970, 0 for all runs.
        storage: where the bundles of the audits lie, to tell rows apart by pairs of samples; None goes by ranges.
    """

    tracking_uri: str | None = None
    experiments: tuple[str, ...] = ()
    filters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    choice: Choice = field(default_factory=Choice)
    imports: tuple[str, ...] = ()
    by_seed: bool = False
    all_runs: bool = False
    together: bool = False
    since: int = 0
    storage: str | None = None


@dataclass(frozen=True)
class Leaderboard:
    """Boards, each ranked by itself, and what must be known of all of them.

    Attributes:
        source: the tracking store, without a password.
        runs, models: complete runs read, and models taken from them.
    """

    source: str
    runs: int
    models: int
    boards: tuple[Board, ...]
    notes: tuple[str, ...]


def make_leaderboard(request: Request) -> Leaderboard:
    """Read, rank, and say what a reader must know.

    Raises:
        ConfigError: a filter that leaves nothing, an unknown metric, a wrong weight, a broken file of published rows.
        TrackingError: the store cannot be reached, or lacks an experiment.
    """
    published, notes = imported(request.imports, request.filters)
    uri = tracking_uri(FleetConfig.model_fields["storage"].default, request.tracking_uri)
    reading = read_models(
        uri,
        experiments=request.experiments,
        filters=request.filters,
        all_runs=request.all_runs,
        since=request.since,
    )
    if not reading.models and not published:
        raise ConfigError(nothing_left(uri, request.experiments, request.filters, request.since))
    boards = [
        _Board(request, models, entries)
        for models, entries in beside(settings(reading.models), published, request.together)
    ]
    check_choice(request.choice, merged([entry for board in boards for entry in board.entries]))
    bundles = Bundles(request.storage, reading.models) if request.storage else None
    ranked = tuple(board.ranked(reading.measures, bundles) for board in boards)
    if len(ranked) > 1:
        notes.append(
            f"{len(ranked)} boards: a row is ranked only among those of its data set, threat model and samples; "
            "--together ranks all in one"
        )
    return Leaderboard(without_secret(uri), reading.runs, len(reading.models), ranked, tuple(notes))


class _Board:
    """One board in the making."""

    def __init__(self, request: Request, models: Sequence[AuditedModel], published: Sequence[Entry]) -> None:
        self._request = request
        self._models = models
        architectures = {model.tags.get("architecture") for model in models} | {e.architecture for e in published}
        by_seed, single = request.by_seed or request.all_runs, len(architectures) == 1
        own, self._notes = rows(models, by_seed=by_seed, one_architecture=single)
        self.entries = [*own, *published]

    def ranked(self, measures: Mapping[str, list[Any]], bundles: Bundles | None) -> Board:
        """The board with its rows in order; `measures` by audit, for the note on different parameters."""
        choice, entries = self._request.choice, self.entries
        own = [entry for entry in entries if not entry.source] or entries
        common = {name: _common(getattr(entry, name) for entry in own) for name in COMMON}
        metrics = board_metrics(choice, entries, common["threat_model"])
        names = resolved(choice, entries, common["threat_model"])
        criteria = front_metrics(choice, metrics)
        catalogue = merged(entries)
        standings, even = _standings(entries, metrics, criteria)
        sentence = ""
        if bundles is not None:
            standings, sentence = by_pairs(entries, standings, metrics, self._models, bundles)
        order = sorted(range(len(entries)), key=lambda index: (*_last(standings[index]), natural(entries[index].name)))
        lens = next((catalogue[names[role]].lens for role in ("ar", "acc") if role in names), "")
        counted = [metric.number for metric in metrics if metric.weight > 0]
        counts = {model.count for model in self._models}
        return Board(
            **common,
            count=counts.pop() if len(counts) == 1 else 0,
            metrics=metrics,
            even=even,
            criteria=tuple(number.key for number in criteria),
            lens=lens,
            entries=tuple(entries[index] for index in order),
            standings=tuple(standings[index] for index in order),
            split=_common(model.tags.get("split", "") for model in self._models),
            notes=(
                *setting_notes(entries, common),
                *self._notes,
                *composite_notes(left_out(choice, metrics), even, entries, standings),
                *([sentence] if sentence else []),
                *place_notes(entries, standings),
                *measure_notes(counted, self._models, measures),
            ),
        )


def _standings(
    entries: Sequence[Entry], metrics: Sequence[Metric], criteria: Sequence[Number]
) -> tuple[list[Standing], tuple[str, ...]]:
    """Each row's standing, and the names of the metrics in which all compared rows are equal."""
    counted = [metric for metric in metrics if metric.weight > 0]
    scores: Sequence[Estimate] = [Estimate(None, reason=NO_METRIC)] * len(entries)
    even: tuple[str, ...] = ()
    if counted and entries:
        values, low, high = _arrays(entries, [metric.number for metric in counted])
        names, weights = [metric.name for metric in counted], [metric.weight for metric in counted]
        lower = [metric.lower_is_better for metric in counted]
        ranking = composite(values, low=low, high=high, names=names, weights=weights, lower_is_better=lower)
        scores = [_explained(*pair, counted) for pair in zip(ranking.scores, entries, strict=True)]
        any_score = any(score.value is not None for score in scores)
        even = tuple(name for name, spread in zip(names, ranking.spread, strict=True) if any_score and not spread)
    front: Sequence[bool | None] = [None] * len(entries)
    if criteria and entries:
        front = pareto_front(_arrays(entries, criteria)[0], [number.lower_is_better for number in criteria])
    between = place_sets([score.low for score in scores], [score.high for score in scores])
    parts = zip(places(scores), scores, front, with_leader(scores), between, strict=True)
    return [Standing(*part) for part in parts], even


def _explained(score: Estimate, entry: Entry, counted: Sequence[Metric]) -> Estimate:
    """A missing score with the reason why each metric that it lacks has no value."""
    numbers = {metric.name: entry.numbers.get(metric.key, NOT_MEASURED) for metric in counted}
    lacking = [f"{name} {each.reason or NOT_MEASURED.reason}" for name, each in numbers.items() if each.value is None]
    return replace(score, reason=", ".join(lacking)) if score.value is None and lacking else score


def _arrays(entries: Sequence[Entry], numbers: Sequence[Number]) -> list[np.ndarray[Any, np.dtype[np.float64]]]:
    """Values, lower and upper limits, (N, M) each, NaN where missing."""
    rows = [[(number, entry.numbers.get(number.key, NOT_MEASURED)) for number in numbers] for entry in entries]
    parts = [[(estimate.value, *number.limits(estimate)) for number, estimate in row] for row in rows]
    table = np.array([[[np.nan if p is None else p for p in cell] for cell in row] for row in parts], dtype=np.float64)
    return [table[:, :, side] for side in range(3)]


def _last(standing: Standing) -> tuple[bool, int]:
    return standing.place is None, standing.place or 0


def _common(values: Any) -> str:
    """The value that all share, "" where they differ."""
    distinct = set(values)
    return str(distinct.pop()) if len(distinct) == 1 else ""
