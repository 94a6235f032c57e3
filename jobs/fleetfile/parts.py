"""What all parts of the files that users write have in common."""

from __future__ import annotations

from pydantic import ConfigDict

from services.fields import Fields


class Part(Fields):
    """A part of a file: frozen, and strict about unknown fields. NaN and infinity are no numbers here."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
