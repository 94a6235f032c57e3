"""Which aliases of MLflow's registry a fleet file asks to move: `promote: {alias: champion}`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from jobs.fleetfile.tree import FleetConfig
from jobs.fleetfile.yamlfile import Locator
from services.errors import Problem

_REGISTERED = re.compile(r"mlflow:models:/([^/@?]+)[/@]")


@dataclass(frozen=True)
class Target:
    """An alias that is to follow a model of the fleet."""

    model: str
    registered: str
    alias: str

    @property
    def key(self) -> str:
        """NAME@ALIAS, as MLflow writes it."""
        return f"{self.registered}@{self.alias}"


def targets(config: FleetConfig) -> tuple[Target, ...]:
    """The aliases that the fleet file asks to move, in the order of the models."""
    moves = []
    for model in config.models:
        promotion, registered = model.promote or config.promote, _REGISTERED.match(model.uri)
        if promotion is not None and registered:
            moves.append(Target(model.name, registered[1], promotion.alias))
    return tuple(moves)


def promotion_problems(config: FleetConfig, where: Locator) -> Iterator[Problem]:
    """What makes a promotion impossible, or one that no gate decides."""
    chosen = targets(config)
    for index, model in enumerate(config.models):
        if model.promote is not None and not _REGISTERED.match(model.uri):
            expected = "a model mlflow:models:/NAME@ALIAS or mlflow:models:/NAME/VERSION"
            yield Problem(where(("models", index, "promote")), expected, repr(model.uri)[:120])
    if config.promote is not None and not chosen:
        yield Problem(where(("promote",)), "a model mlflow:models:/NAME@ALIAS in the fleet", "none")
    if chosen and not config.gates:
        remedy = "add gates, or leave promote out"
        yield Problem(where(("promote",)), "gates that decide what is promoted", "none: every model passes", remedy)
    keys = [target.key for target in chosen]
    for key in sorted(key for key, count in Counter(keys).items() if count > 1):
        models = ", ".join(target.model for target in chosen if target.key == key)
        remedy = "give promote to one of them alone"
        yield Problem(where(("promote",)), f"one model that moves {key}", models, remedy)
