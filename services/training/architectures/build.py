"""Builds networks by name, the same for the same seed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from services.errors import ConfigError, Problem
from services.registry import did_you_mean
from services.training.networks import ARCHITECTURES

if TYPE_CHECKING:
    from torch import nn

__all__ = ["ARCHITECTURES", "build", "seeded"]

M = TypeVar("M")


def build(name: str, *, seed: int, **options: Any) -> nn.Module:
    """A freshly initialised network, the same for the same seed; the global generator is left as it was.

    Raises:
        ConfigError: the name, or an option of the architecture, is unknown.
    """
    factory = ARCHITECTURES.get(name)
    known = list(inspect.signature(factory).parameters)
    wrong = [option for option in options if option not in known]
    if wrong:
        raise ConfigError(
            [Problem(f"{name}.{option}", "an option of it", "no such", did_you_mean(option, known)) for option in wrong]
        )
    return seeded(factory, seed, **options)


def seeded(factory: Callable[..., M], seed: int, **options: Any) -> M:
    """What the factory makes when its draws follow the seed; the global generator is left as it was."""
    import torch

    from services.training.keys import Purpose, number, seed_layers

    with torch.random.fork_rng(devices=[]):
        seed_layers(torch.device("cpu"), number(seed, Purpose.WEIGHTS))
        return factory(**options)
