"""Fetches records of the assigned partitions ahead of the application."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from barnabas.clients.common.fetch_client import Fetch, FetchClient
from barnabas.clients.common.fetch_session_handler import PartitionToFetch
from barnabas.clients.common.metadata import LeaderIdAndEpoch
from barnabas.clients.common.partition_errors import Recovery, recovery_of
from barnabas.clients.consumer.consumer_config import ConsumerConfig
from barnabas.clients.consumer.internals.completed_fetch import CompletedFetch, FetchReading
from barnabas.clients.consumer.internals.consumer_metadata import ConsumerMetadata
from barnabas.clients.consumer.internals.consumer_metrics import FetchedResponse, FetchMetrics
from barnabas.clients.consumer.internals.fetch_buffer import FetchBuffer
from barnabas.clients.consumer.internals.fetch_files import FetchFiles
from barnabas.clients.consumer.internals.fetch_position import FetchPosition
from barnabas.clients.consumer.internals.fetch_size import FetchSize
from barnabas.clients.consumer.internals.request_managers import (
    EMPTY,
    FOREVER,
    PatientRequestManager,
    PollResult,
    UnsentRequest,
)
from barnabas.clients.consumer.internals.subscription_state import SubscriptionState
from barnabas.common.errors import Errors
from barnabas.common.identifiers import ZERO_UUID
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.client.client_request import ClientResponse
from barnabas.network.client.node import Node
from barnabas.protocol.messages.fetch import FetchResponse

log = logging.getLogger(__name__)

_TELLS_LEADER: Final = frozenset({Errors.NOT_LEADER_OR_FOLLOWER, Errors.FENCED_LEADER_EPOCH})
"""The errors that come with the current leader (KIP-951)."""


class FetchRequestManager(PatientRequestManager):
    """Keeps one fetch request in flight to each node, for all partitions with a position and no buffered data.

    **Pipelining.** As soon as the application has taken the last record of a response, the next request is sent, while
    the application still processes those records.

    **A node with buffered data waits.** A request cannot name its buffered partitions, because their data would come
    twice. Leaving them out would drop them from the fetch session and add them again with the next request. So a node
    gets the next request when the application has taken all of its data.

    **Except for tables.** Decoding a response into a table takes about as long as fetching one. To overlap the two, the
    next request is sent as soon as a response has arrived, from the offset where that one ends. With two responses
    buffered, the node waits as above. If the application seeks meanwhile, the response does not match the partition's
    position and is discarded like any stale one. Responses also become larger if ``max.partition.fetch.bytes`` is not
    set (see `FetchSize`).

    **Which replica.** The leader, or the replica that the leader has recommended because it is in the consumer's rack
    (KIP-392). The recommendation expires after a while, when the replica fails, and when the leader changes.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        subscriptions: SubscriptionState,
        metadata: ConsumerMetadata,
        buffer: FetchBuffer,
        metrics: FetchMetrics,
        reading: FetchReading,
        *,
        is_unavailable: Callable[[Node, int], bool],
        files: FetchFiles,
    ) -> None:
        self._config = config
        self._subscriptions = subscriptions
        self._positions = subscriptions.positions
        self._metadata = metadata
        self._buffer = buffer
        self._metrics = metrics
        self._reading = reading
        self._is_unavailable = is_unavailable
        self._files = files
        self._client = FetchClient(config.fetch_settings())
        self._sizes: dict[int, FetchSize] = {}
        self._has_fixed_size = config.values.is_set("max.partition.fetch.bytes")
        self._pending: set[int] = set()
        """The nodes with a request in flight."""
        self._nodes: dict[int, Node] = {}
        self._refused: dict[TopicPartition, tuple[FetchPosition, int]] = {}
        """Positions whose fetch failed with an error, and until when the same fetch is not repeated."""
        self._closing = False
        self._assignment_id = subscriptions.assignment.id

    # -- requests

    def poll(self, now: int) -> PollResult:
        if self._closing:
            return EMPTY
        if self._assignment_id != self._subscriptions.assignment.id:
            self._assignment_id = self._subscriptions.assignment.id  # read first: the assignment may change
            self._metrics.update_assignment(
                self._subscriptions.assignment.partitions(), self._positions.preferred_read_replica
            )
        wanted, wait_ms = self._plan(now)
        if not wanted:
            return EMPTY if wait_ms == FOREVER else PollResult(wait_ms)
        return PollResult(wait_ms, [self._request(self._nodes[node_id], rows) for node_id, rows in wanted.items()])

    def _plan(self, now: int) -> tuple[dict[int, dict[TopicPartition, PartitionToFetch]], int]:
        """Plans the fetch for each node; also returns when to retry."""
        buffer = self._buffer
        ends: dict[TopicPartition, int | None] = {}
        buffer.holds_up = True  # set before the check: a thread that takes something out meanwhile wakes this one
        if buffer.reads_ahead:
            ends = buffer.ends()
            buffered = {partition for partition, end in ends.items() if end is None}
            here = len(ends)
        else:
            buffered = buffer.buffered_partitions()
            here = len(buffered)
        plan = self._positions.fetch_plan(now)
        busy: set[int] = set()
        if buffered:
            # A paused partition is not in the plan: it must not hold up the others.
            for partition, position, replica in plan:
                leader = position.current_leader.leader
                if partition in buffered and leader is not None:
                    busy.add(leader.id if replica is None else self._read_replica(partition, leader, replica).id)
            plan = [row for row in plan if row[0] not in buffered]
        pending, topic_id = self._pending, self._metadata.snapshot.topic_id
        wanted: dict[int, dict[TopicPartition, PartitionToFetch]] = {}
        max_bytes: dict[int, int] = {}
        unavailable: set[int] = set()
        wait_ms = FOREVER
        topic, id_of_topic = "", ZERO_UUID
        for partition, position, replica in plan:
            leader = position.current_leader.leader
            if leader is None:
                log.debug("The leader of %s is not known", partition)
                self._metadata.request_update()
                wait_ms = min(wait_ms, self._config.retry_backoff_ms)
                continue
            if partition in self._refused and (left_ms := self._refusal_ms(partition, position, now)):
                wait_ms = min(wait_ms, left_ms)
                continue
            node = leader if replica is None else self._read_replica(partition, leader, replica)
            node_id = node.id
            if node_id in pending or node_id in busy:
                if partition in ends and node_id in pending:
                    here -= 1  # the node's next response triggers the next request
                continue
            if node_id not in wanted:
                if node_id in unavailable or self._is_unavailable(node, now):
                    unavailable.add(node_id)
                    wait_ms = min(wait_ms, self._config.retry_backoff_ms)
                    continue
                self._nodes[node_id] = node
                wanted[node_id] = {}
                max_bytes[node_id] = self._max_partition_bytes(node_id, len(plan))
            offset = position.offset
            if partition in ends:
                end_offset = ends[partition]
                assert end_offset is not None  # otherwise it would be buffered, and not requested
                offset = end_offset
                here -= 1
            if partition.topic != topic:
                topic = partition.topic
                id_of_topic = topic_id(topic)
            wanted[node_id][partition] = PartitionToFetch(
                id_of_topic, offset, max_bytes[node_id], position.current_leader.epoch
            )
        buffer.holds_up = here > 0
        return wanted, wait_ms

    def _max_partition_bytes(self, node_id: int, partitions: int) -> int:
        config = self._config
        if self._has_fixed_size or not self._buffer.reads_ahead:
            return config.max_partition_fetch_bytes
        size = self._sizes.get(node_id)
        if size is None:
            size = self._sizes[node_id] = FetchSize(config.max_partition_fetch_bytes, config.fetch_max_bytes)
        return size.ask(partitions)

    def _refusal_ms(self, partition: TopicPartition, position: FetchPosition, now: int) -> int:
        """Returns how long to wait before repeating a failed fetch.

        Brokers and this client's metadata take a moment to agree on the leader. A position that has moved, or has
        another leader, does not wait."""
        refused, until_ms = self._refused[partition]
        if refused == position and now < until_ms:
            return until_ms - now
        del self._refused[partition]
        return 0

    def _read_replica(self, partition: TopicPartition, leader: Node, replica: int) -> Node:
        """Returns the preferred read replica, if it is available."""
        node = self._metadata.snapshot.nodes.get(replica)
        info = self._metadata.snapshot.partition(partition)
        if node is not None and (info is None or replica not in info.offline_replicas):
            return node
        log.debug("Not fetching %s from its preferred read replica %d, which is not there", partition, replica)
        self._positions.clear_preferred_read_replica(partition)
        return leader

    def _request(self, node: Node, rows: dict[TopicPartition, PartitionToFetch]) -> UnsentRequest:
        self._files.ask(leave=self._buffer.leaves_unread)
        fetch = self._client.fetch(node.id, rows)
        self._pending.add(node.id)
        log.debug("Fetching %s from %s", fetch.body, node)
        return UnsentRequest(
            fetch.body, node, lambda response: self._on_response(node, fetch, response), allowed_versions=fetch.versions
        )

    # -- responses

    def _on_response(self, node: Node, fetch: Fetch, response: ClientResponse) -> None:
        self._pending.discard(node.id)
        if self._closing:
            return
        body = response.body
        if not isinstance(body, FetchResponse):
            self._on_failure(node, fetch, response)
            return
        included = fetch.read(body)
        if included is None:
            if recovery_of(body.error_code) is Recovery.REFRESH_METADATA:
                self._metadata.request_update()
            return
        completed: list[CompletedFetch] = []
        leaders: dict[TopicPartition, LeaderIdAndEpoch] = {}
        counted: FetchedResponse | None = None
        largest = 0
        for partition, data in included:
            row = fetch.partitions[partition]
            length = 0 if data.records is None else len(data.records)
            largest = max(largest, length)
            if data.error_code:
                self._refuse(partition, row, response.received_ms)
                if data.error_code in _TELLS_LEADER and data.current_leader is not None:
                    leaders[partition] = LeaderIdAndEpoch(
                        data.current_leader.leader_id, data.current_leader.leader_epoch
                    )
            if length or data.error_code or data.preferred_read_replica >= 0:
                try:
                    unread = self._files.unread_records(data.records)
                except (OSError, EOFError) as error:
                    log.warning("The records of %s cannot be read, and are fetched again: %s", partition, error)
                    continue
                part = CompletedFetch(partition, data, row.fetch_offset, self._reading, unread)
                completed.append(part)
                if length:
                    if counted is None:
                        counted = FetchedResponse()
                    counted.left += 1
                    part.response = counted
            else:
                self._subscriptions.lag.try_updating_watermarks(
                    partition, data.high_watermark, data.log_start_offset, data.last_stable_offset
                )
        self._metrics.record_response(response.destination, response.latency_ms)
        if node.id in self._sizes:
            self._sizes[node.id].responded(largest, response.received_ms)
        if leaders:
            moved = self._learn_leaders(leaders, body)
            # Already handled: the next request goes to the new leader.
            completed = [done for done in completed if done.partition not in moved]
        if completed:
            self._buffer.add(completed)

    def _refuse(self, partition: TopicPartition, row: PartitionToFetch, now: int) -> None:
        position = self._positions.position(partition)
        if position is not None and position.offset == row.fetch_offset:
            self._refused[partition] = (position, now + self._config.retry_backoff_ms)

    def _learn_leaders(
        self, leaders: dict[TopicPartition, LeaderIdAndEpoch], body: FetchResponse
    ) -> set[TopicPartition]:
        """Updates leaders from a response of a former leader (KIP-951); returns the partitions that changed."""
        nodes = [Node(row.node_id, row.host, row.port, row.rack) for row in body.node_endpoints]
        moved = self._metadata.update_partition_leadership(leaders, nodes)
        for partition in moved:
            self._subscriptions.validation.maybe_validate_position_for_current_leader(
                partition, self._metadata.current_leader(partition)
            )
        return moved

    def _on_failure(self, node: Node, fetch: Fetch, response: ClientResponse) -> None:
        fetch.session.handle_error()
        for partition in fetch.partitions:
            self._positions.clear_preferred_read_replica(partition)
        if response.version_mismatch is not None:
            log.error("Node %s cannot be fetched from: %s", node, response.version_mismatch)
        else:
            log.info("The fetch from %s got no response: %s", node, response.reason or "disconnected")
            self._metadata.request_update()

    # -- close

    def poll_on_close(self, now: int) -> PollResult:  # noqa: ARG002 - at once
        """Closes the fetch sessions."""
        self._closing = True
        return PollResult(
            FOREVER,
            [
                UnsentRequest(body, self._nodes[node_id], lambda _response: None)
                for node_id, body in self._client.close()
            ],
        )
