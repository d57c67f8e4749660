"""Addresses of the nodes of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeVar

from barnabas.protocol.versions import VersionRange

R = TypeVar("R")


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


def endpoint_records(kind: Callable[..., R], endpoints: Iterable[EndpointRecord | Endpoint]) -> list[R]:
    """Returns endpoints as structs of a registration record, or of a registration request."""
    return [
        kind(name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol) for one in endpoints
    ]


def feature_records(kind: Callable[..., R], features: Mapping[str, VersionRange]) -> list[R]:
    """Returns supported features as structs of a registration record, or of a registration request."""
    return [
        kind(name=name, min_supported_version=versions.lowest, max_supported_version=versions.highest)
        for name, versions in features.items()
    ]


def features_by_name(records: Iterable[FeatureRecord]) -> Mapping[str, VersionRange]:
    return MappingProxyType(
        {record.name: VersionRange(record.min_supported_version, record.max_supported_version) for record in records}
    )
