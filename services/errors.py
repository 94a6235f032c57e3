"""Every error a user can meet, as one tree.

::

    ClasswiseError
      ConfigError       the fleet file, or an option, is wrong                     exit 2
      SourceError       a model or sample source cannot be opened or is malformed  exit 2
      PreflightError    a model and its data do not fit together                   exit 2
      MeasureError      a measure was asked for something it cannot do             exit 2
      ResourceError     the cluster cannot give what was asked                     exit 2
      StorageError      the run storage cannot be read or written                  exit 2
      WorkerError       a worker failed for good on one shard                      exit 2
      TrackingError     MLflow is unreachable or refuses; the bundle is safe       exit 2 when syncing
      ServiceError      the job server, API or schedule store refuses or is down   exit 2
        UnknownAudit    no submitted audit has that id                             exit 2
        Pruned          its result was removed by retention                      exit 2
        NotFinished     its result was asked for before there is one               exit 2
        NotAllowed      the server's allow-list does not name what was asked for   exit 2
      DeadlinePassed    the audit's own deadline passed; finished shards are kept  exit 2
      Crashed           a submitted audit ended without saying an outcome          exit 4
      Interrupted       the user or the scheduler asked to stop                    exit 130

An error holds one or more `Problem`s, so that a user sees every problem together. Errors cross process borders: they
pickle, and their text is complete without a traceback.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath

from services.telemetry.redaction import redacted

__all__ = [
    "ClasswiseError",
    "ConfigError",
    "Crashed",
    "DeadlinePassed",
    "Interrupted",
    "MeasureError",
    "NotAllowed",
    "NotFinished",
    "PreflightError",
    "Problem",
    "Pruned",
    "ResourceError",
    "ServiceError",
    "SourceError",
    "StorageError",
    "TrackingError",
    "UnknownAudit",
    "WorkerError",
]


MOST = 1_000
"""Characters of one part of a message: a hostile file writes no log of its own length."""


def shown(text: str) -> str:
    """A text fit for a line of a log: control characters and marks that turn the text around are written as escapes."""
    text = text if len(text) <= MOST else f"{text[: MOST - 3]}..."
    return text if text.isprintable() else "".join(char if _plain(char) else _escape(char) for char in text)


def _plain(char: str) -> bool:
    return char.isprintable() or (char.isspace() and char not in "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault, in the form every message of classwise has. Secrets in its texts are hidden: messages are logged.

    Attributes:
        where: the thing at fault, as the user wrote it: a field path, a model's name, a file.
        expected: what would have been right.
        found: what is there instead.
        remedy: what to do next, an imperative sentence; empty when `expected` already says it.
    """

    where: str
    expected: str
    found: str
    remedy: str = ""

    def __post_init__(self) -> None:
        for name in ("where", "expected", "found", "remedy"):
            text = shown(redacted(getattr(self, name)))
            # Names of files stand in these two, and a name can hold what looks like a line of the log.
            object.__setattr__(self, name, text.replace("\n", "\\n") if name in ("where", "found") else text)

    def __str__(self) -> str:
        text = f"{self.where}: expected {self.expected}, found {self.found}"
        return f"{text}; {self.remedy}" if self.remedy else text


class ClasswiseError(Exception):
    """The root of the tree: one or more problems and the exit code they lead to."""

    exit_code = 2

    def __init__(self, problems: Problem | Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


class ConfigError(ClasswiseError):
    """The fleet file or a command line option is wrong."""


class SourceError(ClasswiseError):
    """A model or sample source cannot be opened, is not allowed, or holds something else than it says."""


class PreflightError(ClasswiseError):
    """A model and its samples do not fit together: shape, range, classes, accuracy, determinism."""


class MeasureError(ClasswiseError):
    """A measure was asked for something it cannot do with this model."""


class ResourceError(ClasswiseError):
    """The cluster does not have, and will not have, what was asked for."""


class StorageError(ClasswiseError):
    """The run storage cannot be read or written."""


class WorkerError(ClasswiseError):
    """A shard failed for good; finished shards are kept."""


class DeadlinePassed(ClasswiseError):
    """An audit did not end in the time it was given; finished shards are kept, and nothing was decided."""


class TrackingError(ClasswiseError):
    """The tracking server is unreachable or refuses; the bundle is complete on disk and `classwise sync` sends it."""


class ServiceError(ClasswiseError):
    """The job server, the API or the schedule store is down or refuses."""


class UnknownAudit(ServiceError):
    """No submitted audit has that id."""


class Pruned(ServiceError):
    """The result of an audit was removed by retention; what it came to is still known."""


class NotFinished(ServiceError):
    """The result of an audit was asked for that still waits, runs, or was stopped."""


class NotAllowed(ServiceError):
    """A caller of the API asked for a module, a path or a power that the server's settings do not grant."""


class Crashed(ClasswiseError):
    """A submitted audit ended without an outcome: its process was killed, or its cluster went away."""

    exit_code = 4


class Interrupted(ClasswiseError):
    """A stop was asked for. Finished shards are kept and the same command goes on from them."""

    exit_code = 130


def ends_worker(error: BaseException) -> bool:
    """Whether Ray ends the process by it, as it does on SIGTERM: no fault of the task, which others do again."""
    return isinstance(error, SystemExit) and hasattr(error, "ray_terminate_msg")


def one_line(error: object, most: int = 200) -> str:
    """The text of an error, usually another library's, in one line of at most so many characters."""
    return " ".join(str(error).split())[:most]


def counted(count: int, noun: str, plural: str = "") -> str:
    """A number and what it counts: ``1 model``, ``1,200 models``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def examples(texts: Iterable[str], most: int = 5, mark: str = ", ") -> str:
    """The first few, and how many more there are: ``a, b and 3 more``."""
    listed = list(texts)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return mark.join(listed[:most]) + more


def raised_at(error: BaseException) -> str:
    """What was raised and in which line: the trace itself stays on the worker."""
    text = one_line(error, 500)
    last = traceback.extract_tb(error.__traceback__)[-1:]
    line = "".join(f" ({PurePath(frame.filename).name}:{frame.lineno} in {frame.name})" for frame in last)
    return f"{type(error).__name__}: {text}{line}"
