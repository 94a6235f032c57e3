"""What stands before every request: who calls, how often, and how much they send.

A plain ASGI middleware, so that a refused request costs no parsing, and a body is counted while it comes in, whatever
its headers say.
"""

from __future__ import annotations

import hmac
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import asdict
from hashlib import sha256
from ipaddress import IPv6Network, ip_address
from typing import Any

from jobs.web.access import Caller
from services.errors import Problem

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

CALLERS = 10_000
"""Callers whose rates are remembered; the one that was silent longest is forgotten."""


class Rates:
    """A token bucket a caller: so many requests a minute, in bursts of at most as many.

    Args:
        per_minute: of one caller.
        clock: seconds that only grow.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = float(per_minute)
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_for(self, caller: str) -> float:
        """Take one request; 0 when it is granted, else seconds until the next one would be."""
        now = self._clock()
        left, then = self._known.pop(caller, (self._limit, now))
        left = min(self._limit, left + (now - then) * self._limit / 60)
        granted = left >= 1
        self._known[caller] = (left - 1 if granted else left, now)
        while len(self._known) > CALLERS:
            self._known.popitem(last=False)
        return 0.0 if granted else (1 - left) * 60 / self._limit


def origin(address: str) -> str:
    """Whose address it is: of IPv6 the network of 64 bits, for one machine has all addresses in it."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(IPv6Network((int(parsed) >> 64 << 64, 64)))


class TooLarge(Exception):
    """The body is longer than the limit."""


class Guard:
    """Lets a request pass when its path is open to all or signed, or its bearer token is known.

    Args:
        app: what is guarded.
        digests: callers' names to the SHA-256 of their tokens.
        callers: what they may do, by name; one without an entry has the usual rights on all fleets.
        rates: one budget a caller; without a token, one an address.
        body: bytes of a body at most.
        open_paths: need no token, and have no budget.
        signed_paths: need no token, for what they take is signed. Only answers of 401 count against the address:
            others who share it cannot keep a signed request out.
    """

    def __init__(
        self,
        app: App,
        *,
        digests: Mapping[str, bytes],
        rates: Rates,
        body: int,
        open_paths: frozenset[str],
        signed_paths: frozenset[str] = frozenset(),
        callers: Mapping[str, Caller] | None = None,
    ) -> None:
        self._app = app
        self._digests = dict(digests)
        self._callers = {name: Caller(name) for name in digests} | dict(callers or {})
        self._rates = rates
        self._body = body
        self._open = open_paths
        self._signed = signed_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {bytes(key).lower(): bytes(value) for key, value in scope["headers"]}
        caller = self._caller(headers.get(b"authorization", b"")) or scope.get("state", {}).get("identity")
        who = f"caller {caller.name}" if caller else f"address {origin((scope.get('client') or ('unknown',))[0])}"
        signed = caller is None and scope["path"] in self._signed
        seconds = 0.0 if signed or scope["path"] in self._open else self._rates.wait_for(who)
        if seconds:
            await _refuse_rate(send, seconds)
        elif caller is None and not signed and scope["path"] not in self._open:
            problem = Problem("authorization", "a bearer token that is known", "none or another", "ask for one")
            await _refuse(send, 401, "Unauthorized", problem, {"www-authenticate": "Bearer"})
        elif _declared(headers) > self._body:
            await _refuse(send, 413, "TooLarge", self._too_large())
        else:
            scope.setdefault("state", {})["caller"] = caller
            await self._counted(scope, receive, self._charging(send, who) if signed else send)

    def _charging(self, send: Send, address: str) -> Send:
        """Count an answer of 401 against the address; one too many becomes 429."""
        over = False

        async def charged(message: Message) -> None:
            nonlocal over
            if message["type"] == "http.response.start" and message["status"] == 401:
                seconds = self._rates.wait_for(address)
                over = seconds > 0
                if over:
                    await _refuse_rate(send, seconds)
            if not over:
                await send(message)

        return charged

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application on a body that ends when it gets too long."""
        received, begun = 0, False

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._body:
                raise TooLarge
            return message

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, counted, noted)
        except TooLarge:
            if begun:
                raise
            await _refuse(send, 413, "TooLarge", self._too_large())

    def _caller(self, header: bytes) -> Caller | None:
        """Who has this token; every known one is compared, and none ends the comparison early."""
        kind, _, token = header.partition(b" ")
        hashed = sha256(token.strip()).digest()
        matched = None
        for name, digest in self._digests.items():
            if hmac.compare_digest(digest, hashed) and kind.lower() == b"bearer":
                matched = name
        return self._callers[matched] if matched is not None else None

    def _too_large(self) -> Problem:
        return Problem("body", f"at most {self._body} bytes", "more")


def _declared(headers: Mapping[bytes, bytes]) -> int:
    text = headers.get(b"content-length", b"0")
    return int(text) if text.isdigit() and len(text) < 20 else 0


async def _refuse_rate(send: Send, seconds: float) -> None:
    problem = Problem("rate", "fewer requests a minute", "more", f"wait {seconds:.0f} s")
    await _refuse(send, 429, "TooManyRequests", problem, {"retry-after": str(int(seconds) + 1)})


async def _refuse(
    send: Send, status: int, error: str, problem: Problem, headers: Mapping[str, str] | None = None
) -> None:
    body = json.dumps({"error": error, "problems": [asdict(problem)]}).encode()
    lines = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
    encoded = [(key.encode(), value.encode()) for key, value in lines.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})
