"""Where processes listen."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from ipaddress import IPv6Address, ip_address

import psutil


def others_can_reach(pids: Iterable[int]) -> dict[str, str]:
    """Addresses beyond the loopback on which these processes and their descendants listen, with who does."""
    found: dict[str, str] = {}
    for root in pids:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(root)
            for each in [process, *process.children(recursive=True)]:
                with suppress(psutil.NoSuchProcess):
                    found |= _addresses(each)
    return found


def _addresses(process: psutil.Process) -> dict[str, str]:
    listening = [each.laddr for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
    return {f"{each.ip}:{each.port}": process.name() for each in listening if not _is_loopback(each.ip)}


def _is_loopback(text: str) -> bool:
    address = ip_address(text)
    inner = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (inner or address).is_loopback
