"""A forecast for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobs.audit.forecast.costs import Cost, Forecast
from jobs.terminal.progress import clock


def cost_words(forecast: Forecast) -> list[str]:
    """What is left to do, in a few lines: the whole, and each measure where there are several."""
    if not forecast.costs:
        return ["estimate: everything is in the cache"]
    lines = [f"estimate: {_amount(forecast, forecast.costs)}"]
    measures = list(dict.fromkeys(cost.measure for cost in forecast.costs))
    for measure in measures if len(measures) > 1 else []:
        mine = [cost for cost in forecast.costs if cost.measure == measure]
        lines.append(f"  {measure}: {_amount(forecast, mine)}")
    return lines


def model_words(forecast: Forecast) -> Iterator[str]:
    """A line a model and measure."""
    for cost in forecast.costs:
        yield f"{cost.model}, {cost.measure}: {_amount(forecast, [cost])}"


def autoattack_words(forecast: Forecast) -> Iterator[str]:
    """What AutoAttack would take."""
    if forecast.autoattack:
        samples = forecast.autoattack[0].samples
        yield f"AutoAttack on these {samples:,} samples would take {_amount(forecast, forecast.autoattack)}"


def _amount(forecast: Forecast, costs: Sequence[Cost]) -> str:
    hours = forecast.hours(costs)
    passes = sum(cost.passes for cost in costs)
    most = f"{clock(forecast.wall(costs))} on {_workers(forecast)} ({_hours(forecast, hours)})"
    text = f"at most {passes:,.0f} passes, {most}"
    if any(cost.usual is not None for cost in costs):
        hours = forecast.hours(costs, usual=True)
        text += f"; as in the last audit about {clock(forecast.wall(costs, usual=True))} ({_hours(forecast, hours)})"
    if forecast.early and any(cost.share < 1.0 for cost in costs):
        hours = forecast.hours(costs, early=True)
        text += f"; decided early about {clock(forecast.wall(costs, early=True))} ({_hours(forecast, hours)})"
    return text


def _workers(forecast: Forecast) -> str:
    return "one worker" if forecast.workers == 1 else f"{forecast.workers} workers"


def _hours(forecast: Forecast, hours: float) -> str:
    money = forecast.money(hours)
    price = "" if money is None else f", {money:,.2f} in money"
    amount = "under 0.01" if hours < 0.01 else f"{hours:.3g}"
    return f"{amount} {'GPU-hours' if forecast.gpus else 'hours of a worker'}{price}"


def as_json(forecast: Forecast) -> dict[str, object]:
    """For programs."""
    whole, early = forecast.hours(forecast.costs), forecast.hours(forecast.costs, early=True)
    return {
        "costs": [
            {
                "model": cost.model,
                "measure": cost.measure,
                "samples": cost.samples,
                "passes": cost.passes,
                "seconds": cost.seconds,
                "early_share": cost.share if forecast.early else None,
            }
            for cost in forecast.costs
        ],
        "workers": forecast.workers,
        "seconds": forecast.wall(forecast.costs),
        "hours": whole,
        "money": forecast.money(whole),
        "usual_seconds": forecast.wall(forecast.costs, usual=True),
        "early_seconds": forecast.wall(forecast.costs, early=True) if forecast.early else None,
        "early_hours": early if forecast.early else None,
        "early_money": forecast.money(early) if forecast.early else None,
        "autoattack_seconds": forecast.wall(forecast.autoattack) if forecast.autoattack else None,
    }
