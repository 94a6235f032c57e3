"""Takes secrets out of texts that people will read: messages, logs, bundles, tracking rows.

What is taken for one: the password of a URL (``scheme://user:PASSWORD@host``), and the value of an option whose name
says so (``password=``, ``token=``, ``secret=``, ``api_key=``, ``access_key=``, ``signature=``, ``credential=``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"

_PASSWORD = re.compile(r"(?P<head>[A-Za-z][A-Za-z0-9+.-]{0,40}:/{1,3}[^\s/:@'\"]{0,200}:)[^\s/@'\"]{1,1000}(?=@)")
_NAME = r"(?:password|passwd|pwd|token|secret|api_?key|access_?key(?:_?id)?|signature|credentials?)"
_SECRET = re.compile(rf"{_NAME}$", re.IGNORECASE)
_OPTION = re.compile(rf"(?P<head>\b[\w.-]{{0,40}}?{_NAME}(?:=|['\"]: ?['\"]))[^\s&'\"]{{1,4000}}", re.IGNORECASE)


def redacted(text: str) -> str:
    """The text with `HIDDEN` in the place of each secret; the same text when it has none."""
    if "=" in text or ":" in text:
        text = _OPTION.sub(rf"\g<head>{HIDDEN}", text)
    return _PASSWORD.sub(rf"\g<head>{HIDDEN}", text) if ":/" in text else text


def without_values(text: str, arguments: Mapping[str, str]) -> str:
    """The text without the values of those arguments whose names say that they are secret."""
    for name, value in arguments.items():
        if _SECRET.search(name) and len(value) > 3:
            text = text.replace(value, HIDDEN)
    return redacted(text)


def redacted_tree(value: Any) -> Any:
    """Plain data with every text in it redacted; keys are left alone."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, dict):
        return {key: redacted_tree(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(redacted_tree(inner) for inner in value)
    return value
