"""Fields that a file gives: kept from what YAML makes of yes and no, and written alike by later versions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, get_args

from pydantic import BaseModel, SerializerFunctionWrapHandler, ValidationInfo, field_validator, model_serializer


class StableFields(BaseModel):
    """Parameters that are written as before where a later version added some.

    Attributes:
        LATER: what was added. At their defaults these are not written, so that what is known by a digest of the
            parameters, a trial or a score table, stays known.
    """

    LATER: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _without_later(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        usual = unchanged(self, self.LATER)
        return {name: value for name, value in write(self).items() if name not in usual}


def unchanged(model: BaseModel, later: Iterable[str]) -> set[str]:
    """Those of the fields added by later versions that are at their defaults."""
    return {name for name in later if getattr(model, name) == type(model).model_fields[name].default}


class Fields(StableFields):
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
