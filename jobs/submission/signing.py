"""The signature of a submitted fleet: who wrote it had the deployment's key, and it was not changed since.

The storage is written by workers, which run models of others; so what lies there decides nothing on its own. Who
submits (API, scheduler, an operator's command line) signs, and the audit's driver checks, with one key that they get
outside the storage: HMAC-SHA256 (RFC 2104) of the file's content as canonical JSON. Without a key, as on one's own
machine, nothing is signed and nothing checked.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from services.errors import ConfigError, NotAllowed, Problem

KEY, KEY_PATH = "CLASSWISE_SIGNING_KEY", "CLASSWISE_SIGNING_KEY_PATH"
KEY_LENGTH = 24
"""Characters that a key has at least."""
_PURPOSE = b"classwise submission 1\n"
"""Distinguishes it from whatever else the same key might sign."""


def signing_key(environment: Mapping[str, str]) -> bytes:
    """The deployment's key: CLASSWISE_SIGNING_KEY, else the file CLASSWISE_SIGNING_KEY_PATH; empty without both.

    Raises:
        ConfigError: the file cannot be read, or the key is short.
    """
    text, path = environment.get(KEY, "").strip(), environment.get(KEY_PATH, "")
    if not text and not path:
        return b""
    if not text:
        try:
            text = Path(path).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(Problem(KEY_PATH, "a file with the deployment's signing key", str(error))) from None
    if len(text) < KEY_LENGTH:
        remedy = "make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        raise ConfigError(Problem(KEY, f"a key of at least {KEY_LENGTH} characters", f"{len(text)}", remedy))
    return text.encode()


def signed(body: Mapping[str, Any], key: bytes) -> dict[str, Any]:
    """The body with its signature, when there is a key."""
    return {**body, "signature": _digest(body, key)} if key else dict(body)


def require_signed(body: Mapping[str, Any], key: bytes, *, where: str, name: str) -> None:
    """Check the signature of the submission `name`, when there is a key.

    Raises:
        NotAllowed: it is unsigned, was changed or signed with another key, belongs to another submission, or is signed
            and there is no key to check it with.
    """
    expected, remedy = "a fleet signed with this deployment's key", "submit it again with the key in " + KEY_PATH
    signature = body.get("signature")
    if not key and signature is None:
        return
    if not key:
        remedy = f"set {KEY_PATH} where audits are driven, on the head of the cluster"
        raise NotAllowed(Problem(where, "a key to check its signature with", "none", remedy))
    if not isinstance(signature, str):
        raise NotAllowed(Problem(where, expected, "one without a signature", remedy))
    try:
        own = _digest(body, key)
    except ValueError:  # a number that is none, which is never signed
        own = ""
    if not own or not hmac.compare_digest(own.encode(), signature.encode("utf-8", "replace")):
        raise NotAllowed(Problem(where, expected, "one that was changed, or signed with another key", remedy))
    if body.get("id") != name:
        raise NotAllowed(Problem(where, expected, f"one of another submission, {body.get('id')!r}", remedy))


def _digest(body: Mapping[str, Any], key: bytes) -> str:
    content = {name: value for name, value in body.items() if name != "signature"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hmac.new(key, _PURPOSE + text.encode(), sha256).hexdigest()
