"""A pytest plugin that tries mutants instead of running tests.

Every test is run once unmutated, which says how long it takes and which functions it enters. Then the mutants of each
function are tried in a fork of this process, by the tests that enter the function, the quickest first, until one fails.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from mutmut.mutation import trampoline

settings.register_profile(
    "mutation",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=25,
    phases=(Phase.explicit, Phase.generate),
)

BUDGET = 5.0
"""Seconds of processor time of all tests of one mutant: some functions are entered by nearly every test."""

MEMORY = 2 << 30
"""Bytes that a mutant may ask for beyond what it begins with."""

SLOWEST = 2.0
"""Seconds of processor time beyond which a test is left out: every mutant that survives the others would run it."""


class Watch:
    """What has failed, and which functions were entered, since the last `clear`."""

    def __init__(self) -> None:
        self.failed = False
        self.entered: set[str] = set()
        trampoline.record_trampoline_hit = self.enter

    def enter(self, name: str, caller: str | None = None) -> None:
        """Called by mutmut's wrapper round each function while the mutant is called "stats"."""
        self.entered.add(name)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Failures in the set-up count: a mutant may break a fixture."""
        self.failed = self.failed or report.failed


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Instead of pytest's own loop over tests."""
    folder = Path(os.environ["MUTATION_FOLDER"])
    watch = Watch()
    session.config.pluginmanager.register(watch)
    seconds, tests = entered(session.items, watch)
    mutants = chosen(folder)
    functions: dict[str, list[str]] = defaultdict(list)
    for mutant in mutants:
        functions[mutant.partition("__mutmut_")[0]].append(mutant)
    gc.collect()
    gc.freeze()
    with (folder / "results.jsonl").open("a") as out:
        for function, waiting in functions.items():
            mine = quickest(tests[function], seconds)
            begin = time.perf_counter()
            for mutant, status in tried(waiting, mine, seconds, watch):
                out.write(json.dumps([mutant, mutants[mutant], status]) + "\n")
                out.flush()
            spent = time.perf_counter() - begin
            sys.stdout.write(f"{time.strftime('%H:%M:%S')} {function}: {len(waiting)} mutants, {spent:.1f} s\n")
            sys.stdout.flush()
    return True


def entered(
    items: Sequence[pytest.Item], watch: Watch
) -> tuple[dict[pytest.Item, float], dict[str, list[pytest.Item]]]:
    """Seconds of each test, and the tests that enter each function."""
    seconds: dict[pytest.Item, float] = {}
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    trampoline.set_mutant_under_test("stats")
    for item, following in zip(items, [*items[1:], None], strict=True):
        watch.entered.clear()
        begin = time.process_time()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        seconds[item] = time.process_time() - begin
        for name in watch.entered if seconds[item] < SLOWEST else ():
            tests[name].append(item)
    if watch.failed:
        raise pytest.UsageError("the tests fail without a mutant")
    return seconds, tests


def quickest(items: Sequence[pytest.Item], seconds: dict[pytest.Item, float]) -> list[pytest.Item]:
    """The quickest tests first, as many as the budget holds."""
    mine = sorted(items, key=lambda item: seconds[item])
    return [
        item for item, spent in zip(mine, accumulate(seconds[each] for each in mine), strict=True) if spent <= BUDGET
    ]


def chosen(folder: Path) -> dict[str, str]:
    """Mutants with the version of their function; those killed before are left out."""
    results = folder / "results.jsonl"
    lines = results.read_text().splitlines() if results.exists() else []
    dead = {(name, version) for name, version, status in map(json.loads, lines) if status in ("killed", "timeout")}
    every = json.loads((folder / "mutants.json").read_text()).items()
    return {name: version for name, version in every if (name, version) not in dead}


def tried(
    mutants: Sequence[str], items: Sequence[pytest.Item], seconds: dict[pytest.Item, float], watch: Watch
) -> Iterator[tuple[str, str]]:
    """Mutants of one function and what became of them, in a fork of this process; another one after each that hangs."""
    waiting = list(mutants)
    while waiting:
        if not items:
            yield waiting.pop(0), "not covered"
            continue
        source, sink = os.pipe()
        child = os.fork()
        if not child:
            try:
                attempts(waiting, list(items), seconds, watch, sink)
            finally:
                os._exit(0)
        os.close(sink)
        with os.fdopen(source) as output:
            for line in output:
                yield waiting.pop(0), line.strip()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if waiting:
            yield waiting.pop(0), "timeout" if code == -signal.SIGPROF else "killed"


def attempts(
    mutants: Sequence[str], items: list[pytest.Item], seconds: dict[pytest.Item, float], watch: Watch, sink: int
) -> None:
    """In the fork: one line a mutant. The test that noticed the last mutant comes first for the next.

    A test that notices one must pass again without it, else an earlier mutant has spoiled the process and the kill is
    doubtful. A test may take ten times its processor time and two seconds, then SIGPROF ends the process.
    """
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (used + MEMORY, used + MEMORY))
    for mutant in mutants:
        killer = next((item for item in items if fails(mutant, item, seconds, watch)), None)
        if killer is None:
            status = b"survived\n"
        else:
            items.remove(killer)
            items.insert(0, killer)
            status = b"doubtful\n" if fails("", killer, seconds, watch) else b"killed\n"
        os.write(sink, status)


def fails(mutant: str, item: pytest.Item, seconds: dict[pytest.Item, float], watch: Watch) -> bool:
    """Whether a test notices a mutant; "" is none."""
    trampoline.set_mutant_under_test(mutant)
    watch.failed = False
    signal.setitimer(signal.ITIMER_PROF, 2.0 + 10.0 * seconds[item])
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
    return watch.failed
