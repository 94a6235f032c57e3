"""Takes secrets out of texts that people will read: messages, logs, bundles, tracking rows.

What is taken for one: the password of a URL (``scheme://user:PASSWORD@host``), and the value of an option whose name
says so (``password=``, ``token=``, ``secret=``, ``api_key=``, ``access_key=``, ``signature=``, ``credential=``). From a
line of a log, which may be of any library, more is taken: see `redacted_line`.

The texts may be hostile, so every repetition in a pattern has an upper limit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit

HIDDEN = "***"
MIN_SECRET = 6
"""Shorter values of secret variables are not looked for: `1` would be struck out of every number."""

_WORD = r"token|password|passwd|secret|api_?key|access_?key(?:_?id)?|private_?key|credentials?"
_NAME = rf"(?:{_WORD}|secret_?key|pwd|signature)"
_VALUE = r"[^\s&'\"]{1,4000}"
_PASSWORD = re.compile(r"(?P<head>[A-Za-z][A-Za-z0-9+.-]{0,40}:/{1,3}[^\s/:@'\"]{0,200}:)[^\s/@'\"]{1,1000}(?=@)")
_QUOTED_PASSWORD = re.compile(r"(?P<head>['\"][^\s/:@'\"]{1,200}:)[^\s/@'\"]{1,1000}(?=@)")
"""A library may quote the part behind the scheme alone: ``Invalid bucket name "bob:hunter2@bucket"``."""
_SECRET = re.compile(rf"{_NAME}$", re.IGNORECASE)
_OPTION = re.compile(rf"(?P<head>\b[\w.-]{{0,40}}?{_NAME}(?:=|['\"]: ?['\"])){_VALUE}", re.IGNORECASE)

# Of lines of logs: whatever a password holds (a port is followed by a path), and names that go on after the word.
_SCHEME = r"(?P<head>\b[A-Za-z][A-Za-z0-9+.-]{0,40}://)"
_USER_PASSWORD = re.compile(rf"{_SCHEME}[^\s/@:]{{0,200}}:(?!\d+(?:/|\s|$))[^\s\"']{{0,1000}}(?=@)")
_USER = re.compile(rf"{_SCHEME}[^\s/@\"']{{1,1000}}(?=@)")
_AUTHORIZATION = re.compile(r"(?P<head>\b(?:bearer|basic)\s{1,20})[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
_LONGER_NAME = re.compile(rf"(?P<head>\b[\w.-]{{0,40}}?{_NAME}[\w-]{{0,40}}=){_VALUE}", re.IGNORECASE)

# `PWD` is the working folder.
_VARIABLE = re.compile(_WORD, re.IGNORECASE)
_NOT_THE_SECRET = re.compile(r"_(PATH|FILE|MODE|URL|URI|DIR|EXPIRATION|SECONDS)$", re.IGNORECASE)


def redacted(text: str) -> str:
    """The text with `HIDDEN` in the place of each secret; the same text when it has none."""
    if "=" in text or ":" in text:
        text = _hidden(_OPTION, text)
    if "@" in text:
        text = _hidden(_QUOTED_PASSWORD, text)
    return _hidden(_PASSWORD, text) if ":/" in text else text


def redacted_line(text: str, secrets: tuple[str, ...] = ()) -> str:
    """A line of a log: besides what `redacted` hides, users of URLs, bearer and basic tokens, and known secrets.

    Args:
        secrets: as `secrets_of` finds them, the longest first.
    """
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    if "://" in text:
        text = _hidden(_USER, _hidden(_USER_PASSWORD, text))
    return redacted(_hidden(_LONGER_NAME, _hidden(_AUTHORIZATION, text)))


def secrets_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Values that may not appear in a log, the longest first: of secret variables, and passwords within URIs."""
    known = set()
    for name, value in environment.items():
        if _VARIABLE.search(name) and not _NOT_THE_SECRET.search(name):
            known.add(value.strip())
        elif "://" in value and "@" in value:
            known.add(_password(value))
    known |= {form for value in known for form in (quote(value, safe=""), unquote(value))}
    return tuple(sorted((value for value in known if len(value) >= MIN_SECRET), key=lambda value: (-len(value), value)))


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


def _hidden(pattern: re.Pattern[str], text: str) -> str:
    return pattern.sub(rf"\g<head>{HIDDEN}", text)


def _password(uri: str) -> str:
    try:
        return urlsplit(uri).password or ""
    except ValueError:
        return ""
