"""When an audit has measured enough: part of the fleet file."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from jobs.fleetfile.parts import Part

Decide = Literal["full", "early"]


class EarlyConfig(Part):
    """What `decide: early` leaves out."""

    complete: bool = Field(
        False, description="Go on with a model that has failed a gate, until all its gates are decided."
    )
    only: Literal["all", "gates"] = Field(
        "all", description="all: measures that no gate needs come last, on all samples; gates: they are left out."
    )
