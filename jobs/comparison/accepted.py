"""Which audit of a fleet is the accepted one: one small file in STORAGE/audits/FLEET, with its history.

An audit is accepted by a person, or by a fleet file that says `accept: passed`. The file is replaced whole; of two that
accept at one moment the later stands, and both are in the history unless they read it at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import TypeAdapter

from services.errors import ConfigError, Problem
from services.records import AuditResult, Outcome
from services.storage import files
from tracking.bundle.bundle import folder_of, read_bundle
from tracking.bundle.confirmation import read_confirmation
from tracking.bundle.record_file import RecordFile
from tracking.names import file_name

ACCEPTED_FILE = "accepted.json"
SCHEMA_VERSION = 1
MOST_HISTORY = 1000


@dataclass(frozen=True)
class Acceptance:
    """One audit that was accepted.

    Attributes:
        audit_id, outcome: which.
        at: when, UTC.
        by: who: a user's name, or "accept: passed".
        why: in their words.
    """

    audit_id: str
    outcome: Outcome
    at: str
    by: str
    why: str = ""


@dataclass(frozen=True)
class Accepted:
    """The content of ``accepted.json``.

    Attributes:
        folder: name of the accepted audit's folder beside the file; `classwise prune` keeps it.
        history: the last is the one that stands; the first is kept whatever follows.
    """

    fleet: str
    folder: str
    history: tuple[Acceptance, ...]
    schema_version: int = SCHEMA_VERSION

    @property
    def audit_id(self) -> str:
        """The accepted audit."""
        return self.history[-1].audit_id


_FILE = RecordFile(
    ACCEPTED_FILE,
    TypeAdapter(Accepted),
    "a record of accepted audits",
    "delete it, and accept an audit again",
    SCHEMA_VERSION,
)


def read_accepted(home: str) -> Accepted | None:
    """What was accepted of the fleet whose audits lie in the folder `home`; None when nothing was.

    Raises:
        StorageError: the file is damaged, or a newer classwise wrote it.
    """
    record = _FILE.read(home)
    return record if record is not None and record.history else None


def accept(folder: str, *, by: str, why: str = "", even_though_failed: bool = False) -> Acceptance:
    """Make the audit whose bundle lies in `folder` the accepted one of its fleet.

    One that is accepted already stays so, and no second entry is made.

    Raises:
        ConfigError: its outcome is error, or it is no pass and that was not allowed; or the folder is no audit of a
            storage, so that no later audit would look there.
        StorageError: the bundle cannot be read, or the storage not written.
    """
    result = read_bundle(folder)
    _refuse(result, folder, even_though_failed)
    home = folder.rstrip("/").rpartition("/")[0]
    known = read_accepted(home)
    if known is not None and known.audit_id == result.audit_id:
        return known.history[-1]
    at = datetime.now(UTC).isoformat(timespec="seconds")
    made = Acceptance(result.audit_id, result.outcome, at, by, why)
    earlier = known.history if known is not None else ()
    history = (*earlier[:1], *(*earlier[1:], made)[1 - MOST_HISTORY :])  # the first is what nothing may drift from
    changed = Accepted(result.fleet, file_name(result.audit_id), history)
    _FILE.write(changed, home)
    return made


def bundle_named(text: str, base: str, fleet: str) -> str:
    """The folder of a bundle that a user named by its folder, or by its audit id within a storage and fleet.

    Raises:
        ConfigError: it is neither a folder with a bundle, nor is there a fleet to look for the id in.
    """
    if files.exists(files.join(text, "bundle.json")) or "/" in text:
        return text.rstrip("/")
    if not fleet:
        remedy = "give the folder, or --fleet (and --storage) with the audit's id"
        raise ConfigError(Problem(text, "the folder of a bundle", "no such folder", remedy))
    return folder_of(base, fleet, text)


def unconfirmed(result: AuditResult, folder: str, model: str | None = None) -> str:
    """Why the reserve does not speak for an audit, or for one model of it; "" where it does, or where there is none.

    Raises:
        StorageError: its record cannot be read.
    """
    if not result.config.get("samples", {}).get("reserve"):
        return ""
    said = read_confirmation(folder)
    if said is None:
        return "it was not confirmed on the reserved samples"
    outcomes = [said.of(name) for name in ([model] if model else [each.spec.name for each in result.models])]
    wrong = [outcome for outcome in outcomes if outcome is not Outcome.PASS]
    return f"on the reserved samples it is {wrong[0]}" if wrong else ""


def _refuse(result: AuditResult, folder: str, even_though_failed: bool) -> None:
    parts = folder.rstrip("/").rsplit("/", 3)[-3:]
    if parts != ["audits", file_name(result.fleet), file_name(result.audit_id)]:
        remedy = "name the bundle in the storage where the fleet is audited"
        raise ConfigError(Problem(folder, "a folder STORAGE/audits/FLEET/AUDIT", "another place", remedy))
    if result.outcome is Outcome.ERROR:
        remedy = "repair what is at fault, and audit again"
        raise ConfigError(Problem(result.audit_id, "an audit that judged every model", "outcome error", remedy))
    if result.outcome is not Outcome.PASS and not even_though_failed:
        remedy = "say --even-though-failed to accept it all the same"
        raise ConfigError(Problem(result.audit_id, "outcome pass", f"outcome {result.outcome}", remedy))
    if (why := unconfirmed(result, folder)) and not even_though_failed:
        remedy = "audit with accept: passed or promote, which ask the reserve; or say --even-though-failed"
        raise ConfigError(Problem(result.audit_id, "a pass on the reserved samples, too", why, remedy))
