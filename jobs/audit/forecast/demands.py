"""What measures ask of models: a network to run, gradients, and of a server no more images than its budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jobs.audit import plan
from jobs.audit.forecast.costs import costs_of, workers_of
from jobs.fleetfile.reading import Fleet
from services.errors import Problem
from services.loading.models.schemes.http import IDENTITY_QUERIES, budget_of
from services.loading.models.source import SCHEMES
from services.loading.preflight.bounds import most_queries
from services.loading.uris import parse_uri
from services.measures.measure import Measure
from services.measures.probes.budget import SAMPLES
from services.storage import files


def unable(name: str, facts: Mapping[str, Any], measure: Measure) -> Iterator[Problem]:
    """What a measure needs and the model cannot give: the network itself, or gradients through it."""
    if measure.needs == "model" and not facts["runs"]:
        remedy = f"leave {measure.name} out, or give the model itself"
        yield Problem(f"{name}, {measure.name}", "a network to run", "a table of logits", remedy)
    elif measure.gradients and not facts["differentiable"]:
        remedy = f"leave {measure.name} out (square, pr and radius need no gradients), or give a PyTorch source"
        yield Problem(f"{name}, {measure.name}", "a network with gradients", "one without", remedy)


def unable_kinds(fleet: Fleet) -> Iterator[Problem]:
    """Measures that no model of a source's kind can serve, which is known before any is opened."""
    for spec in fleet.config.model_specs():
        scheme = SCHEMES.get(parse_uri(spec.uri).scheme, where=spec.uri)
        able = {"runs": scheme.runs, "differentiable": scheme.gradients}
        for measure in fleet.measures:
            yield from unable(spec.name, able, measure)


def queries_at_most(item: plan.ModelPlan, fleet: Fleet, context: plan.Context) -> int:
    """Images that an audit sends to a server at most, what it looks at included; what is in the cache costs none."""
    looks = 1 + workers_of(fleet.config.resources)
    known = files.exists(plan.preflight_path(item.spec, item.digest, context))
    whole = plan.plan_model(item.spec, item.digest, fleet.measures, context)
    total: float = looks * IDENTITY_QUERIES + (0 if known else most_queries(context.count))
    total += sum(cost.passes for cost in costs_of(whole, context))
    attacks = [measure for measure in fleet.measures if measure.needs == "model" and measure.series()[0].attack]
    total += len(attacks) * SAMPLES
    total += max((context.gallery * (measure.most_passes + 2) for measure in attacks if measure.shows), default=0)
    return int(total + (context.count if context.slices else 0))


def budgets(plans: Sequence[plan.ModelPlan], fleet: Fleet, context: plan.Context) -> Iterator[tuple[str, int, int]]:
    """Of each model with a budget: its name, the images that the audit sends at most, and the budget."""
    for item in plans:
        if (budget := budget_of(item.spec.uri)) is not None:
            yield item.spec.name, queries_at_most(item, fleet, context), budget


def over_budget(name: str, most: int, budget: int) -> Problem:
    """An audit that could ask more of a server than it may."""
    remedy = "measure fewer samples (samples.limit) or with fewer draws, or raise budget="
    return Problem(f"{name} (budget)", f"at most {budget:,} images", f"an audit of up to {most:,}", remedy)
