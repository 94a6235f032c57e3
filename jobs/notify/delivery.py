"""One delivery: a POST, tried again with growing pauses while the receiver is down, and given up within a minute.

No redirect is followed: where the file points is where it goes. Of an answer only the status is read.
"""

from __future__ import annotations

import random
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException

from jobs.notify.signing import DELIVERY, HEADER, signature
from services.outgoing import OPENER

TOTAL_SECONDS = 60.0
CALL_SECONDS = 10.0
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 16.0
AGENT = "classwise-webhook/1"


@dataclass(frozen=True)
class Attempt:
    """One try: the status of the answer, or what kept it from coming."""

    at: float
    seconds: float
    status: int | None = None
    error: str = ""
    retry_after: float | None = None
    final: bool = False

    @property
    def delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def again(self) -> bool:
        """Whether another try may help: no connection, too many requests, or a fault of the receiver's."""
        if self.final:
            return False
        return self.status is None or self.status == 429 or self.status >= 500


def pause_after(tries: int, last: Attempt, spent: float, chance: float) -> float | None:
    """Seconds to wait after so many tries, or None to give up.

    Args:
        spent: seconds since the first try began.
        chance: in [0, 1), so that those who failed together do not come back together.
    """
    if last.delivered or not last.again:
        return None
    pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (tries - 1)) * (0.5 + 0.5 * chance)
    pause = max(pause, last.retry_after or 0.0)
    return pause if spent + pause < TOTAL_SECONDS else None


def deliver(
    url: str,
    body: bytes,
    delivery: str,
    secret: str,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Attempt]:
    """Send it until it arrives, is refused, or a minute is over; returns what was tried."""
    begun, tries = clock(), list[Attempt]()
    while True:
        left = TOTAL_SECONDS - (clock() - begun)
        tries.append(_post(url, body, delivery, secret, max(0.5, min(CALL_SECONDS, left))))
        pause = pause_after(len(tries), tries[-1], clock() - begun, random.random())
        if pause is None:
            return tries
        sleep(pause)


def _post(url: str, body: bytes, delivery: str, secret: str, seconds: float) -> Attempt:
    at = time.time()
    headers = {"content-type": "application/json", "user-agent": AGENT, DELIVERY: delivery}
    if secret:
        headers[HEADER] = signature(body, secret, int(at))
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")
    begun = time.monotonic()
    try:
        with OPENER.open(request, timeout=seconds) as answer:
            return Attempt(at, time.monotonic() - begun, answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        status = f"HTTP {error.code}" + (", a redirect, which is not followed" if 300 <= error.code < 400 else "")
        return Attempt(at, time.monotonic() - begun, error.code, status, _seconds(error.headers.get("retry-after")))
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        final = isinstance(reason, ssl.SSLCertVerificationError | ValueError)
        return Attempt(at, time.monotonic() - begun, None, _message(reason), final=final)


def _seconds(text: str | None) -> float | None:
    """`Retry-After` in seconds; a date is taken for none."""
    return float(text) if text and text.isascii() and text.isdigit() and len(text) < 6 else None


def _message(reason: object) -> str:
    return f"{type(reason).__name__}: {' '.join(str(reason).split())[:200]}"
