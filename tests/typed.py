"""Series for tests, typed as those of a measure are."""

from typing import Any

from pydantic import TypeAdapter

from services.records import Series
from services.records.upgrade import typed

_SERIES = TypeAdapter(Series)


def series_of(key: str, title: str = "", bound: float = 1.0, **attributes: Any) -> Series:
    """The series that a measure would give this key; `attributes` outrank what the key says."""
    result = typed({"key": key, "title": title or key, "bound": bound, **attributes})
    survival = result["evidence"] == "attack" and result["family"] != "minimal"
    return _SERIES.validate_python({"binary": survival, **result})
