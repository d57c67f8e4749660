"""Parses and checks bootstrap addresses, with a message for each mistake."""

from __future__ import annotations

import ipaddress
import logging
import re
from collections.abc import Sequence

from barnabas.common.config_def import ConfigError
from barnabas.network.client.host_resolver import HostResolver, resolve_all_ips
from barnabas.network.client.node import Node

log = logging.getLogger(__name__)

_ADDRESS = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://)?(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:\[\]]+)):(?P<port>-?\d+)")


def parse_address(text: str) -> tuple[str, int]:
    """Parses ``host:port``, ``[::1]:port`` or ``PLAINTEXT://host:port``."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        try:
            ipaddress.IPv6Address(text.strip())
        except ValueError:
            hint = "it must be host:port"
        else:
            hint = f"an IPv6 address needs brackets and a port, as in [{text.strip()}]:9092"
        raise ConfigError(f"Invalid url in bootstrap.servers: {text}: {hint}.", name="bootstrap.servers")
    host = match["v6"] or match["host"]
    port = int(match["port"])
    if not 0 < port < 65536:
        raise ConfigError(
            f"Invalid port in bootstrap.servers: {text}: a port is a number from 1 to 65535.", name="bootstrap.servers"
        )
    return host, port


def bootstrap_nodes(servers: Sequence[str], resolver: HostResolver | None = resolve_all_ips) -> list[Node]:
    """Returns the addresses as nodes, with negative ids until metadata has their real ones.

    With a resolver, unknown host names are left out with a warning; if none is left, that is an error.
    """
    nodes: list[Node] = []
    problems: list[str] = []
    for text in servers:
        host, port = parse_address(text)
        if resolver is not None:
            try:
                resolver(host)
            except OSError as error:
                problems.append(f"{text}: {error}")
                log.warning("Cannot use %s of bootstrap.servers: %s", text, error)
                continue
        nodes.append(Node(-1 - len(nodes), host, port))
    if not nodes:
        detail = "; ".join(problems) or "there is none"
        raise ConfigError(
            f"No resolvable bootstrap urls given in bootstrap.servers: {detail}.", name="bootstrap.servers"
        )
    return nodes
