"""Connection limits: configuration with bounds, addresses and host names."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from barnabas.common.dataclass import dataclass, field
from barnabas.common.errors import InvalidConfigurationError
from barnabas.network.client.host_resolver import for_resolver

UNLIMITED = 2**31 - 1
"""Kafka's value for "no limit": the largest 32-bit number."""

LEAST_RESERVE: Final = 32
MOST_RESERVE: Final = 1024
RESERVE_SHARE: Final = 16
"""1/RESERVE_SHARE of the limit on open files is reserved from connections, within the bounds above."""

Resolver: TypeAlias = Callable[[str], Iterable[str]]
"""Resolves a host name to its addresses. Raises OSError or ValueError for a name that has none."""


def _no_entries() -> Mapping[str, int]:
    return MappingProxyType({})


@dataclass(frozen=True)
class ConnectionLimits:
    """The limits that a broker starts with. All but the sampling of rates can be changed later."""

    max_connections_per_ip: int = UNLIMITED
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=_no_entries)
    """By address or host name."""
    max_connections: int = UNLIMITED
    max_connection_creation_rate: int = UNLIMITED
    """Connections per second."""
    quota_samples: int = 11
    quota_window_seconds: int = 1
    inter_broker_listener: str | None = None
    listener_max_connections: Mapping[str, int] = field(default_factory=_no_entries)
    """``listener.name.<listener>.max.connections``; the default is `max_connections`."""
    listener_max_connection_creation_rate: Mapping[str, int] = field(default_factory=_no_entries)
    """Likewise; the default is `max_connection_creation_rate`."""

    def __post_init__(self) -> None:
        for value in (self.max_connections_per_ip, *self.max_connections_per_ip_overrides.values()):
            at_least(0, "max.connections.per.ip", value)
        for value in (self.max_connections, *self.listener_max_connections.values()):
            at_least(0, "max.connections", value)
        for value in (self.max_connection_creation_rate, *self.listener_max_connection_creation_rate.values()):
            at_least(0, "max.connection.creation.rate", value)
        at_least(1, "quota.window.num", self.quota_samples)
        at_least(1, "quota.window.size.seconds", self.quota_window_seconds)


def descriptor_ceiling(*, for_clients: bool = True) -> int:
    """Returns the first file descriptor that connections may not use; `UNLIMITED` if there is no limit.

    Segments, indexes, snapshots and checkpoints are files, too. A broker that cannot open one because connections have
    taken all descriptors cannot append, roll or create a log. The system always assigns the lowest free number. So the
    number of a new socket shows whether the reserve is reached, without a further system call, and counts descriptors
    of all kinds.

    Connections within the cluster may use half of the reserve: without them, a broker cannot reach its controller.
    """
    try:
        import resource  # not available on Windows
    except ImportError:
        return UNLIMITED
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return UNLIMITED
    reserve = min(max(limit // RESERVE_SHARE, LEAST_RESERVE), MOST_RESERVE)
    return max(limit - (reserve if for_clients else reserve // 2), 1)


def at_least(least: int, setting: str, value: int) -> None:
    """Rejects a value below the minimum of a config."""
    if value < least:
        raise InvalidConfigurationError(f"{setting}={value}: must be at least {least}")


def canonical_address(text: str) -> str:
    """Returns the canonical form: IPv6 in its shortest form, IPv4 within IPv6 as IPv4, no zone, no brackets.

    >>> canonical_address("[0:0:0:0:0:0:0:1]"), canonical_address("::ffff:192.0.2.7"), canonical_address("fe80::1%eth0")
    ('::1', '192.0.2.7', 'fe80::1')
    """
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def resolve_host(host: str) -> list[str]:
    """Returns all addresses of a host name from the machine's resolver."""
    if not host:
        raise ValueError("the name is empty")
    return [str(info[4][0]) for info in socket.getaddrinfo(for_resolver(host), None, type=socket.SOCK_STREAM)]


def addresses_of(host: str, resolve: Resolver) -> list[str]:
    """Returns the addresses of a host name or address. May query a name server: hold no lock."""
    if _is_address(host):
        return [canonical_address(host)]
    try:
        addresses = [canonical_address(address) for address in resolve(host)]
    except (OSError, ValueError) as error:  # ValueError: UnicodeError for an invalid host name
        raise InvalidConfigurationError(f"the host name {host!r} of a connection quota: {error}") from error
    if not addresses:
        raise InvalidConfigurationError(f"the host name {host!r} of a connection quota has no address")
    return addresses


def resolve_overrides(overrides: Mapping[str, int], resolve: Resolver) -> dict[str, int]:
    """Returns overrides by address. One for an address takes precedence over one for its host name."""
    by_name: dict[str, int] = {}
    by_address: dict[str, int] = {}
    for host, maximum in overrides.items():
        target = by_address if _is_address(host) else by_name
        target.update(dict.fromkeys(addresses_of(host, resolve), maximum))
    return by_name | by_address


def _is_address(text: str) -> bool:
    try:
        canonical_address(text)
    except ValueError:
        return False
    return True
