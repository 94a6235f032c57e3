"""`classwise export`: a bundle for other tools."""

from __future__ import annotations

from typing import Literal

from services.errors import ConfigError, Problem
from services.records import AuditResult
from services.storage import files
from tracking.bundle.bundle import read_bundle
from tracking.bundle.portable import write_coco, write_table

Kind = Literal["parquet", "csv", "coco", "fiftyone"]
NAMES = {"parquet": "samples.parquet", "csv": "samples.csv", "coco": "samples.json", "fiftyone": "fiftyone"}


def export(bundle: str, kind: Kind, target: str = "") -> tuple[str, int]:
    """Write a bundle in another format; returns where, and how many rows or samples.

    Args:
        target: a file, for `fiftyone` a local folder; default: in the bundle's folder `export`.

    Raises:
        StorageError: no bundle there, or the target cannot be written.
        ConfigError: nothing was measured, or FiftyOne is not installed.
    """
    audit, folder = read_bundle(bundle), bundle.rstrip("/")
    where = target or files.join(folder, "export", NAMES[kind])
    if not any(model.series for model in audit.models):
        raise ConfigError(Problem(bundle, "an audit that measured a model", "none"))
    return where, _write(audit, folder, kind, where)


def _write(audit: AuditResult, folder: str, kind: Kind, where: str) -> int:
    if kind == "fiftyone":
        from jobs.audit.exports.fiftyone_dataset import make_dataset

        return make_dataset(audit, folder, where)
    return write_coco(audit, folder, where) if kind == "coco" else write_table(audit, folder, where, kind)
