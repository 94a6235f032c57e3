"""What a sweep leaves on disk, complete before any upload.

::

    STORAGE/training/SWEEP/
      sweep.json                     the whole `SweepResult`; written when all trials have ended
      TRIAL-KEY/
        model.safetensors            the selected weights (services.training.epochs.checkpoints)
        progress.safetensors         what a resumed trial needs
        curves.parquet               one row an epoch
        trial.json                   the `TrialResult`; written last, so its presence means that the trial ended
      starts/KEY.safetensors         weights that fine-tunings start from
      generalisation/SET-KEY.npz     the training sample that audits measure (jobs.audit.other_samples.generalisation)

Any fsspec URL serves as storage.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError

from services.errors import Problem, StorageError
from services.records import SCHEMA_VERSION
from services.records.trials import EpochPoint, Shares, SweepResult, TrialResult
from services.storage import files, plainjson
from tracking.names import file_name

TRIAL, CURVES, SWEEP = "trial.json", "curves.parquet", "sweep.json"
SIDES = ("train", "validation")

_TRIAL: TypeAdapter[TrialResult] = TypeAdapter(TrialResult)
_SWEEP: TypeAdapter[SweepResult] = TypeAdapter(SweepResult)
R = TypeVar("R")

_SHARES = [("clean", pa.float64()), ("robust", pa.float64()), ("worst_class", pa.float64())]
SCHEMA = pa.schema(
    [
        ("epoch", pa.int64()),
        ("loss", pa.float64()),
        ("rate", pa.float64()),
        ("seconds", pa.float64()),
        *(
            (f"{side}.{name}", kind)
            for side in SIDES
            for name, kind in (*_SHARES, ("per_class", pa.list_(pa.float64())))
        ),
        ("explained", pa.float64()),
        ("parts", pa.map_(pa.string(), pa.float64())),
        ("judging", pa.float64()),
    ],
    metadata={"schema_version": str(SCHEMA_VERSION)},
)


def sweep_folder(base: str, sweep: str) -> str:
    """Where the trials of `sweep` lie in a storage."""
    return files.join(base, "training", file_name(sweep))


def trial_folder(base: str, sweep: str, trial: str, key: str) -> str:
    """Where one trial lies: readable, and another one when anything changes that its weights depend on."""
    return files.join(sweep_folder(base, sweep), f"{file_name(trial)}-{key[:8]}")


def start_file(folder: str, key: str) -> str:
    """Where the weights lie that trials of a sweep start from."""
    return files.join(folder, "starts", f"{key[:16]}.safetensors")


def write_trial(result: TrialResult, points: Sequence[EpochPoint], folder: str) -> None:
    """Write the curves and then ``trial.json``.

    Raises:
        StorageError: the storage is full, read-only or unreachable.
    """
    table = pa.Table.from_pylist([_row(point) for point in points], schema=SCHEMA)
    files.write(files.join(folder, CURVES), lambda file: pq.write_table(table, file, compression="zstd"))
    files.write_bytes(files.join(folder, TRIAL), _TRIAL.dump_json(result, indent=1))


def read_trial(folder: str) -> TrialResult | None:
    """The result of a trial; None when it has not ended, or its file is damaged or of another version.

    Raises:
        StorageError: the file cannot be read, which says nothing about the trial.
    """
    try:
        return _read(files.join(folder, TRIAL), _TRIAL)
    except StorageError as error:
        if files.is_outage(error):
            raise
        return None


def read_curves(folder: str) -> tuple[EpochPoint, ...]:
    """The epochs of a trial.

    Raises:
        StorageError: the file is missing or damaged.
    """
    path = files.join(folder, CURVES)
    try:
        table = pq.read_table(io.BytesIO(files.read_bytes(path)))
        return tuple(_point(row) for row in table.to_pylist())
    except (pa.ArrowException, OSError, LookupError, ValueError, TypeError) as error:
        actual, remedy = str(error).partition("\n")[0], "remove trial.json beside it and train again"
        raise StorageError(Problem(path, "the curves of a trial", actual, remedy)) from error


def write_sweep(result: SweepResult, folder: str) -> str:
    """Write ``sweep.json``; returns its path."""
    path = files.join(folder, SWEEP)
    files.write_bytes(path, _SWEEP.dump_json(result, indent=1))
    return path


def is_sweep(folder: str) -> bool:
    """Whether a finished sweep lies there."""
    return files.exists(files.join(folder, SWEEP))


def read_sweep(folder: str) -> SweepResult:
    """Read a finished sweep.

    Raises:
        StorageError: it is absent, no sweep, or written by a newer classwise.
    """
    return _read(files.join(folder, SWEEP), _SWEEP)


def folder_of_trial(base: str, result: TrialResult) -> str:
    """Where the trial of a result lies, below the folder of its sweep."""
    return files.join(base, f"{file_name(result.name)}-{result.key[:8]}")


def _read(path: str, adapter: TypeAdapter[R]) -> R:
    try:
        raw = plainjson.parsed(files.read_bytes(path))
        version = raw["schema_version"]
        if version > SCHEMA_VERSION:
            problem = Problem(path, f"schema_version up to {SCHEMA_VERSION}", str(version), "update classwise")
            raise StorageError(problem)
        return adapter.validate_python(raw)
    except (ValueError, TypeError, KeyError, ValidationError) as error:
        actual = str(error).partition("\n")[0]
        raise StorageError(Problem(path, "a result of classwise train", actual, "train again")) from error


def _row(point: EpochPoint) -> dict[str, Any]:
    row: dict[str, Any] = {
        "epoch": point.epoch,
        "loss": point.loss,
        "rate": point.rate,
        "seconds": point.seconds,
        "explained": point.explained,
        "parts": list(point.parts.items()),
        "judging": point.judging,
    }
    for side in SIDES:
        shares: Shares | None = getattr(point, side)
        for name in ("clean", "robust", "worst_class", "per_class"):
            row[f"{side}.{name}"] = None if shares is None else getattr(shares, name)
    return row


def _point(row: dict[str, Any]) -> EpochPoint:
    """Files of before there were mappers lack their columns, older ones that of what judging took."""
    train, validation = (_shares(row, side) for side in SIDES)
    return EpochPoint(
        row["epoch"],
        row["loss"],
        row["rate"],
        row["seconds"],
        train or Shares(),
        validation,
        row.get("explained"),
        dict(row.get("parts") or ()),
        row.get("judging") or 0.0,
    )


def _shares(row: dict[str, Any], side: str) -> Shares | None:
    clean, robust, worst, classes = (row[f"{side}.{name}"] for name in ("clean", "robust", "worst_class", "per_class"))
    if clean is None and robust is None:
        return None
    return Shares(clean, robust, worst, None if classes is None else tuple(classes))
