"""A forecast for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobs.audit.forecast.costs import Cost, Forecast
from jobs.terminal.progress import clock


def cost_words(found: Forecast) -> list[str]:
    """What is left to do, in a few lines: the whole, and each measure where there are several."""
    if not found.costs:
        return ["estimate: everything is in the cache"]
    lines = [f"estimate: {_amount(found, found.costs)}"]
    measures = list(dict.fromkeys(cost.measure for cost in found.costs))
    for measure in measures if len(measures) > 1 else []:
        mine = [cost for cost in found.costs if cost.measure == measure]
        lines.append(f"  {measure}: {_amount(found, mine)}")
    return lines


def model_words(found: Forecast) -> Iterator[str]:
    """A line a model and measure."""
    for cost in found.costs:
        yield f"{cost.model}, {cost.measure}: {_amount(found, [cost])}"


def autoattack_words(found: Forecast) -> Iterator[str]:
    """What AutoAttack would take."""
    if found.autoattack:
        samples = found.autoattack[0].samples
        yield f"AutoAttack on these {samples:,} samples would take {_amount(found, found.autoattack)}"


def _amount(found: Forecast, costs: Sequence[Cost]) -> str:
    hours = found.hours(costs)
    passes = sum(cost.passes for cost in costs)
    text = f"at most {passes:,.0f} passes, {clock(found.wall(costs))} on {_workers(found)} ({_hours(found, hours)})"
    if any(cost.usual is not None for cost in costs):
        hours = found.hours(costs, usual=True)
        text += f"; as in the last audit about {clock(found.wall(costs, usual=True))} ({_hours(found, hours)})"
    if found.early and any(cost.share < 1.0 for cost in costs):
        hours = found.hours(costs, early=True)
        text += f"; decided early about {clock(found.wall(costs, early=True))} ({_hours(found, hours)})"
    return text


def _workers(found: Forecast) -> str:
    return "one worker" if found.workers == 1 else f"{found.workers} workers"


def _hours(found: Forecast, hours: float) -> str:
    money = found.money(hours)
    price = "" if money is None else f", {money:,.2f} in money"
    amount = "under 0.01" if hours < 0.01 else f"{hours:.3g}"
    return f"{amount} {'GPU-hours' if found.gpus else 'hours of a worker'}{price}"


def as_json(found: Forecast) -> dict[str, object]:
    """For programs."""
    whole, early = found.hours(found.costs), found.hours(found.costs, early=True)
    return {
        "costs": [
            {
                "model": cost.model,
                "measure": cost.measure,
                "samples": cost.samples,
                "passes": cost.passes,
                "seconds": cost.seconds,
                "early_share": cost.share if found.early else None,
            }
            for cost in found.costs
        ],
        "workers": found.workers,
        "seconds": found.wall(found.costs),
        "hours": whole,
        "money": found.money(whole),
        "usual_seconds": found.wall(found.costs, usual=True),
        "early_seconds": found.wall(found.costs, early=True) if found.early else None,
        "early_hours": early if found.early else None,
        "early_money": found.money(early) if found.early else None,
        "autoattack_seconds": found.wall(found.autoattack) if found.autoattack else None,
    }
