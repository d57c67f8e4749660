"""From host names to addresses, for connections that a client makes."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import NamedTuple


class UnknownHostError(OSError):
    """A host name that no name server knows, or that cannot be a name at all."""


class ResolvedAddress(NamedTuple):
    """An IP address, and whether it is version 4 or 6."""

    family: int
    ip: str


HostResolver = Callable[[str], Sequence[ResolvedAddress]]
"""All addresses of a host, in the order in which to try them. Raises ``OSError`` if there are none."""


def for_resolver(host: str) -> str | bytes:
    """A host as `socket.getaddrinfo` should get it: an address as bytes.

    A string is encoded as an international name first, which is nothing to an address, and loads tables of characters
    that most brokers never need.
    """
    return host.encode() if host.isascii() and (":" in host or host.replace(".", "").isdigit()) else host


def resolve_all_ips(host: str) -> list[ResolvedAddress]:
    """All addresses that the machine's resolver has for a host: ``client.dns.lookup=use_all_dns_ips``.

    IPv4 and IPv6 both, in the order that RFC 6724 prefers. Asks a name server and waits for it, on the thread that
    wants to connect; Kafka's clients do the same.
    """
    try:
        found = socket.getaddrinfo(for_resolver(host), None, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:  # a UnicodeError, for what cannot be a host name, is a ValueError
        raise UnknownHostError(f"the host name {host!r} cannot be resolved: {error}") from error
    addresses: dict[ResolvedAddress, None] = {}
    for family, _, _, _, sockaddr in found:
        if family == socket.AF_INET:
            addresses[ResolvedAddress(family, str(sockaddr[0]))] = None
        elif family == socket.AF_INET6:
            ip, scope = str(sockaddr[0]), sockaddr[-1]
            # The address of a link is only an address together with the interface.
            addresses[ResolvedAddress(family, f"{ip}%{int(scope)}" if scope else ip)] = None
    if not addresses:
        raise UnknownHostError(f"the host name {host!r} has no address")
    return list(addresses)
