"""A submitted audit: what names it, where it lies in the storage, and how it said it ended.

::

    STORAGE/submissions/ID/
      fleet.json      the fleet to audit, written and signed by its submitter (jobs.submission.signing)
      ending.json     how it ended, written by the audit itself; "running" until then
      progress.json   how far it is, written by the audit itself (jobs.submission.heartbeat)
      process.json    who runs it          (only without a cluster: jobs.submission.local_jobs)
      log.txt         what it printed      (only without a cluster)
      stop            who is to stop       (only without a cluster)

The id is derived from the fleet and a key, so that one fleet and key are one audit, whoever submits it and how
often. An ending names the attempt that wrote it: one that an earlier attempt left says nothing about this one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from jobs.fleetfile.reading import Fleet, validate_fleet
from jobs.submission.signing import require_signed, signed
from services import limits
from services.errors import ConfigError, Problem, StorageError, UnknownAudit
from services.records import SCHEMA_VERSION, Outcome, digest_of
from services.storage import files, plainjson

HOME = "submissions"
LARGEST = 64 << 20
"""Bytes of an ending: a worker can write one of terabytes that takes no room on the disk."""
ID_FORM = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}-[0-9a-f]{16}$"
KEY_FORM = r"^[!-~]([ -~]{0,198}[!-~])?$"


@dataclass(frozen=True)
class Submission:
    """One audit that was, or is to be, submitted.

    Attributes:
        id: FLEET-DIGEST, of the fleet's content and the key.
        fleet: the fleet's name.
        key: what distinguishes two audits of one fleet file: a date, a pipeline's run.
        folder: where its files lie.
        caller: of the API, who asked for it; "" for an operator.
    """

    id: str
    fleet: str
    key: str
    folder: str
    caller: str = ""


@dataclass(frozen=True)
class Ending:
    """What an audit wrote about its end.

    Attributes:
        attempt: which start of it wrote this.
        state: "running", "finished" with an outcome, or "stopped" on request.
        outcome: pass, fail, undecided or error.
        bundle, audit_id: where the results are; empty without.
        tracking_uri, run_id, run_url: the audit's MLflow run; empty without.
        problems: what went wrong, with outcome error before any bundle.
    """

    attempt: str
    state: Literal["running", "finished", "stopped"]
    outcome: Outcome | None = None
    bundle: str = ""
    audit_id: str = ""
    tracking_uri: str = ""
    run_id: str = ""
    run_url: str = ""
    problems: tuple[Problem, ...] = ()
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    schema_version: int = SCHEMA_VERSION


_ENDING: TypeAdapter[Ending] = TypeAdapter(Ending)


def submission_of(fleet: Fleet, key: str = "") -> Submission:
    """Name the audit of a fleet.

    Raises:
        ConfigError: the key is no short printable ASCII text, or the storage is a relative path.
    """
    checked_key(key)
    _require_shared(fleet.config.storage)
    name = f"{fleet.config.fleet}-{digest_of(content_of(fleet), key)[:16]}"
    return Submission(name, fleet.config.fleet, key, folder_in(fleet.config.storage, name))


def checked_key(key: str) -> str:
    """The key, when it is one.

    Raises:
        ConfigError: it is long, or has other characters than printable ASCII, or blanks at its ends.
    """
    if key and not re.fullmatch(KEY_FORM, key):
        raise ConfigError(Problem("key", "at most 200 printable ASCII characters", repr(key)[:120]))
    return key


LISTED = "classwise list shows those that were submitted"


def checked_id(text: str) -> str:
    """The id, when it has the form of one: it becomes part of paths and addresses.

    Raises:
        UnknownAudit: it has not.
    """
    if not re.fullmatch(ID_FORM, text):
        raise UnknownAudit(Problem("id", "the id of a submitted audit, FLEET-DIGEST", repr(text)[:120], LISTED))
    return text


def fleet_in(name: str) -> str:
    """The fleet that the id of a submission names."""
    return name.rpartition("-")[0]


def folder_in(base: str, name: str) -> str:
    """Where the files of the submission `name` lie in the storage `base`."""
    return files.join(base, HOME, checked_id(name))


def known_in(base: str) -> list[str]:
    """Ids of the submissions in a storage."""
    return [name for name in files.listing(files.join(base, HOME)) if re.fullmatch(ID_FORM, name)]


def write_fleet(
    submission: Submission,
    fleet: Fleet,
    signing_key: bytes = b"",
    allow: Mapping[str, Any] | None = None,
    caller: str = "",
) -> None:
    """Put the fleet where its audit will read it, in the place of whatever is there.

    Args:
        signing_key: signs it, unless empty.
        allow: the allow-list that admitted it, as JSON takes it, which its audit checks again; None: of an operator,
            who may name anything.
        caller: of the API, who asked for it.
    """
    body: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "id": submission.id, "key": submission.key}
    body["fleet"] = content_of(fleet)
    if allow is not None:
        body["allow"] = dict(allow)
    if caller:
        body["caller"] = caller
    content = json.dumps(signed(body, signing_key), indent=1, allow_nan=False)
    files.write_bytes(files.join(submission.folder, "fleet.json"), content.encode())


def is_there(folder: str) -> bool:
    """Whether a submission can be seen there from here."""
    return bool(folder) and files.exists(files.join(folder, "fleet.json"))


def read_fleet(folder: str, signing_key: bytes = b"") -> tuple[Submission, Fleet, dict[str, Any] | None]:
    """What is to be audited, and the allow-list that admitted it, if one did.

    Raises:
        NotAllowed: there is a key, and it is not signed with it; or it is signed, and there is none.
        StorageError: nothing was submitted there, or it is damaged.
        ConfigError: the fleet is not valid here: an older or a newer classwise wrote it.
    """
    path = files.join(folder, "fleet.json")
    body = _read(path)
    if body is None or not isinstance(body.get("fleet"), dict):
        actual = "nothing" if body is None else "something else"
        remedy = "who submits and who audits must reach one storage under one name"
        raise StorageError(Problem(path, "a submitted fleet", actual, remedy))
    require_signed(body, signing_key, where=path, name=folder.rstrip("/").rpartition("/")[2])
    fleet = validate_fleet(body["fleet"], source=path)
    texts = [str(body.get(name, "")) for name in ("id", "key", "caller")]
    submission = Submission(texts[0], fleet.config.fleet, texts[1], folder, texts[2])
    return submission, fleet, body.get("allow")


def write_ending(folder: str, ending: Ending) -> None:
    """Say how it ended, or that it runs."""
    files.write_bytes(files.join(folder, "ending.json"), _ENDING.dump_json(ending, indent=1))


def read_ending(folder: str) -> Ending | None:
    """How it ended; None when it never started, or what is there cannot be read."""
    path = files.join(folder, "ending.json")
    if not files.exists(path) or files.stamp(path)[0] > LARGEST:
        return None
    try:
        return _ENDING.validate_json(files.read_bytes(path))
    except ValidationError:
        return None
    except StorageError as error:
        if files.is_outage(error):
            raise
        return None  # a link that leads elsewhere


def link_bundle(submission: Submission, attempt: str, bundle: str) -> None:
    """Write into the bundle's folder which submission made it."""
    body = {"schema_version": SCHEMA_VERSION, **asdict(submission), "attempt": attempt}
    files.write_bytes(files.join(bundle, "submission.json"), json.dumps(body, indent=1).encode())


def content_of(fleet: Fleet) -> dict[str, Any]:
    """The fleet without what has its default, so that a field added by a later classwise does not rename it."""
    content: dict[str, Any] = fleet.config.model_dump(mode="json", exclude_defaults=True)
    return content


def _require_shared(base: str) -> None:
    if "://" in base or PurePosixPath(base).is_absolute():
        return
    remedy = "set storage (or --storage) to a place that this machine and the cluster reach under the same name"
    raise ConfigError(Problem("storage", "an absolute path or a URL", repr(base), remedy))


def _read(path: str) -> dict[str, Any] | None:
    if not files.exists(path):
        return None
    try:
        body = plainjson.parsed(files.read_bytes(path, most=limits.FILE))
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
