"""Reserved images have the last word: before an audit is accepted, a version promoted, or something called worse.

A share of the samples (`samples: {reserve: 0.2}`) is drawn once and in no audit. What is to be accepted or promoted is
audited on them by the same gates; nothing was chosen by them, so their limits hold for the winner as for any model.
Every use since the acceptance has a smaller level, so that all uses together keep delta.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from jobs.audit.audit import Finished, run_audit
from jobs.audit.session import RunnerFactory
from jobs.comparison.accepted import read_accepted
from jobs.comparison.compare import Kept, compare
from jobs.fleetfile.followups import NOTHING_FOLLOWS
from jobs.fleetfile.promotions import targets
from jobs.fleetfile.reading import Fleet, validate_fleet
from jobs.fleetfile.tree import FleetConfig
from jobs.terminal.progress import Reporter
from services.numerics.evidence.streams import lond_level
from services.records import AuditResult, Outcome, digest_of
from services.storage import files
from tracking.bundle.bundle import fleet_folder, folder_of, read_bundle
from tracking.bundle.comparison import Comparison, read_comparison
from tracking.bundle.confirmation import Confirmation, read_confirmation, write_confirmation
from tracking.bundle.record_file import RecordFile
from tracking.names import file_name

SUFFIX = "-reserve"


@dataclass(frozen=True)
class Uses:
    """``reserve.json`` of a fleet: digests of the versions that the reserve saw since the acceptance of `accepted`."""

    accepted: str
    versions: tuple[str, ...] = ()
    schema_version: int = 1


@dataclass(frozen=True)
class Use:
    """One use of the reserve since the acceptance of `accepted` ("" for none): the so-manieth, and the level it has."""

    accepted: str
    number: int
    level: float


_FILE = RecordFile(
    "reserve.json",
    TypeAdapter(Uses),
    "a record of the uses of a reserve",
    "delete it: then the reserve counts as unused, and errs more often than it says",
    1,
)


def confirm(
    fleet: Fleet, finished: Finished, reporter: Reporter, *, runner: RunnerFactory | None = None
) -> tuple[Fleet, Finished] | None:
    """Ask the reserve where something is to follow from the audit; the answer stands in its bundle.

    Returns:
        the audit on the reserved images with its fleet; None where there is no reserve or nothing to confirm.

    Raises:
        ClasswiseError: as `run_audit`.
    """
    config, result = fleet.config, finished.result
    comparison = read_comparison(finished.folder)
    if config.samples.reserve is None or not _asked(fleet, result, comparison):
        return None
    use = use_of_reserve(config, digest_of([model.digest for model in result.models]))
    own = reserve_fleet(fleet, use.level)
    second = run_audit(own, reporter, runner=runner, publishing=True)
    outcomes = {model.spec.name: model.outcome for model in second.result.models}
    worse = _worse(use, Kept(second.result, second.folder), comparison, own, config)
    write_confirmation(Confirmation(second.result.audit_id, use.number, use.level, outcomes, worse), finished.folder)
    return own, second


def use_of_reserve(config: FleetConfig, version: str) -> Use:
    """The next use of a fleet's reserve, or the same one as before for the same version; it is counted at once.

    A stop must not make a use free, so it is written before the reserve is asked.
    """
    home = fleet_folder(config.storage, config.fleet)
    known = read_accepted(home)
    accepted = known.audit_id if known is not None else ""
    uses = _FILE.read(home)
    if uses is None or uses.accepted != accepted:
        uses = Uses(accepted)
    if version not in uses.versions:
        uses = replace(uses, versions=(*uses.versions, version))
        _FILE.write(uses, home)
    place = uses.versions.index(version)
    return Use(accepted, place + 1, lond_level(config.intervals.delta, [False] * place))


def reserve_fleet(fleet: Fleet, level: float) -> Fleet:
    """The fleet that is audited on the reserved images: its gates but those on other audits, and nothing follows."""
    data: dict[str, Any] = fleet.config.model_dump(mode="json")
    data["fleet"] = f"{fleet.config.fleet}{SUFFIX}"[:100]
    data["samples"] |= {"part": "reserve", "per_class": None, "limit": None}
    data["models"] = [{**model, "promote": None, "clean_accuracy": None} for model in data["models"]]
    data["gates"] = [gate for gate in data["gates"] if gate["not_worse_than"] is None]
    data["intervals"]["delta"] = level
    data |= {"measures": fleet.config.measures, "generated": None, **NOTHING_FOLLOWS}
    return validate_fleet(data, source=data["fleet"])


def _asked(fleet: Fleet, result: AuditResult, comparison: Comparison | None) -> bool:
    promoted = {target.model for target in targets(fleet.config)}
    passed = {model.spec.name for model in result.models if model.outcome is Outcome.PASS}
    accepts = fleet.config.accept == "passed" and result.outcome is Outcome.PASS
    return accepts or bool(promoted & passed) or bool(comparison and comparison.worse)


def _worse(
    use: Use, now: Kept, comparison: Comparison | None, own: Fleet, config: FleetConfig
) -> tuple[tuple[str, str, str], ...] | None:
    """What is worse in both comparisons, on the audit's samples and on the reserved ones."""
    if comparison is None or not use.accepted or not comparison.worse:
        return None
    home = fleet_folder(config.storage, config.fleet)
    before = read_confirmation(files.join(home, file_name(use.accepted)))
    if before is None:
        return None
    folder = folder_of(own.config.storage, own.config.fleet, before.audit_id)
    again = compare(Kept(read_bundle(folder), folder), now, level=use.level)
    known = {(model.name, series.series, group.name) for model, series, group in comparison.flagged("worse")}
    worse = [(model.name, series.series, group.name) for model, series, group in again.flagged("worse")]
    return tuple(each for each in worse if each in known)
