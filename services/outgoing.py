"""Requests that go where they are sent: no redirect is followed, and no name leads to where a cloud hands out secrets.

A name is granted once and looked up at each request, so its owner says each time where it leads. Servers of one's own
have private addresses, which pass. Addresses of the machine's own link (169.254.0.0/16, fe80::/10) and the others below
belong to no server that has a name: they are metadata services. The open connection is judged and not the name, so that
nothing can change in between; which port it leads to is in the address that was granted.
"""

from __future__ import annotations

import urllib.request
from contextlib import suppress
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

METADATA = frozenset(map(ip_address, ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254")))
"""Of Alibaba, Azure, Oracle and Amazon, besides 169.254.169.254."""


class Misdirected(ValueError):
    """A name that leads to a metadata service."""


def is_metadata(address: str) -> bool:
    """Whether an address, which a socket names, is of the machine's own link or a metadata service; mapped ones too."""
    try:
        parsed: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    inner = getattr(parsed, "ipv4_mapped", None) or getattr(parsed, "sixtofour", None)
    return any(each.is_link_local or each in METADATA for each in (parsed, inner) if each is not None)


def _judged(connection: HTTPConnection) -> None:
    """Close a connection to a metadata service, unless the address itself was named; raises `Misdirected`."""
    address = str(connection.sock.getpeername()[0]) if connection.sock else ""
    with suppress(ValueError):
        if ip_address(connection.host.strip("[]")) == ip_address(address):
            return
    if is_metadata(address):
        connection.close()
        raise Misdirected(f"expected a server of one's own or a public one at {connection.host}, found {address}")


class _Plain(HTTPConnection):
    def connect(self) -> None:
        super().connect()
        _judged(self)


class _Secure(HTTPSConnection):
    def connect(self) -> None:
        super().connect()
        _judged(self)


class _PlainHandler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_Plain, req)


class _SecureHandler(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_Secure, req)


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect; the answer is taken as it is."""

    def redirect_request(self, *arguments: Any, **options: Any) -> None:
        return None


OPENER = urllib.request.build_opener(_Stay, _PlainHandler, _SecureHandler)
"""Of all requests to addresses that a fleet file names."""
