"""Bootstrap addresses, right and wrong."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.clients.common.bootstrap import bootstrap_nodes, parse_address
from barnabas.common.config_def import ConfigError
from barnabas.network.client.host_resolver import ResolvedAddress, UnknownHostError


def resolver(host: str) -> Sequence[ResolvedAddress]:
    if host.startswith("unknown"):
        raise UnknownHostError(f"the host name {host!r} cannot be resolved: not known")
    return [ResolvedAddress(2, "192.0.2.1")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("host:9092", ("host", 9092)),
        (" host:9092 ", ("host", 9092)),
        ("[::1]:1", ("::1", 1)),
        ("PLAINTEXT://host.example:65535", ("host.example", 65535)),
    ],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert parse_address(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("host", "host:port"),
        ("host:port", "host:port"),
        ("host:0", "1 to 65535"),
        ("host:65536", "1 to 65535"),
        ("::1", r"\[::1\]:9092"),
        ("", "host:port"),
    ],
)
def test_wrong_addresses(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_address(text)


def test_unknown_hosts_are_left_out_unless_there_is_no_other(caplog: pytest.LogCaptureFixture) -> None:
    nodes = bootstrap_nodes(["unknown1:1", "host:2"], resolver)
    assert [(node.id, node.host, node.port) for node in nodes] == [(-1, "host", 2)]
    assert "unknown1" in caplog.text
    with pytest.raises(ConfigError, match=r"No resolvable bootstrap urls.*unknown1:1: the host name 'unknown1' cannot"):
        bootstrap_nodes(["unknown1:1", "unknown2:1"], resolver)
    assert len(bootstrap_nodes(["unknown1:1"], None)) == 1
