"""Reads the bundles of a storage for lists and pages: overviews and single tables, all of an audit for one model's why.

Nothing is kept but a bounded memory of what was read, each entry for as long as its file has the same size and time.
Names that callers give are looked up in listings and never become part of a path themselves.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from jobs.comparison.accepted import ACCEPTED_FILE
from jobs.dashboard.answers import AuditHead, Hardest, SliceBody, WhyBody
from jobs.dashboard.views import Scores, head
from services import limits
from services.errors import ClasswiseError, Problem, StorageError, UnknownAudit, one_line
from services.storage import files, plainjson
from tracking.bundle.bundle import BUNDLE, read_bundle
from tracking.bundle.classes import GroupRow, read_groups, read_scores
from tracking.bundle.comparison import COMPARISON
from tracking.bundle.overview import OVERVIEW, ModelOverview, Overview, SeriesOverview, overview_of, parsed_overview
from tracking.report.why import hardest_rows, slice_rows, why_of

MEMORY = 16 << 20
"""Bytes of overviews, as they lie on disk, that are remembered; in memory they take several times as much."""
MARK = 9
"""Characters of the mark, with its dash."""
PICTURES = 4_000_000
"""Bytes of pictures of one model in an answer."""
HEADS = 5000
"""Audits whose lines in lists are remembered."""

Key = tuple[str, tuple[int, str]]
"""A bundle's folder, and the size and time of its file."""
T = TypeVar("T")


class Memory(Generic[T]):
    """Remembers what was read last, so much that the weights together stay below `limit`; for many threads."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self._known: OrderedDict[Key, tuple[int, T]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: Key, read: Callable[[], tuple[int, T]]) -> T:
        """What is known under the key, else what `read` gives, with its weight."""
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key][1]
        weight, value = read()
        with self._lock:
            if key not in self._known:
                self._known[key] = (weight, value)
                self.held += weight
            while self.held > self.limit and len(self._known) > 1:
                self.held -= self._known.popitem(last=False)[1][0]
        return value


@dataclass(frozen=True)
class Home:
    """A fleet's folder as it was when it was listed: once a request.

    Attributes:
        fleet: its name in the storage.
        url: where it lies.
        audits: folders of its audits, the latest first (audit ids sort by time); maybe one that is being written.
    """

    fleet: str
    url: str
    audits: tuple[str, ...]

    def folder(self, audit: str) -> str:
        """Where an audit's bundle lies.

        Raises:
            UnknownAudit: the fleet has no such audit.
        """
        if audit not in self.audits:
            raise UnknownAudit(Problem("audit", f"an audit of /v1/fleets/{self.fleet}/audits", repr(audit)[:120]))
        return files.join(self.url, audit)


def unknown_fleet(fleet: str) -> UnknownAudit:
    """Of a fleet that is not there, and of one that is not the caller's."""
    return UnknownAudit(Problem("fleet", "a fleet of /v1/fleets", repr(fleet)[:120]))


def fleet_of(folder: str) -> str:
    """The fleet whose folder has that name: one with capital letters ends in a mark (`tracking.names.file_name`)."""
    return folder if folder == folder.lower() else folder[:-MARK]


class Bundles:
    """The audits of one storage, read only.

    Args:
        base: a folder or URL.
        memory: bytes of overviews to remember.
    """

    def __init__(self, base: str, memory: int = MEMORY) -> None:
        self.base = base
        self.remembered: Memory[Overview] = Memory(memory)
        self._heads: Memory[AuditHead] = Memory(HEADS)

    def fleets(self) -> list[str]:
        """Folders of the fleets, by name; a link that leads out of the storage is none."""
        return [name for name in self._names("audits") if not files.leads_out(files.join(self.base, "audits", name))]

    def home(self, fleet: str) -> Home:
        """A fleet's folder, looked up and listed.

        Raises:
            UnknownAudit: there is no such fleet.
        """
        if fleet not in self.fleets():
            raise unknown_fleet(fleet)
        return self.known(fleet)

    def known(self, fleet: str) -> Home:
        """The folder of a fleet that `fleets` named, listed."""
        names = [name for name in self._names("audits", fleet)[::-1] if name != ACCEPTED_FILE]
        return Home(fleet, files.join(self.base, "audits", fleet), tuple(names))

    def is_complete(self, folder: str) -> bool:
        """Whether a folder that `Home` gave holds a bundle: its last file is there."""
        with reachable(self.base):
            return files.exists(files.join(folder, BUNDLE))

    def read(self, folder: str) -> Overview:
        """All of the audit in a folder that `Home` gave, but its classes.

        Raises:
            StorageError: it is damaged, or of a newer classwise.
        """
        with reachable(folder):
            key = _key(folder)
            return self.remembered.get(key, lambda: _read(folder, size=key[1][0]))

    def head(self, folder: str) -> AuditHead:
        """The audit in `folder` for a list: remembered far longer than its overview; or why it is broken."""
        audit = folder.rpartition("/")[2]
        try:
            with reachable(folder):
                return self._heads.get(_key(folder), lambda: (1, head(audit, self.read(folder))))
        except StorageError as error:
            return head(audit, error)

    def groups(self, folder: str, model: ModelOverview, series: SeriesOverview) -> list[GroupRow]:
        """The groups of one series of one model of the audit in `folder`."""
        with reachable(folder):
            return read_groups(files.join(folder, "tables", model.table), series.key, series.grouping)

    def scores(self, folder: str, model: ModelOverview, series: SeriesOverview) -> Scores:
        """Names and mean scores of those groups."""
        with reachable(folder):
            return read_scores(files.join(folder, "tables", model.table), series.key, series.grouping)

    def why(self, folder: str, index: int) -> WhyBody:
        """Confusions, pictures and slices of one model of the audit in `folder`.

        Raises:
            UnknownAudit: it has no such model.
            StorageError: a file is damaged.
        """
        with reachable(folder):
            result = read_bundle(folder)
            if index >= len(result.models):
                raise UnknownAudit(Problem("model", f"below {len(result.models)}", str(index)))
            listed = [(index, result.models[index])]
            why = why_of(listed, result.samples.classes, folder, PICTURES)
            rows = slice_rows(listed, folder)
        parts, cut = why.confusions.get("parts", []), why.confusions.get("cut", False)
        entries, total = why.gallery.get("entries", []), why.gallery.get("total", 0)
        shared = {"parts": parts, "entries": entries, "total": total, "cut": cut}
        return WhyBody(classes=list(result.samples.classes), **shared, slices=[_slice_body(row) for row in rows])

    def hardest(self, folder: str) -> Hardest:
        """The samples that most models of the audit in `folder` fail; none where it has one model.

        Raises:
            StorageError: the file is damaged.
        """
        with reachable(folder):
            return Hardest(rows=hardest_rows(folder))

    def tested(self, folder: str) -> dict[str, Any] | None:
        """What the audit in `folder` says of its comparison with an earlier one; None without, or when damaged."""
        with reachable(folder):
            path = files.join(folder, COMPARISON)
            if not files.exists(path):
                return None
            try:
                body = plainjson.parsed(files.read_bytes(path, most=limits.FILE), constant=lambda name: None)
            except ValueError:
                return None
        return body if isinstance(body, dict) else None

    def _names(self, *parts: str) -> list[str]:
        """Names in a folder, without hidden ones; an object store's memory of its listing is not asked."""
        url = files.join(self.base, *parts)
        with reachable(self.base):
            files.forget_listing(url)
            return [name for name in files.listing(url) if not name.startswith(".")]


def _key(folder: str) -> Key:
    return folder, files.stamp(files.join(folder, BUNDLE))


def _read(folder: str, size: int) -> tuple[int, Overview]:
    """The overview, and its length on disk; made from the bundle itself where there is none, or none of this bundle."""
    path = files.join(folder, OVERVIEW)
    if files.exists(path):
        data = files.read_bytes(path, most=limits.FILE)
        overview = parsed_overview(data)
        if overview is not None and overview.size == size:
            return len(data), overview
    return min(size, 1 << 16), overview_of(read_bundle(folder), size)


@contextmanager
def reachable(what: str) -> Iterator[None]:
    """A storage that fails, by the errors of its own library too, is a `StorageError`; a defect of ours is not."""
    try:
        yield
    except ClasswiseError:
        raise
    except Exception as error:
        if not isinstance(error, OSError) and type(error).__module__ == "builtins":
            raise
        reason = one_line(error, 300) or type(error).__name__
        remedy = "check that the storage is there and may be read"
        raise StorageError(Problem(what, "a storage that can be read", reason, remedy)) from error


def _slice_body(row: dict[str, Any]) -> SliceBody:
    each = row["slice"]
    numbers = {name: getattr(each, name) for name in ("title", "n", "rate", "expected", "p")}
    return SliceBody(words=row["words"], **numbers, ids=list(each.ids), pictures=row["pictures"])
