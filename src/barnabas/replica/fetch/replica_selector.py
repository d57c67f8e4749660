"""Replica selectors: choose the replica that a consumer reads from (KIP-392)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol, cast

from barnabas.common.config_def import ConfigError, Type, parse_type
from barnabas.common.topic_partition import TopicPartition
from barnabas.metadata.endpoint import Node
from barnabas.replica.results import ClientMetadata


class ReplicaView(NamedTuple):
    """A replica that has the consumer's fetch offset."""

    endpoint: Node
    log_end_offset: int
    time_since_last_caught_up_ms: int


class ReplicaSelector(Protocol):
    """Chooses among the in-sync replicas."""

    def select(
        self,
        partition: TopicPartition,
        client: ClientMetadata,
        leader: ReplicaView,
        replicas: tuple[ReplicaView, ...],
    ) -> ReplicaView | None:
        """Returns the replica to read from, None for the leader. `replicas` includes the leader."""
        ...


class LeaderSelector:
    """Always selects the leader."""

    def select(
        self,
        partition: TopicPartition,  # noqa: ARG002
        client: ClientMetadata,  # noqa: ARG002
        leader: ReplicaView,
        replicas: tuple[ReplicaView, ...],  # noqa: ARG002
    ) -> ReplicaView | None:
        return leader


class RackAwareReplicaSelector:
    """Selects a replica in the consumer's rack: the leader if it is there, else the most caught-up one."""

    def select(
        self,
        partition: TopicPartition,  # noqa: ARG002
        client: ClientMetadata,
        leader: ReplicaView,
        replicas: tuple[ReplicaView, ...],
    ) -> ReplicaView | None:
        rack = client.rack_id
        if not rack or leader.endpoint.rack == rack:
            return leader
        near = [replica for replica in replicas if replica.endpoint.rack == rack]
        if not near:
            return leader
        return max(near, key=lambda one: (one.log_end_offset, -one.time_since_last_caught_up_ms, one.endpoint.id))


_KAFKAS_NAMES: Final[Mapping[str, type[Any]]] = {
    "org.apache.kafka.common.replica.LeaderSelector": LeaderSelector,
    "org.apache.kafka.common.replica.RackAwareReplicaSelector": RackAwareReplicaSelector,
}


def make_replica_selector(name: str | None) -> ReplicaSelector | None:
    """Creates the selector of ``replica.selector.class``: one of Kafka's own by its Java name, or a Python class."""
    if not name:
        return None
    kind = _KAFKAS_NAMES.get(name) or parse_type("replica.selector.class", name, Type.CLASS)
    selector = kind()
    if not callable(getattr(selector, "select", None)):
        raise ConfigError.invalid("replica.selector.class", name, "the class has no method select")
    return cast("ReplicaSelector", selector)
