"""What reserved images said of an audit: ``confirmation.json`` in its bundle."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import TypeAdapter

from services.records import Outcome
from tracking.bundle.record_file import RecordFile

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Confirmation:
    """One use of the reserve.

    Attributes:
        audit_id: of the audit on the reserved images; its fleet is named after the fleet with `-reserve`.
        use: the so-manieth use since the acceptance.
        level: of its gates: what is left of delta after so many uses.
        outcomes: by model, on the reserved images.
        worse: what is worse than the accepted audit on the reserved images as well: model, series and class; None where
            the accepted audit was not confirmed, so that there is nothing to compare with.
    """

    audit_id: str
    use: int
    level: float
    outcomes: dict[str, Outcome]
    worse: tuple[tuple[str, str, str], ...] | None = None
    schema_version: int = SCHEMA_VERSION

    def of(self, model: str) -> Outcome:
        """The outcome of a model; undecided where the reserve did not see it."""
        return self.outcomes.get(model, Outcome.UNDECIDED)


_FILE = RecordFile(
    "confirmation.json",
    TypeAdapter(Confirmation),
    "a record of a confirmation",
    "delete it, and audit again",
    SCHEMA_VERSION,
)


def write_confirmation(confirmation: Confirmation, folder: str) -> None:
    """Write ``confirmation.json`` into a bundle's folder; raises as `RecordFile.write`."""
    _FILE.write(confirmation, folder)


def read_confirmation(folder: str) -> Confirmation | None:
    """The confirmation of the bundle in `folder`; None where the reserve was not asked; raises as `RecordFile.read`."""
    return _FILE.read(folder)
