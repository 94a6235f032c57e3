"""The comparison of an audit with the accepted one, kept in its bundle before the bundle is complete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jobs.comparison.comparable import measured, unchanged
from jobs.comparison.compare import Kept, compare
from jobs.comparison.looks import Look, Looks, read_looks, write_looks
from jobs.comparison.non_inferiority import ACCEPTED, accepted_audit
from jobs.fleetfile.tree import FleetConfig
from services.errors import ClasswiseError
from services.records import AuditResult
from services.storage import files
from tracking.bundle.bundle import fleet_folder, read_bundle
from tracking.bundle.comparison import Comparison, write_comparison
from tracking.names import file_name

MOST_NIGHTS = 60
"""Earlier audits whose scores are added where samples changed."""


def _in_stream(accepted: Kept, now: Kept, config: FleetConfig) -> Comparison:
    """The comparison at the level that is left after all since the acceptance; it is on record afterwards.

    Where nothing can have got worse, as weights, samples and measures are unchanged, no test is made and none counted.
    """
    home, own = fleet_folder(config.storage, config.fleet), now.result.audit_id
    looks = read_looks(home, accepted.result.audit_id).before(own)
    level = looks.next_level(config.intervals.delta)
    nights = (
        _nights(accepted, now, looks, home) if accepted.result.samples.content != now.result.samples.content else []
    )
    comparison = compare(accepted, now, level=level, nights=nights)
    if not all_unchanged(accepted, now):
        looks = replace(looks, looks=(*looks.looks, Look(own, level, comparison.worse > 0)))
        write_looks(looks, home)
    return replace(comparison, looks=len(looks.looks), bound=looks.bound if looks.looks else None, pooled=len(nights))


def _nights(accepted: Kept, now: Kept, looks: Looks, home: str) -> list[Kept]:
    """The audits since the acceptance that can still be read, the newest first."""
    kept = []
    for look in looks.looks[::-1][:MOST_NIGHTS]:
        folder = files.join(home, file_name(look.audit_id))
        if look.audit_id not in (accepted.result.audit_id, now.result.audit_id) and files.exists(folder):
            kept.append(Kept(read_bundle(folder), folder))
    return kept


def all_unchanged(accepted: Kept, now: Kept) -> bool:
    """Whether no series of any model in both audits can have changed."""
    places = {model.spec.name: index for index, model in enumerate(accepted.result.models)}
    for index, model in enumerate(now.result.models):
        if model.spec.name in places:
            before, after = measured(accepted.result, places[model.spec.name]), measured(now.result, index)
            if not all(unchanged(before, after, key) for key in after.series):
                return False
    return True


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
        write_comparison(_in_stream(accepted, Kept(result, folder), config), folder)
    except ClasswiseError as error:
        return replace(result, notes=(*result.notes, f"Not compared with the accepted audit: {error}"))
    return replace(result, compared_with=accepted.result.audit_id)
