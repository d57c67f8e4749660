"""The banner that a started broker prints."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import barnabas
from barnabas import _kernels

if TYPE_CHECKING:
    from barnabas.broker.config.kafka_config import KafkaConfig
    from barnabas.broker.node.kafka_raft_server import KafkaRaftServer


def banner(server: KafkaRaftServer) -> str:
    """Returns a few lines with everything that a user needs to connect."""
    rows = [
        ("bootstrap server", server.bootstrap_servers),
        ("data", ", ".join(map(str, server.config.log_dirs))),
        ("cluster id", server.cluster_id),
        ("code", running_code()),
    ]
    if server.http_address is not None:
        rows.append(("metrics, health", f"{server.http_address}/metrics, {server.http_address}/health"))
    width = max(len(label) for label, _ in rows)
    lines = "\n".join(f"  {label:<{width}}  {value}" for label, value in rows)
    return f"\nBarnabas {barnabas.__version__} is ready (Kafka protocol)\n\n{lines}\n\n  Ctrl-C stops it.\n\n"


def running_code() -> str:
    """Returns whether the compiled modules or their Python twins run, and the version of Python.

    The twins run if the extensions were not built for this interpreter, or with ``BARNABAS_PURE=1``. The broker then
    behaves the same but is slower.
    """
    return f"{_kernels.running_code()}, Python {'.'.join(map(str, sys.version_info[:3]))}"


def open_listener_warning(config: KafkaConfig, advertised: Sequence[str]) -> str | None:
    """Returns a warning if a listener accepts connections from other machines without any security, else None."""
    if config.authorizer_class_name:
        return None
    reachable = [
        f"{listener.host or '0.0.0.0'}:{listener.port}"  # noqa: S104 - an empty host is all interfaces
        for listener in config.listeners
        if listener.security_protocol.name == "PLAINTEXT" and not is_loopback(listener.host)
    ]
    if not reachable:
        return None
    return (
        f"Listening on {', '.join(reachable)} without encryption, authentication or ACLs: everyone who can reach this "
        "machine can read, change and delete all data.\n"
        f"Clients connect to {', '.join(advertised)}; "
        "to change that, use --override advertised.listeners=PLAINTEXT://HOST:PORT."
    )


def is_loopback(host: str) -> bool:
    """
    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("")
    (True, True, True, False, False)
    """
    return host in {"localhost", "::1"} or host.startswith("127.")
