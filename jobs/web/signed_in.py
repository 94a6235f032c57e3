"""Callers whom a proxy has signed in: oauth2-proxy, Envoy Gateway and their like name the user in a header.

The header counts only on connections from a trusted proxy, by the address of the connection itself; it is removed from
others' requests. A header that is there twice is ignored: a proxy that passes on what a client sent beside its own name
would let the client choose.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from ipaddress import IPv4Network, IPv6Network, ip_address

from jobs.web.access import Caller
from jobs.web.guard import App, Receive, Scope, Send

CROSS_SITE = {b"cross-site", b"same-site"}
"""Values of Sec-Fetch-Site with which a browser was sent here by another page."""


class Identity:
    """ASGI middleware, outermost: it sees the address of the connection before anything rewrites it.

    Args:
        app: what comes behind it.
        header: of the user's name, in any case of letters.
        proxies: who is believed.
        callers: patterns of names, and what their owners may do; the first that fits counts.
        taken: names of others, in any case of letters: quotas, budgets and the audit log know callers by their names.
    """

    def __init__(
        self,
        app: App,
        *,
        header: str,
        proxies: Sequence[IPv4Network | IPv6Network],
        callers: Sequence[Caller],
        taken: Iterable[str] = (),
    ) -> None:
        self._app, self._header = app, header.lower().encode()
        self._proxies, self._callers = tuple(proxies), tuple(callers)
        self._taken = {name.casefold() for name in taken}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = [(bytes(key).lower(), bytes(value)) for key, value in scope["headers"]]
            names = [value for key, value in headers if key == self._header]
            scope["headers"] = [(key, value) for key, value in headers if key != self._header]
            proxied = _is_in((scope.get("client") or ("",))[0], self._proxies)
            if proxied and len(names) == 1 and not _is_forged(scope["method"], headers):
                scope.setdefault("state", {})["identity"] = self._caller(names[0])
        await self._app(scope, receive, send)

    def _caller(self, name: bytes) -> Caller | None:
        text = name.decode("ascii", "replace").strip()
        if not text or len(text) > 200 or "," in text or not text.isprintable() or not text.isascii():
            return None  # a proxy may join by a comma what was there twice (RFC 9110, 5.3)
        if text.casefold() in self._taken:
            return None
        known = next((caller for caller in self._callers if fnmatchcase(text, caller.name)), None)
        return replace(known, name=text) if known is not None else None


def _is_forged(method: str, headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """A change that another site's page asked a signed-in browser for: a proxy's cookie goes along with it.

    Browsers say Sec-Fetch-Site to https alone, and Origin with every change.
    """
    given = dict(headers)
    origin = given.get(b"origin")
    elsewhere = origin is not None and origin.lower().partition(b"://")[2] != given.get(b"host", b"").lower()
    return method not in ("GET", "HEAD") and (elsewhere or given.get(b"sec-fetch-site", b"").lower() in CROSS_SITE)


def _is_in(address: str, networks: Sequence[IPv4Network | IPv6Network]) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return any(parsed in network for network in networks)
