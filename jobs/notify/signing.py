"""The signature of a delivery, for who sends it and for who receives it. Only the standard library is needed.

A receiver in Python::

    from jobs.notify.signing import HEADER, verify

    if not verify(request.body, request.headers[HEADER], secret):
        return 401

The header is ``t=SECONDS,v1=HEX``: HEX is the HMAC-SHA256, keyed with the secret, of ``SECONDS.BODY``, the body as it
came. The time is signed too, so that an old delivery cannot be sent again; several ``v1`` may stand there while a
secret is being changed. A retried delivery keeps its id (`DELIVERY`), so that it can be distinguished from a new one.
"""

from __future__ import annotations

import hmac
import time
from hashlib import sha256

HEADER = "X-Classwise-Signature"
DELIVERY = "X-Classwise-Delivery"
TOLERANCE = 300.0
"""Seconds between the clocks of sender and receiver, and for the way."""


def signature(body: bytes, secret: str, at: int) -> str:
    """The header of a body that is sent `at` these seconds since 1970."""
    return f"t={at},v1={_digest(body, secret, str(at))}"


def verify(body: bytes, header: str, secret: str, *, tolerance: float = TOLERANCE, now: float | None = None) -> bool:
    """Whether the body is one that a holder of the secret sent within the last `tolerance` seconds.

    Args:
        body: as it came, before any parsing.
        header: the value of `HEADER`.
        now: seconds since 1970; default: the clock.
    """
    fields = [part.strip().partition("=") for part in header.split(",")]
    times = [value for name, _, value in fields if name == "t"]
    if not secret or len(times) != 1 or not (times[0].isascii() and times[0].isdigit() and len(times[0]) < 16):
        return False
    if abs((time.time() if now is None else now) - int(times[0])) > tolerance:
        return False
    expected = _digest(body, secret, times[0]).encode()
    signatures = [value.encode("utf-8", "replace") for name, _, value in fields if name == "v1"]
    return any(hmac.compare_digest(expected, each) for each in signatures)


def _digest(body: bytes, secret: str, at: str) -> str:
    return hmac.new(secret.encode(), f"{at}.".encode() + body, sha256).hexdigest()
