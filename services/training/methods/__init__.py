"""The registry of training methods: one line a method. Listing and validating them imports no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from services.errors import ConfigError, Problem
from services.registry import Registry
from services.training.invalid_fields import from_validation
from services.training.methods.method import Method
from services.training.step import Budget

__all__ = ["METHODS", "Budget", "Method", "method_from"]

METHODS: Registry[type[Method]] = Registry(
    "training method",
    "classwise.training_methods",
    {
        "alp": "services.training.methods.pairing:Alp",
        "at-pr": "services.training.methods.at_pr:AtPr",
        "awp": "services.training.methods.awp:Awp",
        "bat": "services.training.methods.fair.bat:Bat",
        "cfa": "services.training.methods.fair.cfa:Cfa",
        "clp": "services.training.methods.pairing:Clp",
        "corruption": "services.training.methods.corruption:Corruption",
        "cvar": "services.training.methods.tail_risk:Cvar",
        "dafa": "services.training.methods.fair.dafa:Dafa",
        "erm": "services.training.methods.erm:Erm",
        "evar": "services.training.methods.tail_risk:Evar",
        "faal": "services.training.methods.fair.faal:Faal",
        "filtered-trades": "services.training.methods.filtered:Filtered",
        "frl": "services.training.methods.fair.frl:Frl",
        "kl-pgd": "services.training.methods.kl_pgd:KlPgd",
        "logit-adjusted": "services.training.methods.fair.logit_adjusted:LogitAdjusted",
        "mart": "services.training.methods.mart:Mart",
        "pgd": "services.training.methods.pgd:Pgd",
        "trades": "services.training.methods.trades:Trades",
        "wat": "services.training.methods.fair.wat:Wat",
        "weighted": "services.training.methods.fair.weighted:Weighted",
    },
)


def method_from(fields: Mapping[str, Any] | str, *, where: str = "method") -> Method:
    """Build a method from its fields (`{"name": "trades", "beta": 6}`), its name, or its canonical JSON.

    Raises:
        ConfigError: the name is unknown, or fields are; every mistake is listed.
    """
    if isinstance(fields, str):
        fields = json.loads(fields) if fields.startswith("{") else {"name": fields}
    options = {key: value for key, value in fields.items() if key != "version"}
    if "name" not in options:
        raise ConfigError(Problem(where, "a mapping with a `name`", repr(sorted(options))))
    kind = METHODS.get(str(options["name"]), where=f"{where}.name")
    try:
        return kind.model_validate(options)
    except ValidationError as error:
        raise ConfigError(from_validation(error, where)) from error
