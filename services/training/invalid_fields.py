"""A validation error of pydantic as the problems a user reads."""

from __future__ import annotations

from pydantic import ValidationError

from services.errors import Problem


def from_validation(error: ValidationError, where: str) -> list[Problem]:
    """One problem a wrong field: its path, what is allowed, and the value found."""
    return [
        Problem(".".join([where, *(str(part) for part in fault["loc"])]), fault["msg"], repr(fault["input"]))
        for fault in error.errors()
    ]
