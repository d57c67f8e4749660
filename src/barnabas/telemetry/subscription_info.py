"""Subscriptions: which metrics somebody wants from which clients."""

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
"""How often a client asks whether there is a subscription for it by now, and pushes if nobody says otherwise."""


@dataclass(frozen=True, slots=True)
class SubscriptionInfo:
    """One subscription, as somebody has set it up: a resource of type ``client-metrics``."""

    name: str
    metrics: frozenset[str]
    """Prefixes of names of metrics; `ALL_METRICS` among them for all."""
    interval_ms: int = DEFAULT_INTERVAL_MS
    match: Mapping[str, ClientPattern] | None = None
    """Patterns by what they are about. A client has to match all of them, each from end to end; None matches all."""

    def matches(self, attributes: Mapping[str, str | None]) -> bool:
        """Whether it is for the client with these attributes. What a client does not have, no pattern matches."""
        return all(
            (value := attributes.get(name)) is not None and pattern.matches(value)
            for name, pattern in (self.match or {}).items()
        )


@dataclass(frozen=True, slots=True)
class ClientSubscription:
    """What is wanted of one client, from all subscriptions that match it.

    The wanted metrics are those of all of them together, the interval is the shortest. ``*`` takes in all others:

        "all-producers"    match client_id=billing-.*     metrics org.apache.kafka.producer.   interval 60 s
        "debug-billing-3"  match client_id=billing-3      metrics *                            interval 10 s

        billing-2 pushes org.apache.kafka.producer.  every 60 s
        billing-3 pushes everything                  every 10 s

    A client that none of them matches is asked for nothing, and comes back after the default interval.
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
    """The number that a client quotes with each push, so that the broker sees what the client thinks is wanted.

    It says the same as long as metrics and interval are the same, whichever broker is asked and however often: a
    checksum of both, XOR the client's own id, so that two clients never share one by being asked for the same.
    """
    text = f"[{', '.join(metrics)}]{push_interval_ms}"
    value = crc32c(text.encode()) ^ (uuid_hash(client_instance_id) & 0xFFFFFFFF)
    return value - (1 << 32) if value & 0x80000000 else value


def uuid_hash(value: Uuid) -> int:
    """Java's hash of a UUID: its four 32-bit words, XORed; signed.

    >>> uuid_hash(Uuid(bytes(15) + b"\\x01"))
    1
    """
    words = (int.from_bytes(value[at : at + 4], "big") for at in range(0, 16, 4))
    folded = 0
    for word in words:
        folded ^= word
    return folded - (1 << 32) if folded & 0x80000000 else folded
