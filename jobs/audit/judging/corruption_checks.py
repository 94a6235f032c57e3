"""What an audit of common corruptions says of its fleet: mCE against a reference, the weakest class of each model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jobs.audit.judging.fleet_checks import by_class
from services.measures.corruptions import Corruptions
from services.measures.measure import Measure
from services.numerics.corruption_error import corruption_errors
from services.records import ModelResult


def mean_corruption_errors(models: Sequence[ModelResult], measures: Sequence[Measure]) -> dict[str, Any]:
    """Under `mce`, by model the two and what keeps them from being defined; empty where no reference is named."""
    measure = _measure(measures)
    if measure is None or measure.reference is None:
        return {}
    errors = {model.spec.name: mine for model in models if (mine := _errors(model, measure)) is not None}
    if measure.reference not in errors:
        return {"mce": {"reference": measure.reference, "models": {}}}
    reference = errors[measure.reference]
    compared = {name: corruption_errors(*mine, *reference) for name, mine in errors.items()}
    by_model = {
        name: {"mce": each.mce, "relative_mce": each.relative, "reasons": list(each.reasons)}
        for name, each in compared.items()
    }
    return {"mce": {"reference": measure.reference, "corruptions": list(measure.names), "models": by_model}}


def corruption_notes(models: Sequence[ModelResult], measures: Sequence[Measure]) -> Iterator[str]:
    """A sentence on mCE, and one on the weakest class of each model over all corruptions."""
    measure = _measure(measures)
    if measure is None:
        return
    checks = mean_corruption_errors(models, measures).get("mce", {})
    if checks.get("models"):
        listed = ", ".join(f"{name} {_number(each)}" for name, each in checks["models"].items())
        yield f"mCE (relative mCE) over {len(measure.names)} corruptions against {checks['reference']}: {listed}."
    elif checks:
        yield f"mCE is undefined: the reference {checks['reference']} was not measured."
    for model in models:
        rows = [
            (row.score.value, row.name, name)
            for name in measure.names
            if (result := by_class(model, f"{measure.name}/{name}")) is not None
            for row in result.groups
            if row.score.value is not None
        ]
        if rows:
            share, group, name = min(rows)
            yield (
                f"{model.spec.name}: over all corruptions class {group} under {name.replace('_', ' ')} is the weakest, "
                f"{share:.1%} right."
            )


def _number(each: dict[str, Any]) -> str:
    mce, relative = ("undefined" if each[key] is None else f"{each[key]:.3f}" for key in ("mce", "relative_mce"))
    return f"{mce} ({relative})"


def _measure(measures: Sequence[Measure]) -> Corruptions | None:
    return next((each for each in measures if isinstance(each, Corruptions)), None)


def _errors(model: ModelResult, measure: Corruptions) -> tuple[list[float], float] | None:
    """The mean error under each corruption, and without any."""
    results = [by_class(model, f"{measure.name}/{name}") for name in measure.names]
    whole = by_class(model, measure.name)
    means = [None if result is None else result.metric("aggregate").value for result in results]
    clean = None if whole is None else whole.extras.get("correct")
    if clean is None:
        return None
    errors = [1.0 - mean for mean in means if mean is not None]
    return (errors, 1.0 - clean) if len(errors) == len(means) else None
