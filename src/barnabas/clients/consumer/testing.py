"""A Kafka cluster in memory, for tests of consumers: no sockets, no threads, no waiting.

    cluster = ConsumerCluster(topics={"orders": 1})
    cluster.append("orders", 0, [b"a", b"b"])
    consumer = cluster.consumer(auto_offset_reset="earliest")
    consumer.assign([TopicPartition("orders", 0)])
    records = cluster.run(consumer, lambda: consumer.poll(1000))

The consumer, its network client and its bytes are real; only the layers below are simulated. A test injects failures as
with the base class: ``fail_next``, ``move_leader``, ``stop`` and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from barnabas.clients.consumer.kafka_consumer import KafkaConsumer
from barnabas.clients.testing import Fate, Handled, ScriptedCluster
from barnabas.common.errors import Errors
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.message import Response
from barnabas.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from barnabas.records.batch import RecordBatch
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.reader import read_records

T = TypeVar("T")

READ_COMMITTED = 1


@dataclass(slots=True)
class FetchLog:
    """The log of a partition, for fetches."""

    batches: list[bytes] = field(default_factory=list)
    start_offset: int = 0
    last_stable_offset: int | None = None
    """None: the log end offset."""
    aborted: list[tuple[int, int]] = field(default_factory=list)
    preferred_read_replica: int = -1
    cut_to: int | None = None
    """Truncates each response to this many bytes."""
    epoch_ends: dict[int, int] = field(default_factory=dict)
    """Overrides the OffsetForLeaderEpoch response that the batches imply."""

    @property
    def end_offset(self) -> int:
        return RecordBatch(self.batches[-1]).next_offset if self.batches else self.start_offset

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Returns whole batches from the one with the offset on; at least one."""
        found = bytearray()
        for batch in self.batches:
            if RecordBatch(batch).last_offset >= offset and (not found or len(found) + len(batch) <= max_bytes):
                found += batch
        return bytes(found[: self.cut_to])


class ConsumerCluster(ScriptedCluster):
    """A scripted cluster that also serves consumers."""

    def __init__(self, topics: Mapping[str, int] | None = None, **settings: Any) -> None:
        super().__init__(topics, **settings)
        self.logs: dict[TopicPartition, FetchLog] = {}
        self.sessions: dict[int, dict[TopicPartition, FetchPartition]] = {}
        """The partitions of each fetch session, by its id."""
        self.session_epochs: dict[int, int] = {}
        self.partition_errors: dict[TopicPartition, list[Errors]] = {}
        """Errors for the next fetches of a partition."""
        self._hold_ms = 0
        self.tell_leaders = False
        """Whether a node that does not lead a partition names the leader."""

    # -- test interface

    def log(self, topic: str, partition: int = 0) -> FetchLog:
        return self.logs.setdefault(TopicPartition(topic, partition), FetchLog())

    def append(
        self,
        topic: str,
        partition: int,
        values: Iterable[bytes | None],
        *,
        timestamp: int = 0,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        **batch: Any,
    ) -> None:
        """Appends a batch of records whose keys are their offsets."""
        log = self.log(topic, partition)
        batch.setdefault("partition_leader_epoch", self.topics[topic].partitions[partition].epoch)
        builder = RecordBatchBuilder(base_offset=log.end_offset, **batch)
        for offset, value in enumerate(values, log.end_offset):
            builder.append(timestamp, b"%d" % offset, value, headers)
        log.batches.append(bytes(builder.close()))

    def append_batch(self, topic: str, partition: int, batch: bytes | bytearray) -> None:
        """Appends any bytes, such as a control batch or a corrupt batch."""
        self.log(topic, partition).batches.append(bytes(batch))

    def consumer(self, **settings: Any) -> KafkaConsumer:
        """Returns a consumer of this cluster that runs no thread."""
        return KafkaConsumer(**self._client_settings(settings))

    def run(self, consumer: KafkaConsumer, call: Callable[[], T]) -> T:
        """Runs a call that waits for the background thread: each wait runs one iteration of that thread instead."""
        return self._driven(consumer.network_thread.run_once, call)

    def turn_until(self, consumer: KafkaConsumer, done: Callable[[], bool], max_turns: int = 1_000) -> None:
        """Runs iterations of the background thread until a condition holds."""
        for _ in range(max_turns):
            if done():
                return
            consumer.network_thread.run_once()
        raise AssertionError(f"the condition does not hold after {max_turns} turns: {consumer!r}")

    # -- received requests

    def handle(self, node_id: int, payload: bytes) -> tuple[bytes | None, Fate]:
        self._hold_ms = 0
        response, fate = super().handle(node_id, payload)
        # A fetch without new data gets a late response, as from real brokers; records written meanwhile come with the
        # next one.
        return response, replace(fate, delay_ms=fate.delay_ms + self._hold_ms)

    def _respond(self, handled: Handled) -> Response | None:
        body = handled.body
        if not isinstance(body, FetchRequest | ListOffsetsRequest | OffsetForLeaderEpochRequest):
            return super()._respond(handled)
        response, error = self._scripted(handled)
        if response is not None:
            return response
        if isinstance(body, FetchRequest):
            return self._fetch(handled, body, error)
        if isinstance(body, ListOffsetsRequest):
            return self._list_offsets(handled, body, error)
        return self._epoch_ends(body, error)

    def _objection(self, node_id: int, partition: TopicPartition, epoch: int, *, leads: bool = True) -> Errors:
        topic = self.topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            return Errors.UNKNOWN_TOPIC_OR_PARTITION
        state = topic.partitions[partition.partition]
        if leads and state.leader != node_id:
            return Errors.NOT_LEADER_OR_FOLLOWER
        if 0 <= epoch < state.epoch:
            return Errors.FENCED_LEADER_EPOCH
        return Errors.UNKNOWN_LEADER_EPOCH if epoch > state.epoch else Errors.NONE

    def _fetch(self, handled: Handled, request: FetchRequest, error: Errors) -> FetchResponse:
        names = {topic.topic_id: name for name, topic in self.topics.items()}
        session_id = request.session_id
        if error is not Errors.NONE:
            return FetchResponse(error_code=error)
        if request.session_epoch > 0:
            if self.session_epochs.get(session_id) != request.session_epoch:
                known = session_id in self.session_epochs
                code = Errors.INVALID_FETCH_SESSION_EPOCH if known else Errors.FETCH_SESSION_ID_NOT_FOUND
                return FetchResponse(error_code=code)
            self.session_epochs[session_id] += 1
        else:
            self.sessions.pop(session_id, None)
            self.session_epochs.pop(session_id, None)
            if request.session_epoch < 0:
                return FetchResponse()
            session_id = max(self.session_epochs, default=0) + 1
            self.session_epochs[session_id] = 1
            self.sessions[session_id] = {}
        session = self.sessions[session_id]
        for forgotten in request.forgotten_topics_data:
            for number in forgotten.partitions:
                session.pop(TopicPartition(forgotten.topic or names[forgotten.topic_id], number), None)
        for asked in request.topics:
            for row in asked.partitions:
                session[TopicPartition(asked.topic or names[asked.topic_id], row.partition)] = row
        response = FetchResponse(session_id=session_id)
        self._hold_ms = request.max_wait_ms
        for partition, row in session.items():
            data = self._partition(handled.node_id, partition, row, request.isolation_level)
            has_news = data.error_code or data.records or data.preferred_read_replica >= 0
            if has_news:
                self._hold_ms = 0
            if has_news or request.session_epoch == 0:
                topic = self.topics[partition.topic]
                response.responses.append(
                    FetchableTopicResponse(topic=partition.topic, topic_id=topic.topic_id, partitions=[data])
                )
                if data.current_leader is not None:
                    node = self.nodes[data.current_leader.leader_id]
                    response.node_endpoints.append(NodeEndpoint(node_id=node.id, host=node.host, port=node.port))
        return response

    def _partition(
        self, node_id: int, partition: TopicPartition, row: FetchPartition, isolation_level: int
    ) -> PartitionData:
        log = self.log(*partition)
        end = log.end_offset
        data = PartitionData(
            partition_index=partition.partition,
            high_watermark=end,
            last_stable_offset=end if log.last_stable_offset is None else log.last_stable_offset,
            log_start_offset=log.start_offset,
            records=b"",
        )
        errors = self.partition_errors.get(partition)
        follower = log.preferred_read_replica >= 0 and node_id == log.preferred_read_replica
        error = (
            errors.pop(0)
            if errors
            else self._objection(node_id, partition, row.current_leader_epoch, leads=not follower)
        )
        if error is Errors.NONE and not log.start_offset <= row.fetch_offset <= end:
            error = Errors.OFFSET_OUT_OF_RANGE
        if error is not Errors.NONE:
            data.error_code = error
            data.high_watermark = -1
            if self.tell_leaders and error in {Errors.NOT_LEADER_OR_FOLLOWER, Errors.FENCED_LEADER_EPOCH}:
                state = self.topics[partition.topic].partitions[partition.partition]
                data.current_leader = LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.epoch)
            return data
        if log.preferred_read_replica >= 0 and not follower:
            data.preferred_read_replica = log.preferred_read_replica
            return data
        data.records = log.read(row.fetch_offset, row.partition_max_bytes)
        if isolation_level == READ_COMMITTED:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=producer_id, first_offset=first) for producer_id, first in log.aborted
            ]
        return data

    def _list_offsets(self, handled: Handled, request: ListOffsetsRequest, error: Errors) -> ListOffsetsResponse:
        response = ListOffsetsResponse()
        for topic in request.topics:
            rows = []
            for row in topic.partitions:
                partition = TopicPartition(topic.name, row.partition_index)
                failed = (
                    error
                    if error is not Errors.NONE
                    else self._objection(handled.node_id, partition, row.current_leader_epoch)
                )
                offset, timestamp = (
                    (-1, -1)
                    if failed is not Errors.NONE
                    else self._offset(partition, row.timestamp, request.isolation_level)
                )
                rows.append(
                    ListOffsetsPartitionResponse(
                        partition_index=row.partition_index, error_code=failed, offset=offset, timestamp=timestamp
                    )
                )
            response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
        return response

    def _offset(self, partition: TopicPartition, timestamp: int, isolation_level: int) -> tuple[int, int]:
        log = self.log(*partition)
        if timestamp == -1:
            stable = log.last_stable_offset
            return (log.end_offset if stable is None or isolation_level != READ_COMMITTED else stable), -1
        if timestamp == -2:
            return log.start_offset, -1
        for batch in log.batches:
            for record in read_records(RecordBatch(batch)):
                if record.timestamp >= timestamp:
                    return record.offset, record.timestamp
        return -1, -1

    def _epoch_ends(self, request: OffsetForLeaderEpochRequest, error: Errors) -> OffsetForLeaderEpochResponse:
        response = OffsetForLeaderEpochResponse()
        for topic in request.topics:
            rows = []
            for row in topic.partitions:
                log = self.log(topic.topic, row.partition)
                end = log.epoch_ends.get(row.leader_epoch, log.end_offset)
                epoch = row.leader_epoch if end >= 0 else -1
                rows.append(
                    EpochEndOffset(error_code=error, partition=row.partition, leader_epoch=epoch, end_offset=end)
                )
            response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=rows))
        return response
