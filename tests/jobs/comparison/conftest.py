"""Audits of the digits fleet, one after the other in one storage."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from jobs.audit.audit import Finished, run_audit
from jobs.comparison.compare import Kept
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet


class Notes(Quiet):
    """Keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def audit(data: dict[str, Any]) -> Finished:
    return run_audit(validate_fleet(data), Quiet())


def kept(finished: Finished) -> Kept:
    return Kept(finished.result, finished.folder)


def measured(digits_fleet: dict[str, Any], *models: str) -> dict[str, Any]:
    """The fleet with these models and no gates."""
    chosen = [model for model in digits_fleet["models"] if model["name"] in models]
    return {**deepcopy(digits_fleet), "models": deepcopy(chosen)}


@pytest.fixture
def swapped(digit_weights: dict[str, str]) -> Callable[[dict[str, Any], str, str], dict[str, Any]]:
    """A function of (fleet, name, weights) to the fleet in which that name has other weights."""

    def swap(data: dict[str, Any], name: str, weights: str) -> dict[str, Any]:
        changed = deepcopy(data)
        for model in changed["models"]:
            if model["name"] == name:
                model["uri"] = model["uri"].rpartition("weights=")[0] + f"weights={digit_weights[weights]}"
        return changed

    return swap
