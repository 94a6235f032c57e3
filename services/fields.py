"""Fields that a file gives, kept from what YAML makes of yes and no."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ValidationInfo, field_validator


class Fields(BaseModel):
    """Parameters among which true and false are no numbers."""

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        """YAML reads yes, no, on and off as true and false, and Python takes true for 1; so in lists too."""
        annotation = cls.model_fields[info.field_name or ""].annotation
        items = value if isinstance(value, list | tuple) else (value,)
        if any(isinstance(item, bool) for item in items) and not _takes_truth(annotation):
            raise ValueError("another value than true or false (put yes, no, on and off in quotes)")
        return value


def _takes_truth(annotation: Any) -> bool:
    return annotation is bool or any(part is bool or part is True for part in get_args(annotation))
