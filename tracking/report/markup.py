"""What the pages share: templates, escaping, and data that cannot end the script element it stands in."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

_TEMPLATES = Path(__file__).parent / "templates"


def embedded(value: Any) -> Markup:
    """JSON that cannot end its script element, whatever text is in it."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def coded(text: str) -> Markup:
    """Text, escaped, whose parts between backticks stand as code."""
    parts = [escape(part) for part in text.split("`")]
    if len(parts) % 2 == 0:  # a backtick without its fellow
        return escape(text)
    return Markup("").join(Markup(f"<code>{part}</code>") if at % 2 else part for at, part in enumerate(parts))


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Templates with everything escaped; a name that a page was not given is an error."""
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["coded"] = coded
    return made


def source(*names: str) -> Markup:
    """Style sheets or scripts of classwise, one after the other, as they are."""
    return Markup("\n".join((_TEMPLATES / name).read_text(encoding="utf-8") for name in names))
