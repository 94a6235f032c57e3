"""Requests to a scoring server: tried again while it is down or busy, at a rate, and never more images than a budget.

No redirect is followed: where the URI points is where images and token go. A busy server (429, 503 and the like) says
with `Retry-After` when to come back; else pauses double. Images are counted before they are sent, so a request that is
tried again counts again.
"""

from __future__ import annotations

import random
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException

from services.errors import Problem, ResourceError, SourceError, one_line
from services.outgoing import OPENER

BUSY = {408, 425, 429, 500, 502, 503, 504}
"""Statuses after which the same request may succeed."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0
LONGEST_WAIT = 600.0
"""Seconds of a `Retry-After` that are waited for; a server that asks for more is given up."""
MOST_BYTES = 1 << 28
"""Of an answer."""
AGENT = "classwise-audit/1"


@dataclass(frozen=True)
class Manners:
    """How a server is asked.

    Attributes:
        timeout: seconds that one answer may take.
        retries: further tries of a request.
        rate: requests a second, of all threads together; None for no limit.
        budget: images that may be sent; None for no limit.
    """

    timeout: float = 30.0
    retries: int = 5
    rate: float | None = None
    budget: int | None = None


@dataclass(frozen=True)
class Answer:
    """Of one try: the status and body, or why there is none; seconds that the server asked to wait."""

    status: int | None
    body: bytes = b""
    error: str = ""
    wait: float | None = None
    final: bool = False


def pause_after(tries: int, last: Answer, retries: int, chance: float) -> float | None:
    """Seconds to wait after so many tries, or None to give up.

    Args:
        chance: in [0, 1), so that threads that failed together do not come back together.
    """
    again = not last.final and (last.status is None or last.status in BUSY)
    if not again or tries > retries or (last.wait or 0.0) > LONGEST_WAIT:
        return None
    pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (tries - 1)) * (0.5 + 0.5 * chance)
    return max(pause, last.wait or 0.0)


@dataclass
class ScoringClient:
    """One server.

    Args:
        where: the model's name, for messages.
        token: sent as a bearer token where it is not empty.
    """

    where: str
    manners: Manners
    token: str = field(default="", repr=False)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    sent: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0.0

    def ask(self, url: str, body: bytes | None = None, *, images: int = 0) -> bytes:
        """The body of the answer to a GET, or to a POST of a JSON body that holds so many images.

        Raises:
            SourceError: no answer, or another status than 200, after all tries.
            ResourceError: the images would exceed the budget.
        """
        tries = 0
        while True:
            self._spend(images)
            self._wait_for_turn()
            answer = self._try(url, body)
            tries += 1
            if answer.status == 200:
                return answer.body
            pause = pause_after(tries, answer, self.manners.retries, random.random())
            if pause is None:
                raise SourceError(_refused(self.where, url, answer, tries))
            self.sleep(pause)

    def _spend(self, images: int) -> None:
        budget = self.manners.budget
        with self._lock:
            if budget is not None and self.sent + images > budget:
                actual = f"{self.sent:,} sent and {images:,} more to send"
                remedy = "raise budget=, or measure less; finished shards are kept"
                raise ResourceError(Problem(f"{self.where} (budget)", f"at most {budget:,} images", actual, remedy))
            self.sent += images

    def _wait_for_turn(self) -> None:
        if self.manners.rate is None:
            return
        with self._lock:
            now = self.clock()
            turn = max(now, self._next)
            self._next = turn + 1.0 / self.manners.rate
        if turn > now:
            self.sleep(turn - now)

    def _try(self, url: str, body: bytes | None) -> Answer:
        headers = {"accept": "application/json", "user-agent": AGENT}
        if body is not None:
            headers["content-type"] = "application/json"
        if self.token:
            headers["authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(url, data=body, headers=headers, method="GET" if body is None else "POST")
        try:
            with OPENER.open(request, timeout=self.manners.timeout) as answer:
                content = answer.read(MOST_BYTES + 1)
                if len(content) > MOST_BYTES:
                    return Answer(None, error=f"an answer of more than {MOST_BYTES} bytes", final=True)
                return Answer(answer.status, content)
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, _words(error), wait=seconds_of(error.headers.get("retry-after")))
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            final = isinstance(reason, ssl.SSLCertVerificationError | ValueError)
            return Answer(None, error=f"{type(reason).__name__}: {one_line(reason)}", final=final)


def seconds_of(text: str | None, now: datetime | None = None) -> float | None:
    """`Retry-After` in seconds, which is a number of them or a date; None where it is neither."""
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return float(text) if len(text) < 10 else float("inf")
    try:
        then = parsedate_to_datetime(text)
    except ValueError:
        return None
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    return max(0.0, (then - (now or datetime.now(UTC))).total_seconds())


def _words(error: urllib.error.HTTPError) -> bytes:
    try:
        return error.read(2_000)
    except (OSError, HTTPException):
        return b""


REMEDIES = {
    401: "name the variable that holds its token with token_env=",
    403: "check the token, and what it may do",
    404: "check the address and the model's name",
    413: "send fewer images a request with batch=",
    429: "ask more slowly with rate=, or later: finished shards are kept",
}


def _refused(where: str, url: str, answer: Answer, tries: int) -> Problem:
    times = f" after {tries} tries" if tries > 1 else ""
    if answer.status is None:
        remedy = "check the address and that the server runs"
        return Problem(where, f"an answer from {url}", f"{answer.error}{times}", remedy)
    said = one_line(answer.body.decode("utf-8", "replace"))
    status = f"HTTP {answer.status}" + (", a redirect, which is not followed" if 300 <= answer.status < 400 else "")
    found = f"{status}{times}" + (f": {said}" if said else "")
    return Problem(where, f"scores from {url}", found, REMEDIES.get(answer.status, "look into the server's log"))
