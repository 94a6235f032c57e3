"""Audits that decide early against full ones, on the fourteen CIFAR-10 networks: passes, wall time, verdicts.

    python -m benchmarks.early_audits --data ../shared/data [--samples 2000] [--measure apgd] [--steps 30] [--targets 9]

The gate is on the mean under attack, at a threshold that half of the networks miss. Both audits run in this process
from an empty cache. Fails when the early one takes more than a quarter of the passes or 35 % of the time, or when a
verdict contradicts that of the full one. Beside it how far the time left, as it is shown in the middle of each stage of
the full audit, was off.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import zoo
from jobs.audit.audit import forecast_audit, run_audit
from jobs.audit.forecast.cost_words import cost_words
from jobs.fleetfile.reading import Fleet, validate_fleet
from jobs.terminal.progress import Quiet
from services.records import AuditResult, Outcome

MOST_PASSES, MOST_TIME, MOST_OFF = 0.25, 0.35, 0.25
EPSILON = 8 / 255
LONG = 20.0
"""Seconds from which a stage's time left is looked at."""


class Clocked(Quiet):
    """Keeps the time left that was said, by stage."""

    def __init__(self) -> None:
        self.stages: dict[str, list[tuple[float, float]]] = {}
        self.ends: dict[str, float] = {}
        self._name = ""

    def stage(self, name: str, shards: int, models: int) -> None:
        self._name = f"{name} {len(self.ends)}"

    def remaining(self, share: float, seconds: float) -> None:
        now = time.perf_counter()
        self.stages.setdefault(self._name, [(now, now)]).append((now, now + seconds))
        self.ends[self._name] = now

    def off(self) -> dict[str, float]:
        """By how much of a stage's time the end, as said between 40 and 60 % of it, was off at most."""
        found = {}
        for name, said in self.stages.items():
            began, end = said[0][0], self.ends[name]
            middle = [abs(to - end) for now, to in said if 0.4 <= (now - began) / max(end - began, 1e-9) <= 0.6]
            if middle and end - began > LONG:
                found[name] = max(middle) / (end - began)
        return found


@dataclass
class Done:
    """One audit."""

    result: AuditResult
    seconds: float
    processor: float
    clock: Clocked = field(default_factory=Clocked)

    @property
    def passes(self) -> int:
        return sum(model.forwards for model in self.result.models)


def fleet_of(options: argparse.Namespace, storage: str, decide: str) -> Fleet:
    """The fourteen networks, one gate on the attack."""
    measure: dict[str, Any] = {"name": options.measure, "epsilons": [EPSILON]}
    if options.measure == "apgd":
        measure |= {"steps": options.steps, "targets": options.targets}
    names = options.networks or [entry["id"] for entry in zoo.entries(options.data, "cifar10")]
    data: dict[str, Any] = {
        "fleet": "early-audits",
        "samples": {"uri": f"npz:{options.data / 'cifar10' / 'test.npz'}", "limit": options.samples},
        "measures": ["clean", measure],
        "gallery": "none",
        "storage": storage,
        "tracking": {"enabled": False},
        "factories": ["benchmarks.zoo"],
        "decide": decide,
        "resources": {"runner": "local", "workers": 1, "batch": 256, "shard": 250},
        "models": [
            {"name": name, "uri": f"factory:benchmarks.zoo:audited?data={options.data}&name={name}"} for name in names
        ],
    }
    key = next(key for key in validate_fleet(data).series() if key != "clean")
    data["gates"] = [{"measure": key, "metric": "aggregate", "at_least": options.threshold}]
    return validate_fleet(data)


def audited(options: argparse.Namespace, folder: Path, decide: str) -> Done:
    """From an empty cache; preflight is no part of the time."""
    fleet = fleet_of(options, str(folder / decide), decide)
    forecast, _ = forecast_audit(fleet, Quiet())
    print("\n".join(cost_words(forecast)), flush=True)
    clock, start, used = Clocked(), time.perf_counter(), time.process_time()
    result = run_audit(fleet, clock).result
    return Done(result, time.perf_counter() - start, time.process_time() - used, clock)


def main() -> int:
    """Run both, print a table, and say whether the limits were kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--measure", choices=["apgd", "autoattack"], default="apgd")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--targets", type=int, default=9)
    parser.add_argument("--threshold", type=float, default=0.1)
    parser.add_argument("--networks", nargs="*")
    options = parser.parse_args()
    options.data = options.data.resolve()
    with tempfile.TemporaryDirectory() as folder:
        early = audited(options, Path(folder), "early")
        full = audited(options, Path(folder), "full")
    wrong = 0
    for mine, other in zip(early.result.models, full.result.models, strict=True):
        taken = next((each.measured for each in mine.series if each.series.attack), None)
        value = next(each.aggregate.value for each in other.series if each.series.attack)
        wrong += {mine.outcome, other.outcome} == {Outcome.PASS, Outcome.FAIL}
        print(f"{mine.spec.name}: {value:.3f} {mine.outcome} on {taken}, {mine.forwards:,} passes; full: ", end="")
        print(f"{other.outcome}, {other.forwards:,} passes; {mine.reasons[0]}")
    logits = options.samples * len(full.result.models)  # both audits have them
    attack = (early.passes - logits) / (full.passes - logits)
    print(f"passes of the attack and its probe {early.passes - logits:,} of {full.passes - logits:,}: {attack:.1%}")
    passes, seconds = early.passes / full.passes, early.seconds / full.seconds
    print(f"passes {early.passes:,} of {full.passes:,}: {passes:.1%}")
    print(f"processor time {early.processor:.0f} s of {full.processor:.0f} s: {early.processor / full.processor:.1%}")
    print(f"{early.seconds:.0f} s of {full.seconds:.0f} s: {seconds:.1%}; contradictions: {wrong}")
    off = full.clock.off()
    print("time left in the middle, off by", ", ".join(f"{name}: {share:.0%}" for name, share in off.items()))
    kept = attack <= MOST_PASSES and seconds <= MOST_TIME and not wrong and all(v <= MOST_OFF for v in off.values())
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
