"""A client's view of the cluster, and when to refresh it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple

from barnabas.clients.common.client_config import RETRY_BACKOFF_EXP_BASE, RETRY_BACKOFF_JITTER
from barnabas.clients.common.metadata_snapshot import EMPTY_SNAPSHOT, MetadataSnapshot, PartitionInfo, TopicInfo
from barnabas.clients.common.partition_errors import Recovery, recovery_of
from barnabas.common.errors import (
    BarnabasError,
    Errors,
    InvalidTopicError,
    TopicAuthorizationError,
)
from barnabas.common.identifiers import ZERO_UUID
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.client.exponential_backoff import ExponentialBackoff
from barnabas.network.client.node import Node
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

log = logging.getLogger(__name__)


class MetadataRequestAndVersion(NamedTuple):
    """A metadata request, and the versions it was made from, which tell whether its response covers all wanted
    topics."""

    request: MetadataRequest
    request_version: int
    is_partial_update: bool


class LeaderIdAndEpoch(NamedTuple):
    """The leader of a partition, from the response to another request."""

    leader_id: int
    epoch: int


class Metadata:
    """The latest snapshot of the cluster, and its refresh state.

    **When to refresh.** On request, when the snapshot is older than ``metadata.max.age.ms``, or when topics are new.
    For new topics alone the request is partial: it names just these, and the response is merged. Requests are spaced by
    an exponential retry backoff, if responses fail, or do not help (the same state repeatedly, because a leader is
    missing).

    **Which response counts.** Brokers learn of changes one after the other. A partition's leader epoch tells which of
    two responses is newer: a lower epoch than the known one is ignored, and so is data of a topic's former incarnation
    (by its id).

    Each update has a version, so that a thread can wait for the next one.
    """

    def __init__(
        self,
        refresh_backoff_ms: int,
        refresh_backoff_max_ms: int,
        metadata_expire_ms: int,
        *,
        random: Random | None = None,
    ) -> None:
        self._refresh_backoff = ExponentialBackoff(
            refresh_backoff_ms,
            RETRY_BACKOFF_EXP_BASE,
            refresh_backoff_max_ms,
            RETRY_BACKOFF_JITTER,
            Random() if random is None else random,  # noqa: S311 - spreads load, keeps no secret
        )
        self._refresh_backoff_max_ms = max(refresh_backoff_ms, refresh_backoff_max_ms)
        self.metadata_expire_ms = metadata_expire_ms
        self.lock = threading.RLock()
        """Guards all fields but `snapshot`, which is read without it. Re-entrant, because a subclass overrides methods
        that are called with it held. No other lock is taken inside it."""
        self.updated = threading.Condition(self.lock)
        """Notified of a new snapshot, an error, or the close."""
        self.snapshot: MetadataSnapshot = EMPTY_SNAPSHOT
        self._update_version = 0
        self._request_version = 0
        self._last_refresh_ms: int | None = None
        self._last_successful_refresh_ms: int | None = None
        self._attempts = 0
        self._equivalent_responses = 0
        self._need_full_update = False
        self._need_partial_update = False
        self._last_seen_leader_epochs: dict[TopicPartition, int] = {}
        self._fatal_error: BarnabasError | None = None
        self._bootstrap_nodes: Sequence[Node] = ()
        self._closed = False
        self.connection_problems: dict[str, str] = {}
        """Why nodes were unreachable, by their address: for timeout messages."""

    # -- refresh

    def time_to_next_update(self, now: int) -> int:
        """Returns how long to wait before the next metadata request; 0: it is due."""
        # The common case: no request is pending, and no backoff exceeds the remaining age. Without the lock: a later
        # request ends the next poll, which checks again.
        refreshed_ms = self._last_successful_refresh_ms
        if not (self._need_full_update or self._need_partial_update) and refreshed_ms is not None:
            expire_ms = refreshed_ms + self.metadata_expire_ms - now
            if expire_ms >= self._refresh_backoff_max_ms > 0:
                return expire_ms
        with self.lock:
            if self._need_full_update or self._need_partial_update or self._last_successful_refresh_ms is None:
                expire_ms = 0
            else:
                expire_ms = max(self._last_successful_refresh_ms + self.metadata_expire_ms - now, 0)
            return max(expire_ms, self._time_to_allow_update(now, expired=expire_ms == 0))

    def _time_to_allow_update(self, now: int, *, expired: bool) -> int:
        if self._last_refresh_ms is None:
            return 0
        successful = self._last_successful_refresh_ms
        if expired and successful is not None and successful + self.metadata_expire_ms <= now:
            self._equivalent_responses = 0
        backoff = self._refresh_backoff.backoff
        wait_ms = backoff(max(self._attempts - 1, 0)) if self._attempts else backoff(0)
        if self._equivalent_responses:
            wait_ms = max(wait_ms, backoff(self._equivalent_responses - 1))
        return max(self._last_refresh_ms + wait_ms - now, 0)

    def request_update(self) -> int:
        """Requests a full update; returns the current version, to wait for a newer one."""
        with self.lock:
            self._need_full_update = True
            return self._update_version

    def request_update_for_new_topics(self) -> int:
        """Requests new topics without backoff; returns the current version, to wait for a newer one."""
        with self.lock:
            self._last_refresh_ms = None
            self._need_partial_update = True
            self._equivalent_responses = 0
            self._request_version += 1
            return self._update_version

    @property
    def update_requested(self) -> bool:
        with self.lock:
            return self._need_full_update or self._need_partial_update

    def new_metadata_request(self, now: int) -> MetadataRequestAndVersion:
        with self.lock:
            successful = self._last_successful_refresh_ms
            fresh = successful is not None and successful + self.metadata_expire_ms > now
            if not self._need_full_update and fresh:
                new_topics = self.new_topic_names()
                if new_topics is not None:
                    return MetadataRequestAndVersion(_request(new_topics), self._request_version, True)
            return MetadataRequestAndVersion(_request(self.topic_names()), self._request_version, False)

    # -- for subclasses

    def topic_names(self) -> Iterable[str]:
        """Returns the topics to request."""
        return ()

    def new_topic_names(self) -> Iterable[str] | None:
        """Returns the topics without metadata yet; None if they cannot be told apart."""
        return None

    def retain_topic(self, topic: str, is_internal: bool, now: int) -> bool:  # noqa: ARG002 - for subclasses
        """Whether to keep a topic of a response or of the snapshot."""
        return True

    # -- responses

    def bootstrap(self, nodes: Sequence[Node]) -> None:
        """Starts with the bootstrap addresses."""
        with self.lock:
            self._bootstrap_nodes = nodes
            self._need_full_update = True
            self._update_version += 1
            self.snapshot = MetadataSnapshot(nodes, is_bootstrap=True)
            self._last_refresh_ms = None

    def rebootstrap(self) -> None:
        """Goes back to the bootstrap servers (KIP-899). Topics stay wanted."""
        log.info("Starting again from the bootstrap servers %s", ", ".join(map(str, self._bootstrap_nodes)))
        self.bootstrap(self._bootstrap_nodes)

    def update(self, request_version: int, response: MetadataResponse, is_partial_update: bool, now: int) -> None:
        """Applies a response."""
        with self.lock:
            if self._closed:
                raise RuntimeError("metadata has been closed")
            self._need_partial_update = request_version < self._request_version
            self._last_refresh_ms = now
            self._attempts = 0
            self._update_version += 1
            if not is_partial_update:
                self._need_full_update = False
                self._last_successful_refresh_ms = now
            self._equivalent_responses += 1
            self.connection_problems.clear()
            before = self.snapshot.cluster_id
            self.snapshot = self._merge(response, is_partial_update, now)
            if before != self.snapshot.cluster_id:
                log.info("Cluster ID: %s", self.snapshot.cluster_id)
            for partition in list(self._last_seen_leader_epochs):
                if not self.retain_topic(partition.topic, False, now):
                    del self._last_seen_leader_epochs[partition]
            self.on_updated(response)
            self.updated.notify_all()

    def on_updated(self, response: MetadataResponse) -> None:
        """Hook for subclasses: called with the lock held, after a response was applied."""

    def _merge(self, response: MetadataResponse, is_partial_update: bool, now: int) -> MetadataSnapshot:
        before = self.snapshot
        nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack) for broker in response.brokers
        }
        topics: dict[str, TopicInfo] = {}
        unauthorized: set[str] = set()
        invalid: set[str] = set()
        if is_partial_update:
            mentioned = {topic.name for topic in response.topics}
            for other, known in before.topics.items():
                if other not in mentioned and self.retain_topic(other, known.is_internal, now):
                    topics[other] = _with_nodes(known, nodes)
            unauthorized |= before.unauthorized_topics - mentioned
            invalid |= before.invalid_topics - mentioned
        for topic in response.topics:
            name = topic.name
            if name is None or not self.retain_topic(name, topic.is_internal, now):
                continue
            error = Errors.for_code(topic.error_code)
            if error is Errors.NONE:
                topics[name] = self._topic(topic, before, nodes)
                continue
            if error is Errors.INVALID_TOPIC_EXCEPTION:
                log.error("Metadata response reported the invalid topic %s", name)
                invalid.add(name)
            elif error is Errors.TOPIC_AUTHORIZATION_FAILED:
                log.error("Topic authorization failed for topic %s", name)
                unauthorized.add(name)
            if recovery_of(error) is Recovery.REFRESH_METADATA:
                self._need_full_update = True
        return MetadataSnapshot(
            nodes.values(),
            topics.values(),
            cluster_id=response.cluster_id,
            controller=nodes.get(response.controller_id),
            unauthorized_topics=unauthorized,
            invalid_topics=invalid,
        )

    def _topic(self, topic: MetadataResponseTopic, before: MetadataSnapshot, nodes: Mapping[int, Node]) -> TopicInfo:
        assert topic.name is not None
        known = before.topics.get(topic.name)
        # If a response came between deletion and creation, the former id is forgotten; epochs start over all the same.
        recreated = topic.topic_id != ZERO_UUID and (known is None or known.topic_id not in {ZERO_UUID, topic.topic_id})
        if recreated and known is not None:
            log.info("Topic %s was recreated since the last metadata response", topic.name)
        partitions = []
        for row in sorted(topic.partitions, key=lambda partition: partition.partition_index):
            partitions.append(self._partition(topic.name, row, before, nodes, recreated))
            error = Errors.for_code(row.error_code)
            if recovery_of(error) is Recovery.REFRESH_METADATA:
                self._need_full_update = True
        return TopicInfo(topic.name, topic.topic_id, tuple(partitions), topic.is_internal)

    def _partition(
        self,
        topic: str,
        row: MetadataResponsePartition,
        before: MetadataSnapshot,
        nodes: Mapping[int, Node],
        recreated: bool,
    ) -> PartitionInfo:
        key = TopicPartition(topic, row.partition_index)
        epoch = row.leader_epoch if row.leader_epoch >= 0 else None
        fresh = PartitionInfo(
            topic,
            row.partition_index,
            nodes.get(row.leader_id),
            epoch,
            tuple(row.replica_nodes),
            tuple(row.isr_nodes),
            tuple(row.offline_replicas),
        )
        seen = self._last_seen_leader_epochs.get(key)
        if epoch is None:
            return fresh
        if recreated or seen is None or epoch >= seen:
            self._last_seen_leader_epochs[key] = epoch
            return fresh
        log.debug("Metadata for %s has epoch %d, older than %d, and is ignored", key, epoch, seen)
        known = before.partition(key)
        if known is None:
            return fresh._replace(leader=None, leader_epoch=seen)
        return known._replace(leader=None if known.leader is None else nodes.get(known.leader.id, known.leader))

    def update_partition_leadership(
        self, leaders: Mapping[TopicPartition, LeaderIdAndEpoch], leader_nodes: Iterable[Node]
    ) -> set[TopicPartition]:
        """Applies newer leaders from another response (KIP-951); returns the partitions that changed."""
        with self.lock:
            nodes = {**self.snapshot.nodes, **{node.id: node for node in leader_nodes}}
            changed: dict[TopicPartition, PartitionInfo] = {}
            for partition, leader in leaders.items():
                known = self.snapshot.partition(partition)
                if known is None or leader.leader_id not in nodes or leader.epoch < 0:
                    continue
                if known.leader_epoch is not None and leader.epoch <= known.leader_epoch:
                    continue
                changed[partition] = known._replace(leader=nodes[leader.leader_id], leader_epoch=leader.epoch)
                self._last_seen_leader_epochs[partition] = leader.epoch
            if changed:
                snapshot = self.snapshot
                topics = [
                    topic._replace(
                        partitions=tuple(
                            changed.get(TopicPartition(info.topic, info.partition), info) for info in topic.partitions
                        )
                    )
                    for topic in snapshot.topics.values()
                ]
                self.snapshot = MetadataSnapshot(
                    nodes.values(),
                    topics,
                    cluster_id=snapshot.cluster_id,
                    controller=snapshot.controller,
                    unauthorized_topics=snapshot.unauthorized_topics,
                    invalid_topics=snapshot.invalid_topics,
                )
            return set(changed)

    def failed_update(self, now: int) -> None:
        """Records a failed request."""
        with self.lock:
            self._last_refresh_ms = now
            self._attempts += 1
            self._equivalent_responses = 0

    def fatal_error(self, error: BarnabasError) -> None:
        """Fails all waiting threads: retrying is useless."""
        with self.lock:
            self._fatal_error = error
            self.updated.notify_all()

    def maybe_raise_fatal_error(self) -> None:
        with self.lock:
            error, self._fatal_error = self._fatal_error, None
        if error is not None:
            raise error

    def maybe_raise_for_topic(self, topic: str) -> None:
        """Raises a permanent error of a topic."""
        self.maybe_raise_fatal_error()
        if topic in self.snapshot.unauthorized_topics:
            raise TopicAuthorizationError(f"Not authorized to access topics: [{topic}]")
        if topic in self.snapshot.invalid_topics:
            raise InvalidTopicError(f"Invalid topics: [{topic}]")

    # -- other operations

    @property
    def update_version(self) -> int:
        with self.lock:
            return self._update_version

    @property
    def last_successful_update_ms(self) -> int | None:
        return self._last_successful_refresh_ms

    def last_seen_leader_epoch(self, partition: TopicPartition) -> int | None:
        with self.lock:
            return self._last_seen_leader_epochs.get(partition)

    def note_connection_problem(self, address: str, reason: str) -> None:
        with self.lock:
            self.connection_problems[address] = reason

    def explain_silence(self) -> str:
        """Explains a missing response by connection problems; empty if none are known."""
        with self.lock:
            return "; ".join(self.connection_problems.values())

    def close(self) -> None:
        with self.lock:
            self._closed = True
            self.updated.notify_all()

    @property
    def is_closed(self) -> bool:
        return self._closed


def _request(topics: Iterable[str]) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=topic) for topic in topics], allow_auto_topic_creation=True
    )


def _with_nodes(topic: TopicInfo, nodes: Mapping[int, Node]) -> TopicInfo:
    """Returns the topic with leaders at their current addresses."""
    return topic._replace(
        partitions=tuple(
            info if info.leader is None else info._replace(leader=nodes.get(info.leader.id, info.leader))
            for info in topic.partitions
        )
    )
