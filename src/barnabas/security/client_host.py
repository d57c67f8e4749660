"""Makes hosts in ACLs and addresses of clients comparable."""

from __future__ import annotations

from functools import lru_cache

from barnabas.network.server.connection_limits import canonical_address


def canonical_host(host: str) -> str:
    """Returns the canonical form of an IP address, and anything else unchanged.

    IPv6 addresses have many forms: Java writes all zeros and Python none, and an IPv4 client of a dual-stack socket
    appears as ``::ffff:192.0.2.7``. An ACL means the machine in any form.

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
