"""Addresses of the nodes of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

from barnabas.protocol.versions import VersionRange


class Endpoint(NamedTuple):
    """A registered listener: the address for clients that use the listener of this name."""

    name: str
    host: str
    port: int
    security_protocol: int
    """0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""


class Node(NamedTuple):
    """A node with its address on one of its listeners."""

    id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False


NO_NODE = Node(-1, "", -1)
"""The placeholder for a node without a known address."""


class EndpointRecord(Protocol):
    """An address in the registration record of a broker or a controller."""

    name: str
    host: str
    port: int
    security_protocol: int


class FeatureRecord(Protocol):
    """A supported feature in a registration record."""

    name: str
    min_supported_version: int
    max_supported_version: int


def endpoints_by_name(records: Iterable[EndpointRecord]) -> Mapping[str, Endpoint]:
    return MappingProxyType(
        {record.name: Endpoint(record.name, record.host, record.port, record.security_protocol) for record in records}
    )


def features_by_name(records: Iterable[FeatureRecord]) -> Mapping[str, VersionRange]:
    return MappingProxyType(
        {record.name: VersionRange(record.min_supported_version, record.max_supported_version) for record in records}
    )
