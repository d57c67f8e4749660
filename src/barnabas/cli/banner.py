"""What a started broker says about itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas import __version__

if TYPE_CHECKING:
    from barnabas.broker.kafka_raft_server import KafkaRaftServer


def banner(server: KafkaRaftServer) -> str:
    """A few lines with all that one needs to use the broker."""
    rows = [
        ("bootstrap server", server.bootstrap_servers),
        ("data", ", ".join(map(str, server.config.log_dirs))),
        ("cluster id", server.cluster_id),
    ]
    if server.http_address is not None:
        rows.append(("metrics, health", f"{server.http_address}/metrics, {server.http_address}/health"))
    width = max(len(label) for label, _ in rows)
    lines = "\n".join(f"  {label:<{width}}  {value}" for label, value in rows)
    return f"\nBarnabas {__version__} is ready (Kafka protocol)\n\n{lines}\n\n  Ctrl-C stops it.\n\n"
