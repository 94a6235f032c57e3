"""What `classwise doctor` looks at: each check bounded in time, each finding with a remedy where it is not well.

Checks run side by side and import nothing heavy; what needs torch or Ray is asked of a process of its own, which can be
ended. A check that does not answer in time is a finding too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from jobs.upkeep.findings import SECONDS, SLOW_SECONDS, CheckContext, Finding, Level
from services.errors import one_line

Look = Callable[[CheckContext], Iterator[Finding]]


@dataclass(frozen=True)
class Check:
    """A look at one part, and the seconds it may take."""

    name: str
    look: Look
    seconds: float = SECONDS


@dataclass
class _Run:
    check: Check
    findings: list[Finding] = field(default_factory=list)
    thread: threading.Thread | None = None


def examine(checks: Sequence[Check], around: CheckContext) -> list[Finding]:
    """Run all checks side by side; findings in the order of the checks."""
    runs = [_start(check, around) for check in checks]
    return [finding for run in runs for finding in _result(run)]


def worst_level(findings: Sequence[Finding]) -> Level:
    """The worst of all levels."""
    levels = {finding.level for finding in findings}
    return "fail" if "fail" in levels else "warn" if "warn" in levels else "ok"


def _start(check: Check, around: CheckContext) -> _Run:
    run = _Run(check)

    def look() -> None:
        try:
            run.findings.extend(check.look(around))
        except Exception as error:  # a check that breaks must not hide the others
            text = one_line(error, 300)
            run.findings.append(Finding(check.name, "fail", f"{type(error).__name__}: {text}", "fix this first"))

    run.thread = threading.Thread(target=look, daemon=True, name=f"doctor-{check.name}")
    run.thread.start()
    return run


def _result(run: _Run) -> list[Finding]:
    assert run.thread is not None
    run.thread.join(run.check.seconds)
    if run.thread.is_alive():
        actual = f"no answer within {run.check.seconds:g} s"
        remedy = "is the server, the network or the file system up?"
        return [*run.findings, Finding(run.check.name, "fail", actual, remedy)]
    return run.findings


def all_checks() -> tuple[Check, ...]:
    """Every check, in the order of the report."""
    from jobs.upkeep import local, remote

    return (
        Check("python", local.python),
        Check("packages", local.packages),
        Check("imports", local.imports, SLOW_SECONDS),
        Check("cores", local.cores),
        Check("memory", local.memory),
        Check("shared memory", local.shared_memory),
        Check("gpu", local.gpu, SLOW_SECONDS),
        Check("terminal", local.terminal),
        Check("proxy", local.proxy),
        Check("storage", local.storage_works),
        Check("ray", remote.ray_cluster, SLOW_SECONDS),
        Check("mlflow", remote.tracking, SLOW_SECONDS),
        Check("schedules", remote.schedules),
    )
