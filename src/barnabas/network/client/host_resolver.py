"""Resolves host names to addresses, for connections that a client makes."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import NamedTuple


class UnknownHostError(OSError):
    """The host name is unknown to the name servers, or is not a valid name."""


class ResolvedAddress(NamedTuple):
    """An IP address with its family, IPv4 or IPv6."""

    family: int
    ip: str


HostResolver = Callable[[str], Sequence[ResolvedAddress]]
"""Returns all addresses of a host, in the order in which to try them. Raises ``OSError`` if there are none."""


def for_resolver(host: str) -> str | bytes:
    """Converts a host for `socket.getaddrinfo`: an address to bytes.

    A string would first be encoded as an international name, which is pointless for an address and loads character
    tables that most brokers never need.
    """
    return host.encode() if host.isascii() and (":" in host or host.replace(".", "").isdigit()) else host


def resolve_all_ips(host: str) -> list[ResolvedAddress]:
    """Returns all addresses that the machine's resolver has for a host: ``client.dns.lookup=use_all_dns_ips``.

    Both IPv4 and IPv6, in the order that RFC 6724 prefers. Blocks the connecting thread until the name server responds;
    Kafka's clients do the same.
    """
    try:
        found = socket.getaddrinfo(for_resolver(host), None, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:  # ValueError: UnicodeError for an invalid host name
        raise UnknownHostError(f"the host name {host!r} cannot be resolved: {error}") from error
    addresses: dict[ResolvedAddress, None] = {}
    for family, _, _, _, sockaddr in found:
        if family == socket.AF_INET:
            addresses[ResolvedAddress(family, str(sockaddr[0]))] = None
        elif family == socket.AF_INET6:
            ip, scope = str(sockaddr[0]), sockaddr[-1]
            # A link-local address is valid only with its interface.
            addresses[ResolvedAddress(family, f"{ip}%{int(scope)}" if scope else ip)] = None
    if not addresses:
        raise UnknownHostError(f"the host name {host!r} has no address")
    return list(addresses)
