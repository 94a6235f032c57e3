"""What the pages share: templates, escaping, and data that cannot end the script element it stands in."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

_TEMPLATES = Path(__file__).parent / "templates"


def embedded(value: Any) -> Markup:
    """JSON that cannot end its script element, whatever text is in it."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Templates with everything escaped; a name that a page was not given is an error."""
    return Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def source(*names: str) -> Markup:
    """Style sheets or scripts of classwise, one after the other, as they are."""
    return Markup("\n".join((_TEMPLATES / name).read_text(encoding="utf-8") for name in names))
