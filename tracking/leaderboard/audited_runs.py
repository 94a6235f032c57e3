"""Reads audited models from any MLflow tracking store: the newest complete run of each, page by page.

Nothing is written. A run's several hundred metrics are boiled down to the numbers that a leaderboard can show as they
arrive, and older runs of the same model are dropped, so memory grows with the models and not with the runs. Parent runs
are light and are read first: an audit of the same models on the same samples as a newer one is not read at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from services.errors import Problem, TrackingError
from tracking.bundle.marker import without_secret
from tracking.leaderboard.model import FIELDS, Filters, audited_model, fits, parsed, value_of
from tracking.leaderboard.rows import UNDECLARED, AuditedModel
from tracking.mlflow.connection import connect, quoted, search
from tracking.mlflow.layout import MODELS_TAG
from tracking.mlflow.reach import CALL_SECONDS, bounded_calls, sqlite_path, translated

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

IDENTITY = ("model", "threat_model", "dataset")
"""Keys that a server may filter by: a run that lacks the value cannot be a newer run of a model that has it."""

PAGE = 200
_EXPERIMENTS = 50


@dataclass(frozen=True)
class Reading:
    """What was found.

    Attributes:
        models: the newest audit first.
        runs: complete runs of models that were read, older ones of the same models among them.
        experiments: names of those searched.
        measures: of the audits that `models` come from, as their fleet files gave them; none where the list was cut.
    """

    models: tuple[AuditedModel, ...]
    runs: int
    experiments: tuple[str, ...]
    measures: dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class _Audit:
    """A parent run: its id, when it began, a digest of its models and samples, how many models, its measures."""

    audit_id: str
    started: int
    content: str
    models: int
    measures: str


def read_models(
    tracking_uri: str,
    *,
    experiments: Sequence[str] = (),
    filters: Filters | None = None,
    all_runs: bool = False,
    since: int = 0,
    page: int = PAGE,
) -> Reading:
    """The newest complete run of each model in each experiment, threat model, data set and set of samples.

    The newest is that of the latest audit, whenever it was uploaded. Filters are applied to the newest runs: a model
    whose newest run does not fit is out, and no older run stands in for it.

    Args:
        experiments: names; empty for all that are not deleted.
        all_runs: every complete run that fits.
        since: only runs started then or later, in milliseconds since 1970.
        page: runs that are held at a time.

    Raises:
        TrackingError: the store cannot be reached, or has no such experiment.
    """
    wanted = filters or {}
    with translated(tracking_uri, *_READS), bounded_calls(CALL_SECONDS):
        client = open_store(tracking_uri)
        names = _experiments(client, experiments, without_secret(tracking_uri))
        audits = _audits(client, names)
        bounds = {} if all_runs else {key: max(since, _oldest_needed(listed)) for key, listed in audits.items()}
        newest = _Newest(names, wanted, all_runs)
        for run in _runs(client, names, wanted, since, bounds, page):
            newest.add(run)
        short = [key for key, bound in bounds.items() if newest.lacks(key, audits[key], bound)]
        for run in _runs(client, short, wanted, since, {}, page):
            newest.add(run)
        return newest.reading(audits)


def experiments_in(tracking_uri: str) -> list[str]:
    """Names of the experiments that are not deleted; raises as `read_models`."""
    with translated(tracking_uri, *_READS), bounded_calls(CALL_SECONDS):
        return sorted(_experiments(open_store(tracking_uri), (), "").values())


class _Newest:
    """The newest run of each model so far; with `all_runs` every run."""

    def __init__(self, names: Mapping[str, str], filters: Filters, all_runs: bool) -> None:
        self._names, self._filters, self._all_runs = names, filters, all_runs
        self._kept: dict[tuple[str, ...], tuple[AuditedModel, bool]] = {}
        self._seen: dict[tuple[str, str], set[str]] = {}

    def add(self, run: Run) -> None:
        model = audited_model(run, self._names[run.info.experiment_id])
        place = (model.run_id,) if self._all_runs else (run.info.experiment_id, model.name, *model.setting)
        self._seen.setdefault((run.info.experiment_id, model.audit_id), set()).add(model.run_id)
        before = self._kept.get(place)
        if before is None or model.when > before[0].when:
            self._kept[place] = model, fits(run, self._filters)

    def lacks(self, experiment_id: str, audits: Sequence[_Audit], bound: int) -> bool:
        """Whether a run of an audit since `bound` is gone, so that an older audit has to stand in for it."""
        return any(
            audit.models > len(self._seen.get((experiment_id, audit.audit_id), ()))
            for audit in audits
            if audit.started >= bound
        )

    def reading(self, audits: Mapping[str, Sequence[_Audit]]) -> Reading:
        models = sorted(
            (model for model, fit in self._kept.values() if fit), key=lambda model: model.when, reverse=True
        )
        used = {model.audit_id for model in models}
        parsed_measures = {audit.audit_id: parsed(audit.measures) for batch in audits.values() for audit in batch}
        measures = {key: value for key, value in parsed_measures.items() if key in used and isinstance(value, list)}
        runs = sum(len(batch) for batch in self._seen.values())
        return Reading(tuple(models), runs, tuple(self._names.values()), measures)


def _audits(client: MlflowClient, names: Mapping[str, str]) -> dict[str, list[_Audit]]:
    """The audits of each experiment. One that did not end, or that says no digest of its models, is like no other."""
    by_experiment: dict[str, list[_Audit]] = {}
    for run in _pages(client, list(names), "tags.`classwise.role` = 'audit'", PAGE):
        tags, metrics = run.data.tags, run.data.metrics
        whole = tags.get("classwise.complete") and MODELS_TAG in tags
        audit = _Audit(
            tags.get("classwise.audit_id", ""),
            int(run.info.start_time or 0),
            tags[MODELS_TAG] if whole else run.info.run_id,
            int(metrics.get("models/all", 0)),
            run.data.params.get("measures", ""),
        )
        by_experiment.setdefault(run.info.experiment_id, []).append(audit)
    return by_experiment


def _oldest_needed(audits: Sequence[_Audit]) -> int:
    """Start of the oldest audit that holds the newest run of a model, in milliseconds: no run before it is needed."""
    newest: dict[str, _Audit] = {}
    for audit in audits:
        if audit.content not in newest or audit.audit_id > newest[audit.content].audit_id:
            newest[audit.content] = audit
    return min((audit.started for audit in newest.values()), default=0)


def read_values(tracking_uri: str, keys: Sequence[str], *, experiments: Sequence[str] = ()) -> dict[str, list[str]]:
    """The values that complete runs have under each of the keys, sorted: what a filter could have asked for."""
    with translated(tracking_uri, *_READS), bounded_calls(CALL_SECONDS):
        client = open_store(tracking_uri)
        names = _experiments(client, experiments, without_secret(tracking_uri))
        by_key: dict[str, set[str]] = {key: set() for key in keys}
        for run in _runs(client, names, {}, 0, {}, PAGE):
            for key in keys:
                by_key[key] |= {value for value in (value_of(run, key),) if value is not None}
        return {key: sorted(values) for key, values in by_key.items()}


def open_store(tracking_uri: str) -> MlflowClient:
    """A client of a store that exists; a writer would make one."""
    if tracking_uri.startswith("sqlite") and not Path(sqlite_path(tracking_uri)).is_file():
        remedy = "run an audit first, or name the store with --tracking-uri"
        raise TrackingError(Problem(without_secret(tracking_uri), "a database with audits", "no such file", remedy))
    return connect(tracking_uri)


_READS = ("an MLflow store that answers", "check the tracking URI and that the server runs")


def _experiments(client: MlflowClient, wanted: Sequence[str], where: str) -> dict[str, str]:
    """Names of the wanted experiments by id, of all without a wish."""
    known: dict[str, str] = {}
    token: str | None = None
    while True:
        page = client.search_experiments(max_results=1_000, page_token=token)
        known |= {str(experiment.experiment_id): str(experiment.name) for experiment in page}
        token = page.token
        if not token:
            break
    lacking = [name for name in dict.fromkeys(wanted) if name not in known.values()]
    if lacking:
        raise TrackingError([_no_experiment(name, sorted(known.values()), where) for name in lacking])
    return {key: name for key, name in known.items() if not wanted or name in wanted}


def _no_experiment(name: str, known: Sequence[str], where: str) -> Problem:
    listed = ", ".join(repr(each) for each in known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
    return Problem("--experiment", f"an experiment of {where}", repr(name), f"it has {listed}")


def _runs(
    client: MlflowClient,
    ids: Iterable[str],
    filters: Filters,
    since: int,
    bounds: Mapping[str, int],
    page: int,
) -> Iterator[Run]:
    """Complete runs of models in these experiments since `since`, or since the experiment's own bound.

    Within a bound all runs are read, so that it shows when one is gone; without one the server filters what it can.
    """
    query = ["tags.`classwise.role` = 'model'", "tags.`classwise.complete` = 'true'"]
    starts: dict[int, list[str]] = {}
    for key in ids:
        starts.setdefault(bounds.get(key, 0), []).append(key)
    for bound, group in starts.items():
        clauses = [] if bound else list(_by_server(filters))
        start = max(since, bound)
        clauses += [f"attributes.start_time >= {start}"] if start else []
        yield from _pages(client, group, " and ".join([*query, *clauses]), page)


def _by_server(filters: Filters) -> Iterator[str]:
    for key in IDENTITY:
        wanted = filters.get(key, ())
        if len(wanted) == 1 and quoted(wanted[0]) == wanted[0] and wanted[0] != UNDECLARED:
            yield f"tags.`{FIELDS[key]}` = '{wanted[0]}'"


def _pages(client: MlflowClient, ids: Sequence[str], query: str, page: int) -> Iterator[Run]:
    for start in range(0, len(ids), _EXPERIMENTS):
        yield from search(client, ids[start : start + _EXPERIMENTS], query, page=page)
