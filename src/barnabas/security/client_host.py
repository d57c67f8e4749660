"""The host in an ACL and the address of a client, made comparable."""

from __future__ import annotations

from functools import lru_cache

from barnabas.network.connection_limits import canonical_address


def canonical_host(host: str) -> str:
    """An address in the one way to write it, and anything else as it is.

    IPv6 has many ways: Java writes out all zeros and Python none, and a client that speaks IPv4 to a socket for both
    shows up as ``::ffff:192.0.2.7``. An ACL means the machine, whoever wrote it.

    >>> canonical_host("0:0:0:0:0:0:0:1"), canonical_host("192.0.2.7"), canonical_host("*")
    ('::1', '192.0.2.7', '*')
    """
    return _canonical(host) if ":" in host else host


@lru_cache(maxsize=4096)
def _canonical(host: str) -> str:
    try:
        return canonical_address(host)
    except ValueError:
        return host
