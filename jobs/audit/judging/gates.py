"""Gates: pure judgements on bounds, and how they add up to a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from jobs.fleetfile.gates import GateConfig, gate_text, threshold_of
from services.records import WORST_FIRST, Estimate, GateResult, Outcome


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """The outcome of a whole: error before fail before undecided before pass; pass when there is nothing."""
    present = set(outcomes)
    return next((outcome for outcome in WORST_FIRST if outcome in present), Outcome.PASS)


def judge(gate: GateConfig, estimate: Estimate, *, against: Sequence[str] = (), unchanged: str = "") -> GateResult:
    """Judge a gate on the bounds of an estimate.

    `at_least` t passes when low >= t, fails when high < t; `at_most` t passes when high <= t, fails when low > t; in
    between the audit is undecided. A bound that is missing clears nothing. An undefined estimate is an error: a gate
    that cannot be judged must not look like one that was.

    Args:
        against: reasons why the number cannot clear a gate, whatever its bounds (a group without samples, an attack
            that could not move). They turn a pass into undecided; a fail stands on what was seen.
        unchanged: why model and samples are those that the gate compares with; then nothing can be worse, and the gate
            passes unless the scores fell for certain all the same.
    """
    judged = replace(_by_bounds(gate, estimate), threshold=threshold_of(gate))
    if unchanged and judged.outcome in (Outcome.PASS, Outcome.UNDECIDED):
        return replace(judged, outcome=Outcome.PASS, reason=f"unchanged: {unchanged}")
    if not against or judged.outcome is Outcome.FAIL:
        return judged
    why = "; ".join(against)
    if judged.outcome is Outcome.PASS:
        return left_open(judged, why)
    return replace(judged, reason=f"{judged.reason}; {why}")


def _by_bounds(gate: GateConfig, estimate: Estimate) -> GateResult:
    text = gate_text(gate)
    if estimate.value is None:
        return GateResult(text, Outcome.ERROR, estimate, estimate.reason or "the number is undefined")
    if gate.at_least is not None:
        return _at_least(text, gate.at_least, estimate)
    if gate.at_most is not None:
        return _at_most(text, gate.at_most, estimate)
    return _at_least(text, -gate.margin, estimate)


def _at_least(text: str, threshold: float, estimate: Estimate) -> GateResult:
    low, high = estimate.low, estimate.high
    if low is not None and low >= threshold:
        return GateResult(text, Outcome.PASS, estimate, f"lower bound {low:.4g} clears {threshold:g}")
    if high is not None and high < threshold:
        return GateResult(text, Outcome.FAIL, estimate, f"upper bound {high:.4g} is below {threshold:g}")
    return GateResult(text, Outcome.UNDECIDED, estimate, _between(threshold, estimate))


def _at_most(text: str, threshold: float, estimate: Estimate) -> GateResult:
    low, high = estimate.low, estimate.high
    if high is not None and high <= threshold:
        return GateResult(text, Outcome.PASS, estimate, f"upper bound {high:.4g} is within {threshold:g}")
    if low is not None and low > threshold:
        return GateResult(text, Outcome.FAIL, estimate, f"lower bound {low:.4g} exceeds {threshold:g}")
    return GateResult(text, Outcome.UNDECIDED, estimate, _between(threshold, estimate))


def _between(threshold: float, estimate: Estimate) -> str:
    low = "-" if estimate.low is None else f"{estimate.low:.4g}"
    high = "-" if estimate.high is None else f"{estimate.high:.4g}"
    return f"{threshold:g} lies within the interval [{low}, {high}], so these samples do not decide it"


def left_open(judged: GateResult, why: str) -> GateResult:
    """A judgement by bounds that something speaks against: undecided."""
    return replace(judged, outcome=Outcome.UNDECIDED, reason=f"{judged.reason}, but {why}", objected=why)
