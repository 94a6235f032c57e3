"""Builds networks by name, the same for the same seed, and starts them from weights that are there."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from services.errors import ConfigError, Problem, SourceError
from services.loading.fingerprint import existing, sha256
from services.records.trials import Start
from services.registry import did_you_mean
from services.training.networks import ARCHITECTURES

if TYPE_CHECKING:
    from torch import nn

__all__ = ["ARCHITECTURES", "build", "seeded", "start_from"]

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


def start_from(network: nn.Module, start: Start, *, where: str) -> None:
    """Load the weights that a fine-tuning starts from, strictly.

    Raises:
        SourceError: the file is missing, no longer the one that the sweep was planned with, no weights, or of another
            network.
    """
    from services.loading.models.weights import load_weights

    path = existing(Path(start.file), where)
    if sha256(path) != start.digest:
        remedy = "run the sweep again: it is planned anew"
        raise SourceError(Problem(where, f"the file that was planned with, {start.digest[:12]}", "another", remedy))
    load_weights(network, path, where=where, key=start.key or None)


def seeded(factory: Callable[..., M], seed: int, **options: Any) -> M:
    """What the factory makes when its draws follow the seed; the global generator is left as it was."""
    import torch

    from services.training.keys import Purpose, number, seed_layers

    with torch.random.fork_rng(devices=[]):
        seed_layers(torch.device("cpu"), number(seed, Purpose.WEIGHTS))
        return factory(**options)
