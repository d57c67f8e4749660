"""Subscriptions: which metrics which clients push."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from barnabas._kernels import checksum
from barnabas.common.client_pattern import ClientPattern
from barnabas.common.dataclass import dataclass
from barnabas.common.identifiers import Uuid

if TYPE_CHECKING:
    from barnabas.telemetry.telemetry_client import TelemetryClient

crc32c = checksum.crc32c

ALL_METRICS: Final = "*"
DEFAULT_INTERVAL_MS: Final = 5 * 60 * 1000
"""How often a client without a subscription requests one, and the default push interval."""


@dataclass(frozen=True, slots=True)
class SubscriptionInfo:
    """One configured subscription: a resource of type ``client-metrics``."""

    name: str
    metrics: frozenset[str]
    """Prefixes of metric names; `ALL_METRICS` for all."""
    interval_ms: int = DEFAULT_INTERVAL_MS
    match: Mapping[str, ClientPattern] | None = None
    """Patterns by attribute. A client must match all of them completely; None matches every client."""

    def matches(self, attributes: Mapping[str, str | None]) -> bool:
        """Returns whether it matches a client with these attributes. A missing attribute matches no pattern."""
        return all(
            (value := attributes.get(name)) is not None and pattern.matches(value)
            for name, pattern in (self.match or {}).items()
        )


@dataclass(frozen=True, slots=True)
class ClientSubscription:
    """The combined subscription of one client, from all subscriptions that match it.

    Its metrics are the union, its interval is the shortest. ``*`` includes all others:

        "all-producers"    match client_id=billing-.*     metrics org.apache.kafka.producer.   interval 60 s
        "debug-billing-3"  match client_id=billing-3      metrics *                            interval 10 s

        billing-2 pushes org.apache.kafka.producer.  every 60 s
        billing-3 pushes everything                  every 10 s

    A client that matches none pushes nothing, and requests its subscription again after the default interval.
    """

    subscription_id: int
    metrics: tuple[str, ...]
    push_interval_ms: int

    @classmethod
    def of(
        cls, subscriptions: Iterable[SubscriptionInfo], client_instance_id: Uuid, client: TelemetryClient
    ) -> ClientSubscription:
        attributes = client.attributes(client_instance_id)
        wanted: set[str] = set()
        interval_ms = DEFAULT_INTERVAL_MS
        for subscription in subscriptions:
            if subscription.matches(attributes):
                wanted |= subscription.metrics
                interval_ms = min(interval_ms, subscription.interval_ms)
        metrics = (ALL_METRICS,) if ALL_METRICS in wanted else tuple(sorted(wanted))
        return cls(subscription_id(metrics, interval_ms, client_instance_id), metrics, interval_ms)


def subscription_id(metrics: Iterable[str], push_interval_ms: int, client_instance_id: Uuid) -> int:
    """Returns the ID that a client sends with each push, so that the broker detects an outdated subscription.

    It depends only on metrics, interval and client, and is the same on every broker: a checksum of metrics and
    interval, XOR the client's ID, so that two clients with the same metrics have different IDs.
    """
    text = f"[{', '.join(metrics)}]{push_interval_ms}"
    value = crc32c(text.encode()) ^ (uuid_hash(client_instance_id) & 0xFFFFFFFF)
    return value - (1 << 32) if value & 0x80000000 else value


def uuid_hash(value: Uuid) -> int:
    """Returns Java's hash of a UUID: its four 32-bit words, XORed; signed.

    >>> uuid_hash(Uuid(bytes(15) + b"\\x01"))
    1
    """
    words = (int.from_bytes(value[at : at + 4], "big") for at in range(0, 16, 4))
    folded = 0
    for word in words:
        folded ^= word
    return folded - (1 << 32) if folded & 0x80000000 else folded
