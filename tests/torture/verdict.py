"""What must be true once an audit has been resumed: everything as if nothing had happened, and nothing twice."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

DRIVERS_OWN = ("forwards", "seconds")
"""Metrics that tell of the work done in one process, which a resumed audit shares with the one before it."""


def state_of(storage: str, database: str = "", experiment: str = "torture") -> dict[str, Any]:
    """Everything that counts in a storage and its MLflow, as plain data to compare.

    Args:
        database: SQLAlchemy URI of MLflow's database; "" is SQLite in the storage.
    """
    home = Path(storage)
    return {
        **_bundles(storage),
        "cache": {str(path.relative_to(home)): _table(path) for path in sorted((home / "cache").glob("[ls]*/*/*"))},
        **_runs(database or f"sqlite:///{home}/mlflow.db", experiment),
    }


def differences(found: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """What is not as it should be, one line each."""
    return [
        f"{key}: {json.dumps(found.get(key), sort_keys=True)[:300]} for {json.dumps(value, sort_keys=True)[:300]}"
        if not isinstance(value, dict)
        else f"{key}: {_first(found.get(key) or {}, value)}"
        for key, value in wanted.items()
        if found.get(key) != value
    ]


def _first(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    keys = [key for key in {**wanted, **found} if found.get(key) != wanted.get(key)]
    return f"{len(keys)} differ, first {keys[0]}: {str(found.get(keys[0]))[:150]} for {str(wanted.get(keys[0]))[:150]}"


def _bundles(storage: str) -> dict[str, Any]:
    """The one complete audit: its verdicts, numbers and per-sample scores; folders that are none are counted."""
    from services.storage import files as files
    from tracking.bundle.bundle import fleet_folder, list_bundles, read_bundle
    from tracking.bundle.marker import uploads
    from tracking.bundle.scores import read_kept_scores

    folders = list_bundles(storage, "torture")
    bodies: dict[str, Any] = {"bundles": len(folders), "folders": len(files.listing(fleet_folder(storage, "torture")))}
    if not folders:
        return bodies
    result = read_bundle(folders[-1])
    scores = {
        model.spec.name: _digest(read_kept_scores(folders[-1], index, model.spec))
        for index, model in enumerate(result.models)
    }
    pages = sorted(str(path.relative_to(folders[-1])) for path in Path(folders[-1]).rglob("*.*") if path.name[0] != ".")
    results = {model.spec.name: _plain(model) for model in result.models}
    return {**bodies, "scores": scores, "results": results, "files": pages, "uploads": len(uploads(folders[-1]))}


def _plain(model: Any) -> str:
    from pydantic import TypeAdapter

    from services.records import ModelResult

    body = TypeAdapter(ModelResult).dump_python(model, mode="json")
    return json.dumps({key: value for key, value in body.items() if key not in DRIVERS_OWN}, sort_keys=True)


def _table(folder: Path) -> str:
    from services.storage.shards import chain, finished_ranges, read_table

    ranges = chain(10**9, finished_ranges(str(folder)))
    return _digest(read_table(str(folder), ranges[-1][1])) if ranges else "empty"


def _digest(columns: dict[str, Any]) -> str:
    """Of the names, types and bytes of columns."""
    result = hashlib.sha256()
    for name in sorted(columns):
        result.update(f"{name} {columns[name].dtype} {columns[name].shape}".encode() + columns[name].tobytes())
    return result.hexdigest()[:16]


def _runs(database: str, experiment: str) -> dict[str, Any]:
    """Runs with their status and numbers, by role and model; what stands twice in a run is listed."""
    import sqlalchemy

    engine = sqlalchemy.create_engine(database)
    with engine.connect() as connection:

        def rows(query: str) -> list[tuple[Any, ...]]:
            mine = "(select r.run_uuid from runs r join experiments e using (experiment_id)"
            mine += " where e.name = :name and r.lifecycle_stage = 'active')"
            result = connection.execute(sqlalchemy.text(query.replace("MINE", mine)), {"name": experiment})
            return [tuple(row) for row in result]

        runs = rows("select run_uuid, status from runs where run_uuid in MINE")
        tags = {(run, key): value for run, key, value in rows("select run_uuid, key, value from tags")}
        metrics = rows("select run_uuid, key, value from latest_metrics where run_uuid in MINE")
        params = rows("select run_uuid, key from params where run_uuid in MINE")
        history = rows(
            "select run_uuid, key from metrics where run_uuid in MINE group by run_uuid, key having count(*) > 1"
        )
        inputs = rows(
            "select destination_id, count(*) from inputs where destination_id in MINE group by destination_id"
        )
    engine.dispose()

    def name(run: str) -> str:
        return str(tags.get((run, "classwise.model"), tags.get((run, "classwise.role"), "unfilled")))

    return {
        "runs": sorted(f"{name(run)} {status}" for run, status in runs),
        "complete": sorted(name(run) for run, _ in runs if tags.get((run, "classwise.complete"))),
        "metrics": {f"{name(run)} {key}": value for run, key, value in metrics if key not in DRIVERS_OWN},
        "metrics twice": sorted(f"{name(run)} {key}" for run, key in history),
        "params": sorted(f"{name(run)} {key}" for run, key in params),
        "datasets": sorted(f"{name(run)} {count}" for run, count in inputs),
    }
