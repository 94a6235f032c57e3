"""Reads audited models from any MLflow tracking store: the newest complete run of each, page by page.

Nothing is written. A run's several hundred metrics are boiled down to the numbers that a leaderboard can show as they
arrive, and older runs of the same model are dropped, so memory grows with the models and not with the runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from services.errors import Problem, TrackingError
from services.estimates import Estimate
from tracking.layout import MODEL_TAG
from tracking.leaderboard import SECONDS, UNDECLARED, AuditedModel
from tracking.marker import without_secret
from tracking.mlflow_client import connect, quoted, search
from tracking.reach import CALL_SECONDS, bounded_calls, sqlite_path, translated
from tracking.summary import METRICS
from tracking.tables import finite

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

Filters = Mapping[str, Sequence[str]]
"""Wanted values by key; a model fits when for every key one of the values is its own."""

KNOWN = ("dataset", "architecture", "method", "seed", "sweep", "trial")
"""Tags that the training service gives its models."""

FIELDS = {
    "model": "classwise.model",
    "threat_model": "classwise.threat_model",
    "outcome": "classwise.outcome",
    "audit_id": "classwise.audit_id",
    **{key: f"{MODEL_TAG}{key}" for key in KNOWN},
}
"""What a filter's key stands for; any other key is looked up as a tag of the model, then as a tag of the run."""

PAGE = 200
_EXPERIMENTS = 50
_LARGEST = 1e300
"""MLflow stores infinity as 1.797e308."""


@dataclass(frozen=True)
class Reading:
    """What was found.

    Attributes:
        models: the newest first.
        runs: complete runs that were read, older ones of the same models among them.
        experiments: names of those searched.
    """

    models: tuple[AuditedModel, ...]
    runs: int
    experiments: tuple[str, ...]


def read_models(
    tracking_uri: str,
    *,
    experiments: Sequence[str] = (),
    filters: Filters | None = None,
    all_runs: bool = False,
    since: int = 0,
    page: int = PAGE,
) -> Reading:
    """The newest complete run of each model in each experiment, threat model and set of samples.

    Args:
        experiments: names; empty for all that are not deleted.
        all_runs: every complete run instead of the newest of each model.
        since: only runs started then or later, in milliseconds since 1970.

    Raises:
        TrackingError: the store cannot be reached, or has no such experiment.
    """
    with translated(tracking_uri, *_READS), bounded_calls(CALL_SECONDS):
        client = open_store(tracking_uri)
        names = _experiments(client, experiments, without_secret(tracking_uri))
        kept: dict[tuple[str, ...], AuditedModel] = {}
        runs = 0
        for run in _runs(client, names, filters or {}, since, page):
            runs += 1
            if fits(run, filters or {}):
                model = audited_model(run, names[run.info.experiment_id])
                key = (run.info.run_id,) if all_runs else (run.info.experiment_id, model.name, *model.setting)
                kept.setdefault(key, model)
        return Reading(tuple(kept.values()), runs, tuple(names.values()))


def read_values(tracking_uri: str, keys: Sequence[str], *, experiments: Sequence[str] = ()) -> dict[str, list[str]]:
    """The values that complete runs have under each of the keys, sorted: what a filter could have asked for."""
    with translated(tracking_uri, *_READS), bounded_calls(CALL_SECONDS):
        client = open_store(tracking_uri)
        names = _experiments(client, experiments, without_secret(tracking_uri))
        found: dict[str, set[str]] = {key: set() for key in keys}
        for run in _runs(client, names, {}, 0, PAGE):
            for key in keys:
                found[key] |= {value for value in (_value(run, key),) if value is not None}
        return {key: sorted(values) for key, values in found.items()}


def read_measures(tracking_uri: str, models: Sequence[AuditedModel]) -> dict[str, list[Any]]:
    """The measures of each audit as its fleet file gave them, by audit id; an audit whose list was cut is left out."""
    wanted = {model.audit_id for model in models}
    with translated(tracking_uri, *_READS), bounded_calls(CALL_SECONDS):
        client = open_store(tracking_uri)
        names = _experiments(client, sorted({model.experiment for model in models}), without_secret(tracking_uri))
        found: dict[str, list[Any]] = {}
        for run in _pages(client, names, "tags.`classwise.role` = 'audit'", PAGE):
            audit_id = run.data.tags.get("classwise.audit_id", "")
            measures = _json(run.data.params.get("measures", ""))
            if audit_id in wanted and isinstance(measures, list):
                found[audit_id] = measures
        return found


def open_store(tracking_uri: str) -> MlflowClient:
    """A client of a store that exists; a writer would make one."""
    if tracking_uri.startswith("sqlite") and not Path(sqlite_path(tracking_uri)).is_file():
        remedy = "run an audit first, or name the store with --tracking-uri"
        raise TrackingError(Problem(without_secret(tracking_uri), "a database with audits", "no such file", remedy))
    return connect(tracking_uri)


def fits(run: Run, filters: Filters) -> bool:
    """Whether the run has one of the wanted values under every key."""
    return all(_value(run, key) in wanted for key, wanted in filters.items())


def audited_model(run: Run, experiment: str) -> AuditedModel:
    """A run as a record, with the numbers that a leaderboard can show."""
    tags, params = run.data.tags, run.data.params
    samples, digest, count = _samples(run)
    return AuditedModel(
        run_id=run.info.run_id,
        experiment=experiment,
        name=tags.get("classwise.model") or run.info.run_name or run.info.run_id,
        audit_id=tags.get("classwise.audit_id", ""),
        started=int(run.info.start_time or 0),
        threat_model=tags.get("classwise.threat_model") or UNDECLARED,
        samples=samples or params.get("samples", ""),
        digest=digest,
        count=count,
        temperature=params.get("temperature", ""),
        outcome=tags.get("classwise.outcome", ""),
        tags={key.removeprefix(MODEL_TAG): value for key, value in tags.items() if key.startswith(MODEL_TAG)},
        numbers=numbers_of(run.data.metrics, _undefined(tags.get("classwise.undefined", ""))),
        worst=worst_classes(run.data.metrics),
    )


def numbers_of(metrics: Mapping[str, float], undefined: Mapping[str, str]) -> dict[str, Estimate]:
    """Numbers with their limits, by key; undefined ones with their reason.

    Shares that are known between two series, ``probacc/X/certified`` and ``probacc/X/possible``, also become one number
    ``probacc/X/aggregate``: what is certified, between the limits of both.
    """
    known = {key: value for key, raw in metrics.items() if (value := finite(raw)) is not None and abs(value) < _LARGEST}
    found = {key: Estimate(None, reason=reason) for key, reason in undefined.items() if _is_number(key)}
    for key, value in known.items():
        if _is_number(key) and not _is_limit(key, known):
            found[key] = Estimate(value, known.get(f"{key}_low"), known.get(f"{key}_high"))
    for key, certified in list(found.items()):
        stem = key.removesuffix("/certified/aggregate")
        possible = found.get(f"{stem}/possible/aggregate")
        if stem != key and possible and not key.startswith("ge/"):
            high = possible.high if possible.high is not None else possible.value
            found[f"{stem}/aggregate"] = Estimate(certified.value, certified.low, high, certified.reason)
    return found


def worst_classes(metrics: Mapping[str, float]) -> dict[str, str]:
    """Name of the class with the smallest score, by series, as the keys ``SERIES/class/c003_cat`` tell it."""
    least: dict[str, tuple[float, str]] = {}
    for key, value in metrics.items():
        lens, kind, group = key.rpartition("/class/")
        if kind and lens and (lens not in least or value < least[lens][0]):
            index, _, name = group.partition("_")
            least[lens] = (value, name or index.removeprefix("c").lstrip("0") or "0")
    return {lens: name for lens, (_, name) in least.items()}


_READS = ("an MLflow store that answers", "check the tracking URI and that the server runs")


def _is_number(key: str) -> bool:
    last = key.rpartition("/")[2]
    return last in METRICS or last == "falsified" or key.startswith("ge/") or key == SECONDS


def _is_limit(key: str, known: Mapping[str, float]) -> bool:
    return any(key.endswith(side) and key.removesuffix(side) in known for side in ("_low", "_high"))


def _undefined(text: str) -> dict[str, str]:
    lines = (line.partition(": ") for line in text.splitlines())
    return {key: reason for key, mark, reason in lines if mark}


def _samples(run: Run) -> tuple[str, str, int]:
    """URI, digest and number of the audited samples, as the run's data set tells them."""
    for entry in getattr(run.inputs, "dataset_inputs", None) or ():
        if any(tag.key == "mlflow.data.context" and tag.value == "audit" for tag in entry.tags):
            profile = _json(entry.dataset.profile or "")
            count = profile.get("num_rows") if isinstance(profile, dict) else 0
            return entry.dataset.name, entry.dataset.digest, count if isinstance(count, int) else 0
    return "", "", 0


def _value(run: Run, key: str) -> str | None:
    tags: dict[str, str] = run.data.tags
    if key == "threat_model":
        return tags.get(FIELDS[key]) or UNDECLARED
    if key in FIELDS:
        return tags.get(FIELDS[key])
    return tags.get(f"{MODEL_TAG}{key}", tags.get(key))


def _experiments(client: MlflowClient, wanted: Sequence[str], where: str) -> dict[str, str]:
    """Names of the wanted experiments by id, of all without a wish."""
    known: dict[str, str] = {}
    token: str | None = None
    while True:
        found = client.search_experiments(max_results=1_000, page_token=token)
        known |= {str(one.experiment_id): str(one.name) for one in found}
        token = found.token
        if not token:
            break
    lacking = [name for name in dict.fromkeys(wanted) if name not in known.values()]
    if lacking:
        raise TrackingError([_no_experiment(name, sorted(known.values()), where) for name in lacking])
    return {key: name for key, name in known.items() if not wanted or name in wanted}


def _no_experiment(name: str, known: Sequence[str], where: str) -> Problem:
    listed = ", ".join(repr(one) for one in known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
    return Problem("--experiment", f"an experiment of {where}", repr(name), f"it has {listed}")


def _runs(client: MlflowClient, names: Mapping[str, str], filters: Filters, since: int, page: int) -> Iterator[Run]:
    """Complete runs of models, the newest first; what the server can filter by it does."""
    query = ["tags.`classwise.role` = 'model'", "tags.`classwise.complete` = 'true'"]
    query += [f"attributes.start_time >= {since}"] if since else []
    for key, wanted in filters.items():
        if key in FIELDS and len(wanted) == 1 and quoted(wanted[0]) == wanted[0] and wanted[0] != UNDECLARED:
            query.append(f"tags.`{FIELDS[key]}` = '{wanted[0]}'")
    yield from _pages(client, names, " and ".join(query), page)


def _pages(client: MlflowClient, names: Mapping[str, str], query: str, page: int) -> Iterator[Run]:
    ids = list(names)
    for start in range(0, len(ids), _EXPERIMENTS):
        yield from search(client, ids[start : start + _EXPERIMENTS], query, page=page, newest_first=True)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
