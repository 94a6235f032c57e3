"""What a check of  looks at and what it reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from jobs.fleetfile.tree import FleetConfig


Level = Literal["ok", "warn", "fail"]


SECONDS = 6.0
"""That a check may take; those that start a process have `SLOW_SECONDS`."""


SLOW_SECONDS = 20.0


@dataclass(frozen=True)
class Finding:
    """How one thing stands.

    Attributes:
        check: its name.
        level: "warn" is worth knowing; "fail" stops audits.
        found: what is there.
        remedy: what to do; empty when all is well.
    """

    check: str
    level: Level
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class CheckContext:
    """What is looked at.

    Attributes:
        config: of the fleet file, None without one.
        environment: variables of the process.
        storage: where results go.
        tracking: MLflow's URI, "" when there is none.
        address: of the Ray cluster, "" for an embedded one.
        schedules: the database of schedules, "" when there is none.
    """

    config: FleetConfig | None
    environment: Mapping[str, str]
    storage: str
    tracking: str = ""
    address: str = ""
    schedules: str = ""

    @property
    def gpus(self) -> float:
        """GPUs a worker that the fleet asks for."""
        return self.config.resources.gpus if self.config else 0.0

    @property
    def experiment(self) -> str:
        """The MLflow experiment of the fleet, "" without a fleet."""
        return (self.config.tracking.experiment or self.config.fleet) if self.config else ""
