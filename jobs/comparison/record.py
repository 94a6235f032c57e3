"""The comparison of an audit with the accepted one, kept in its bundle before the bundle is complete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jobs.comparison.compare import Kept, compare
from jobs.comparison.non_inferiority import ACCEPTED, accepted_audit
from jobs.fleetfile.tree import FleetConfig
from services.errors import ClasswiseError
from services.records import AuditResult
from tracking.bundle.comparison import write_comparison


def record_comparison(
    result: AuditResult, folder: str, config: FleetConfig, earlier: Mapping[str, Kept | None]
) -> AuditResult:
    """Compare an audit, whose scores are kept in `folder`, with the accepted one and write ``comparison.json``.

    Without an accepted audit nothing happens. One that cannot be read costs the comparison and not the audit: a note
    says so. (A gate that names it was refused before any work.)

    Returns:
        the result with the id of the accepted audit.
    """
    try:
        accepted = earlier[ACCEPTED] if ACCEPTED in earlier else accepted_audit(config)
        if accepted is None:
            return result
        write_comparison(compare(accepted, Kept(result, folder)), folder)
    except ClasswiseError as error:
        return replace(result, notes=(*result.notes, f"Not compared with the accepted audit: {error}"))
    return replace(result, baseline=accepted.result.audit_id)
