"""Names that MLflow and every file system accept, for any text a user gave to a class, a model or a series.

MLflow takes letters, digits, ``_ - . / :`` and space, refuses ``a//b``, ``/a`` and ``a/../b``, and keys over 250
characters. Two different texts never get one name: classes carry their index, everything else that had to be altered
carries a digest of the original.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata

MAX_KEY = 250
"""Longest metric, parameter or tag key of MLflow, in characters."""

_MAX_PART = 60
_UNSAFE = re.compile(r"[^\w.\-]+", re.UNICODE)
_UNSAFE_FILE = re.compile(r"[^A-Za-z0-9_.\-]+")


def _mark(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def slug(text: str, *, limit: int = _MAX_PART, ascii_only: bool = False) -> str:
    """Replace what is not a letter, digit, ``_ - .`` by ``_`` and cut to `limit`; readable, not unique, maybe empty."""
    normal = unicodedata.normalize("NFKD" if ascii_only else "NFKC", text[: 8 * limit])
    pattern = _UNSAFE_FILE if ascii_only else _UNSAFE
    return pattern.sub("_", normal).strip("_.-")[:limit].rstrip("_.-")


def unique_name(text: str, *, limit: int = _MAX_PART, ascii_only: bool = False) -> str:
    """`text` itself when it is safe, else its slug and eight digits of its digest: different texts, different names."""
    safe = slug(text, limit=limit, ascii_only=ascii_only)
    if safe and safe == text:
        return safe
    return f"{safe[: limit - 9]}-{_mark(text)}" if safe else f"n-{_mark(text)}"


def file_name(text: str) -> str:
    """`text` as one ASCII path component, unique, also where the file system ignores case."""
    safe = unique_name(text, ascii_only=True)
    if safe == safe.lower() or safe != text:
        return safe
    return f"{safe[: _MAX_PART - 9]}-{_mark(text)}"


def table_file(index: int, model: str) -> str:
    """Name of a table of a model in folders that hold one a model: ``003_resnet18.parquet``."""
    return f"{index:03d}_{file_name(model)}.parquet"


def series_key(key: str, grouping: str = "class") -> str:
    """Metric prefix of one series over one grouping: ``great``, ``pgd20/linf-0.03137``, ``great/by-sex``."""
    parts = [unique_name(part, limit=40) for part in key.split("/") if part] or [unique_name(key)]
    if len(parts) > 3 or key != "/".join(parts):
        parts = [unique_name(key)]
    if grouping != "class":
        parts.append(f"by-{unique_name(grouping, limit=40)}")
    return "/".join(parts)


def group_key(index: int, name: str) -> str:
    """``c003_cat``: the index keeps two groups apart whose names come out alike, and sorts them."""
    safe = slug(name)
    return f"c{index:03d}_{safe}" if safe else f"c{index:03d}"


def metric_key(*parts: str) -> str:
    """Join safe parts to one key of at most 250 characters."""
    key = "/".join(part for part in parts if part)
    if len(key) <= MAX_KEY:
        return key
    return f"{key[: MAX_KEY - 9].rstrip('/')}-{_mark(key)}"


FORMULA = r"^[=+\-@\t\r\n]"
NUMBER = r"^[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$"


def cell(text: str) -> str:
    """A text of a CSV file as spreadsheets show it: what they would compute, as ``=cmd(...)``, gets an apostrophe."""
    return f"'{text}" if re.search(FORMULA, text) and not re.search(NUMBER, text) else text


def shorten(text: str, limit: int = 24) -> str:
    """`text` for a label: control and direction marks out, the middle left out when it is long."""
    clean = "".join(" " if unicodedata.category(char)[0] in "CZ" else char for char in text[: 20 * limit])
    clean = " ".join(clean.split()) or "(empty)"
    if len(clean) <= limit:
        return clean
    head = (limit - 1) * 2 // 3
    return f"{clean[:head]}…{clean[-(limit - 1 - head) :]}"
