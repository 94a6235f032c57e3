"""A plain stack of layers written as JSON: `[["conv", 3, 16, 4, 2, 1], ["relu"], ["flatten"], ["linear", 64, 10]]`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from torch import nn

from services.errors import ConfigError, Problem
from services.registry import did_you_mean

LAYERS: dict[str, tuple[Callable[..., nn.Module], int]] = {
    "conv": (lambda inputs, outputs, kernel, stride, padding: nn.Conv2d(inputs, outputs, kernel, stride, padding), 5),
    "relu": (nn.ReLU, 0),
    "sigmoid": (nn.Sigmoid, 0),
    "maxpool": (lambda kernel, stride: nn.MaxPool2d(kernel, stride), 2),
    "flatten": (nn.Flatten, 0),
    "linear": (lambda inputs, outputs: nn.Linear(inputs, outputs), 2),
}
"""By name: what makes the layer and how many whole numbers it takes."""


def sequential(layers: str) -> nn.Sequential:
    """Build the network; state-dict keys are `INDEX.weight` and `INDEX.bias`.

    Args:
        layers: JSON list of layers: `conv in out kernel stride padding`, `linear in out`, `maxpool kernel stride`,
            `relu`, `sigmoid`, `flatten`.

    Raises:
        ConfigError: not such a list; every wrong layer is named.
    """
    try:
        rows = json.loads(layers)
    except ValueError as error:
        raise ConfigError(Problem("layers", "a JSON list of layers", f"{layers[:60]!r} ({error})")) from error
    if not (isinstance(rows, list) and rows and all(isinstance(row, list) and row for row in rows)):
        raise ConfigError(Problem("layers", 'a JSON list such as [["flatten"], ["linear", 64, 10]]', repr(layers[:60])))
    problems = [problem for index, row in enumerate(rows) for problem in _problems(index, row)]
    if problems:
        raise ConfigError(problems)
    return nn.Sequential(*(LAYERS[row[0]][0](*row[1:]) for row in rows))


def _problems(index: int, row: list[Any]) -> list[Problem]:
    name, *numbers = row
    if name not in LAYERS:
        return [Problem(f"layers[{index}]", "a known layer", repr(name), did_you_mean(str(name), list(LAYERS)))]
    wanted = LAYERS[name][1]
    if len(numbers) != wanted or not all(type(number) is int and number >= 0 for number in numbers):
        return [Problem(f"layers[{index}] ({name})", f"{wanted} whole numbers", repr(numbers))]
    return []
