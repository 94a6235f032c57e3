"""The run bundle: everything an audit found, complete on disk before any upload.

::

    STORAGE/audits/FLEET/AUDIT_ID/
      tables/000_resnet18.parquet    one row a series, grouping and group
      attributes/000_resnet18.parquet  gaps between groups, tolerance by factor and group (tracking.bundle.fairness)
      traversals/000_resnet18_projection.npz  images along each latent factor (services.storage.traversals)
      scores/000_resnet18.parquet    one row a sample (jobs.audit.scores)
      confusions/000_resnet18.parquet  which classes are taken for which (tracking.bundle.reasons.confusions)
      gallery/000_resnet18.parquet   pictures before and after an attack (tracking.bundle.reasons.gallery)
      hardest.parquet                samples that most models fail (tracking.bundle.reasons.hardest)
      comparison.json                against the accepted audit, when there is one (tracking.bundle.comparison)
      overview.json                  all of it but the classes, for lists of audits (tracking.bundle.overview)
      bundle.json                    the whole `AuditResult`; written last, so its presence means complete
      report.html                    (tracking.report.report)
      figures/great/heatmap.png      the fleet's pictures (tracking.figures.save)
      tracking.json                  what was uploaded where (tracking.bundle.marker)

Any fsspec URL serves as storage.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic import TypeAdapter, ValidationError

from services import limits
from services.errors import Problem, StorageError
from services.records import AUDIT_VERSION, AuditResult
from services.records.upgrade import from_version_1
from services.storage import files, plainjson
from tracking.bundle import group_table
from tracking.bundle.fairness import fill_attributes, has_attributes
from tracking.bundle.overview import write_overview
from tracking.names import file_name

BUNDLE = "bundle.json"

FOLDERS = (
    "name STORAGE/audits/FLEET/AUDIT or STORAGE/training/SWEEP; what was stopped has neither: run its command again"
)
_ADAPTER: TypeAdapter[AuditResult] = TypeAdapter(AuditResult)
_UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: from_version_1}
"""From a schema version to the function that lifts a bundle to the next; a field added with a default needs none."""


def fleet_folder(base: str, fleet: str) -> str:
    """Where the audits of `fleet` lie in a storage."""
    return files.join(base, "audits", file_name(fleet))


def folder_of(base: str, fleet: str, audit_id: str) -> str:
    """Where one audit's bundle lies in a storage."""
    return files.join(fleet_folder(base, fleet), file_name(audit_id))


def write_bundle(result: AuditResult, folder: str) -> str:
    """Write tables and then ``bundle.json``, each whole or not at all; returns the path of ``bundle.json``.

    Raises:
        StorageError: the storage is full, read-only or unreachable.
    """
    for index, model in enumerate(result.models):
        target = files.join(folder, "tables", group_table.file_of(result, index))
        files.write(target, partial(group_table.fill_parquet, model))
        if has_attributes(model):
            target = files.join(folder, "attributes", group_table.file_of(result, index))
            files.write(target, partial(fill_attributes, model))
    path = files.join(folder, BUNDLE)
    data = _ADAPTER.dump_json(result, indent=1)
    write_overview(result, folder, len(data))
    files.write_bytes(path, data)
    return path


def read_bundle(folder: str) -> AuditResult:
    """Read a bundle of this schema version or an older one.

    Raises:
        StorageError: it is absent, not a bundle, or written by a newer classwise.
    """
    path = files.join(folder, BUNDLE)
    if not files.exists(path):
        raise StorageError(Problem(folder, "a finished audit or sweep", "neither bundle.json nor sweep.json", FOLDERS))
    raw = _upgraded(path, _parsed(path, files.read_bytes(path, most=limits.FILE)))
    try:
        return _ADAPTER.validate_python(raw, strict=False)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise StorageError(
            Problem(f"{path}: {field}", "a bundle of classwise", str(first["msg"]), "audit again")
        ) from error


def list_bundles(base: str, fleet: str) -> list[str]:
    """Folders of the complete audits of `fleet`, oldest first (audit ids sort by time)."""
    home = fleet_folder(base, fleet)
    folders = [files.join(home, name) for name in files.listing(home)]
    return [folder for folder in folders if files.exists(files.join(folder, BUNDLE))]


def _parsed(path: str, data: bytes) -> dict[str, Any]:
    try:
        raw = plainjson.parsed(data)
    except ValueError as error:
        raise StorageError(Problem(path, "JSON", f"{error}", "audit again")) from error
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if not isinstance(raw, dict) or not isinstance(version, int) or version < 0:
        raise StorageError(Problem(path, "an object with a whole-number schema_version", type(raw).__name__))
    return raw


def _upgraded(path: str, raw: dict[str, Any]) -> dict[str, Any]:
    version = raw["schema_version"]
    if version > AUDIT_VERSION:
        raise StorageError(
            Problem(path, f"schema_version {AUDIT_VERSION} or older", str(version), "update classwise to read it")
        )
    for step in range(version, AUDIT_VERSION):
        raw = _UPGRADES.get(step, dict)(raw)
    return {**raw, "schema_version": AUDIT_VERSION}
