"""A Kafka cluster in memory, for tests of what uses a client: no sockets, no threads, no waiting.

    cluster = ScriptedCluster(topics={"orders": 3})
    producer = cluster.producer(linger_ms=0)
    future = producer.send("orders", b"...")
    cluster.run_until(producer, future.done)
    assert cluster.values("orders", future.result().partition) == [b"..."]

It is a real producer, with its real network client and real bytes; only what is below that is made up. Time is a
`MockClock`, which moves when the producer waits. A test says what goes wrong:

    cluster.fail_next(ApiKey.PRODUCE, Errors.NOT_ENOUGH_REPLICAS)     # the next answer is an error
    cluster.fates.append(Fate(lose_answer=True))                      # written, but the producer is never told
    cluster.move_leader("orders", 0, to=2)                            # somebody else leads it now
    cluster.stop(1)                                                   # a node is down, until start(1)
    cluster.crash(1)                                                  # restarted, with hardly a memory of producers

The brokers of this cluster check sequence numbers as real ones do: they recognise the last five batches of a producer,
and refuse a gap.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple

from barnabas.clients.producer.kafka_producer import KafkaProducer
from barnabas.common.clock import MockClock
from barnabas.common.errors import Errors
from barnabas.common.identifiers import Uuid
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.channel import ChannelState, KafkaChannel
from barnabas.network.host_resolver import ResolvedAddress
from barnabas.network.node import Node
from barnabas.network.reactor import SelectorStats
from barnabas.network.selector import CloseMode
from barnabas.network.send import NetworkSend
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import response_parts
from barnabas.protocol.headers import ParsedHeader, parse_request_header
from barnabas.protocol.message import Request, Response
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from barnabas.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from barnabas.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.records.batch import RecordBatch, increment_sequence
from barnabas.records.reader import read_records

MAX_BATCHES_REMEMBERED: Final = 5
_LIMIT: Final = 100 * 1024 * 1024
_TELEMETRY: Final = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})


@dataclass(frozen=True, slots=True)
class Fate:
    """What happens to a request, besides being answered."""

    delay_ms: int = 0
    """The answer takes so long."""
    lose_request: bool = False
    """The connection breaks before the broker has seen it."""
    lose_answer: bool = False
    """The connection breaks after the broker has done it."""


class Handled(NamedTuple):
    """A request that has arrived."""

    node_id: int
    header: ParsedHeader
    body: Request


class StoredRecord(NamedTuple):
    """A record in the log of a partition."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    producer_id: int
    producer_epoch: int
    sequence: int
    transactional: bool


class _ProducerEntry(NamedTuple):
    base_sequence: int
    last_sequence: int
    base_offset: int


@dataclass(slots=True)
class _ProducerState:
    epoch: int
    batches: deque[_ProducerEntry] = field(default_factory=lambda: deque(maxlen=MAX_BATCHES_REMEMBERED))


@dataclass(slots=True)
class _Partition:
    leader: int
    epoch: int = 0
    records: list[StoredRecord] = field(default_factory=list)
    producers: dict[int, _ProducerState] = field(default_factory=dict)


@dataclass(slots=True)
class _Topic:
    topic_id: Uuid
    partitions: list[_Partition]


@dataclass(slots=True)
class _Transaction:
    producer_id: int
    epoch: int
    partitions: set[TopicPartition] = field(default_factory=set)
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    offsets: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)


class DrivingClock(MockClock):
    """A mock clock on which waiting can be made to get something done."""

    _turn: Callable[[float | None], None] | None = None

    @contextmanager
    def driving(self, turn: Callable[[float | None], None]) -> Iterator[None]:
        """Within this, a wait is one turn. It is given the time that the wait may take."""
        self._turn = turn
        try:
            yield
        finally:
            self._turn = None

    def wait(self, condition: threading.Condition, timeout_ms: float | None) -> bool:
        if self._turn is None:
            return super().wait(condition, timeout_ms)
        before = self.hi_res_milliseconds()
        condition.release()
        try:
            self._turn(timeout_ms)
        finally:
            condition.acquire()
        return timeout_ms is None or self.hi_res_milliseconds() - before < timeout_ms


class ScriptedCluster:
    """The brokers, what they have stored, and the network between them and a client."""

    def __init__(
        self,
        topics: Mapping[str, int] | None = None,
        *,
        nodes: int = 1,
        clock: DrivingClock | None = None,
        transaction_version: int = 2,
        auto_create_topics: bool = False,
        max_message_bytes: int = 1_048_588,
        versions: Mapping[ApiKey, tuple[int, int]] | None = None,
    ) -> None:
        """``versions`` narrows down what the brokers speak; those of telemetry they speak only if they are in it."""
        self.clock = DrivingClock() if clock is None else clock
        self.nodes = {index: Node(index, f"node-{index}.test", 9092) for index in range(1, nodes + 1)}
        self.down: set[int] = set()
        self.topics: dict[str, _Topic] = {}
        self.max_message_bytes = max_message_bytes
        self.max_message_bytes_by_topic: dict[str, int] = {}
        self.transaction_version = transaction_version
        self.auto_create_topics = auto_create_topics
        self.versions = dict(versions or {})
        self.handled: list[Handled] = []
        """Every request that has arrived, in order."""
        self.fates: deque[Fate] = deque()
        """What happens to the next Produce requests; none: nothing special."""
        self.fate_of: Callable[[Handled], Fate] | None = None
        """What happens to any request; asked when ``fates`` is empty."""
        self.throttle_time_ms = 0
        """What answers to Produce tell."""
        self._errors: dict[ApiKey, deque[Errors]] = {}
        self._overrides: dict[ApiKey, deque[Callable[[Handled], Response | None]]] = {}
        self._next_producer_id = 1000
        self.transactions: dict[str, _Transaction] = {}
        self.committed_offsets: dict[tuple[str, TopicPartition], int] = {}
        self.aborted: dict[TopicPartition, set[int]] = {}
        self.selectors: list[InMemorySelector] = []
        """The network of each producer, in the order in which they were made."""
        self.idle_limit_ms = 60_000
        """A poll that could wait for ever waits for this long."""
        for name, count in (topics or {}).items():
            self.create_topic(name, count)

    # -- what a test does with it

    def producer(self, *topics: str, **settings: Any) -> KafkaProducer:
        """A producer of this cluster that runs no thread; with the metadata of these topics, or of all."""
        self.selectors.append(InMemorySelector(self))
        producer = KafkaProducer(
            bootstrap_servers=[f"{node.host}:{node.port}" for node in self.nodes.values()],
            clock=self.clock,
            selector=self.selectors[-1],
            resolver=_resolve,
            random=settings.pop("random", None) or Random(0),  # noqa: S311 - a test wants the same each time
            start_thread=False,
            **settings,
        )
        for topic in topics or tuple(self.topics):
            producer.metadata.add(topic, self.clock.hi_res_milliseconds())
        wanted = topics or tuple(self.topics)
        if wanted:
            self.run_until(producer, lambda: all(producer.metadata.snapshot.partition_count(name) for name in wanted))
        return producer

    def run_until(self, producer: KafkaProducer, done: Callable[[], bool], max_turns: int = 10_000) -> None:
        """Turns of the producer's I/O thread, on this thread, until something is so."""
        for _ in range(max_turns):
            if done():
                return
            producer.sender.run_once()
        raise AssertionError(f"still not so after {max_turns} turns: {producer!r}")

    def run_while(self, producer: KafkaProducer, call: Callable[[], Any]) -> Any:
        """A call that blocks until the I/O thread has done something, such as ``commit_transaction``: whenever it
        waits, a turn is taken instead."""

        def turn(timeout_ms: float | None) -> None:
            limit_ms = self.idle_limit_ms
            self.idle_limit_ms = limit_ms if timeout_ms is None else min(int(timeout_ms), limit_ms)
            try:
                producer.sender.run_once()
            finally:
                self.idle_limit_ms = limit_ms

        with self.clock.driving(turn):
            return call()

    def create_topic(self, name: str, partitions: int) -> None:
        ids = sorted(self.nodes)
        number = len(self.topics) + 1
        self.topics[name] = _Topic(
            Uuid(number.to_bytes(16)), [_Partition(ids[index % len(ids)]) for index in range(partitions)]
        )

    def move_leader(self, topic: str, partition: int, *, to: int) -> None:
        """Another node leads a partition, in the next epoch."""
        state = self.topics[topic].partitions[partition]
        state.leader = to
        state.epoch += 1

    def stop(self, node_id: int) -> None:
        """A node is down: its connections break, and no new ones are made."""
        self.down.add(node_id)
        self.break_connections(node_id)

    def start(self, node_id: int) -> None:
        self.down.discard(node_id)

    def crash(self, node_id: int) -> None:
        """A node is killed and comes back at once, as Apache Kafka does: its connections break, and of each producer
        it remembers the last batch of a partition only."""
        self.break_connections(node_id)
        for topic in self.topics.values():
            for partition in topic.partitions:
                if partition.leader == node_id:
                    for producer in partition.producers.values():
                        last = list(producer.batches)[-1:]
                        producer.batches.clear()
                        producer.batches.extend(last)

    def break_connections(self, node_id: int) -> None:
        """Breaks connections, and whatever was on its way in either direction is lost."""
        for selector in self.selectors:
            selector.break_connections(node_id)

    @property
    def selector(self) -> InMemorySelector:
        """The network of the producer that was made last."""
        return self.selectors[-1]

    def fail_next(self, api_key: ApiKey, *errors: Errors) -> None:
        """The next requests of this kind are answered with errors, and not carried out."""
        self._errors.setdefault(api_key, deque()).extend(errors)

    def on_next(self, api_key: ApiKey, answer: Callable[[Handled], Response | None]) -> None:
        """The next request of this kind gets this answer; with None it is handled as usual."""
        self._overrides.setdefault(api_key, deque()).append(answer)

    def requests(self, api_key: ApiKey) -> list[Any]:
        """The bodies of all requests of a kind that have arrived."""
        return [handled.body for handled in self.handled if handled.header.api_key is api_key]

    def records(self, topic: str, partition: int = 0) -> list[StoredRecord]:
        """All that is in the log of a partition."""
        return self.topics[topic].partitions[partition].records

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        return [record.value for record in self.records(topic, partition)]

    def committed_values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """What a reader of committed data sees, once nothing is open any more."""
        key = TopicPartition(topic, partition)
        open_offsets = {
            offset
            for transaction in self.transactions.values()
            if key in transaction.starts
            for offset in range(transaction.starts[key], len(self.records(topic, partition)))
            if self.records(topic, partition)[offset].producer_id == transaction.producer_id
        }
        hidden = self.aborted.get(key, set()) | open_offsets
        return [record.value for record in self.records(topic, partition) if record.offset not in hidden]

    # -- what arrives

    def handle(self, node_id: int, payload: bytes) -> tuple[bytes | None, Fate]:
        """The answer to a request, as bytes; None if it gets none. And what else is to happen."""
        header = parse_request_header(payload)
        body, _ = header.api_key.request.decode_from(payload, header.api_version, header.body_start)
        handled = Handled(node_id, header, body)
        fate = Fate()
        if header.api_key is ApiKey.PRODUCE and self.fates:
            fate = self.fates.popleft()
        elif self.fate_of is not None:
            fate = self.fate_of(handled)
        if fate.lose_request:
            return None, fate
        self.handled.append(handled)
        response = self._answer(handled)
        if response is None or (isinstance(body, ProduceRequest) and body.acks == 0):
            return None, fate
        version = header.api_version if header.api_version <= header.api_key.stable_versions.highest else 0
        return b"".join(response_parts(response, version, header.correlation_id))[4:], fate

    def _answer(self, handled: Handled) -> Response | None:
        overrides = self._overrides.get(handled.header.api_key)
        if overrides:
            response = overrides.popleft()(handled)
            if response is not None:
                return response
        errors = self._errors.get(handled.header.api_key)
        error = errors.popleft() if errors else Errors.NONE
        body = handled.body
        if isinstance(body, ApiVersionsRequest):
            return self._api_versions()
        if isinstance(body, MetadataRequest):
            return self._metadata(body, error)
        if isinstance(body, ProduceRequest):
            return self._produce(handled, body, error)
        if isinstance(body, InitProducerIdRequest):
            return self._init_producer_id(body, error)
        if isinstance(body, DescribeProducersRequest):
            return self._describe_producers(handled.node_id, body, error)
        if isinstance(body, FindCoordinatorRequest):
            return self._find_coordinator(handled, body, error)
        if isinstance(body, AddPartitionsToTxnRequest):
            return self._add_partitions(body, error)
        if isinstance(body, AddOffsetsToTxnRequest):
            return AddOffsetsToTxnResponse(error_code=error)
        if isinstance(body, TxnOffsetCommitRequest):
            return self._txn_offset_commit(body, error)
        if isinstance(body, EndTxnRequest):
            return self._end_txn(handled, body, error)
        raise AssertionError(f"this cluster does not answer {body!r}")

    def _api_versions(self) -> ApiVersionsResponse:
        rows = []
        for key in ApiKey:
            if key in _TELEMETRY and key not in self.versions:
                continue  # as brokers without a receiver of clients' metrics do
            lowest, highest = self.versions.get(key, key.stable_versions)
            rows.append(ApiVersion(api_key=key, min_version=lowest, max_version=highest))
        return ApiVersionsResponse(
            api_keys=rows,
            finalized_features_epoch=self.transaction_version,
            finalized_features=[
                FinalizedFeatureKey(
                    name="transaction.version",
                    max_version_level=self.transaction_version,
                    min_version_level=self.transaction_version,
                )
            ],
        )

    def _metadata(self, request: MetadataRequest, error: Errors) -> MetadataResponse:
        response = MetadataResponse(
            cluster_id="scripted",
            controller_id=min(self.nodes),
            brokers=[
                MetadataResponseBroker(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
                for node in self.nodes.values()
                if node.id not in self.down
            ],
        )
        names = list(self.topics) if request.topics is None else [topic.name or "" for topic in request.topics]
        for name in names:
            if name not in self.topics and self.auto_create_topics and request.allow_auto_topic_creation:
                self.create_topic(name, 1)
                response.topics.append(MetadataResponseTopic(name=name, error_code=Errors.LEADER_NOT_AVAILABLE))
                continue
            topic = self.topics.get(name)
            if topic is None or error is not Errors.NONE:
                code = error if error is not Errors.NONE else Errors.UNKNOWN_TOPIC_OR_PARTITION
                response.topics.append(MetadataResponseTopic(name=name, error_code=code))
                continue
            response.topics.append(
                MetadataResponseTopic(
                    name=name,
                    topic_id=topic.topic_id,
                    partitions=[
                        MetadataResponsePartition(
                            error_code=Errors.LEADER_NOT_AVAILABLE if state.leader in self.down else 0,
                            partition_index=index,
                            leader_id=-1 if state.leader in self.down else state.leader,
                            leader_epoch=state.epoch,
                            replica_nodes=[state.leader],
                            isr_nodes=[state.leader],
                        )
                        for index, state in enumerate(topic.partitions)
                    ],
                )
            )
        return response

    def _produce(self, handled: Handled, request: ProduceRequest, error: Errors) -> ProduceResponse:
        response = ProduceResponse(throttle_time_ms=self.throttle_time_ms)
        endpoints: dict[int, Node] = {}
        for data in request.topic_data:
            name = data.name or next(
                (name for name, topic in self.topics.items() if topic.topic_id == data.topic_id), ""
            )
            rows = []
            for partition in data.partition_data:
                row = PartitionProduceResponse(index=partition.index, error_code=error, base_offset=-1)
                if error is Errors.NONE:
                    row = self._append(handled.node_id, name, partition.index, bytes(partition.records or b""))
                    self._note_transactional(request.transactional_id, TopicPartition(name, partition.index))
                if row.current_leader is not None and row.current_leader.leader_id in self.nodes:
                    endpoints[row.current_leader.leader_id] = self.nodes[row.current_leader.leader_id]
                rows.append(row)
            response.responses.append(
                TopicProduceResponse(name=data.name, topic_id=data.topic_id, partition_responses=rows)
            )
        response.node_endpoints = [
            NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack) for node in endpoints.values()
        ]
        return response

    def _append(self, node_id: int, name: str, index: int, data: bytes) -> PartitionProduceResponse:
        def refused(error: Errors, leader: LeaderIdAndEpoch | None = None) -> PartitionProduceResponse:
            return PartitionProduceResponse(index=index, error_code=error, base_offset=-1, current_leader=leader)

        topic = self.topics.get(name)
        if topic is None or index >= len(topic.partitions):
            return refused(Errors.UNKNOWN_TOPIC_OR_PARTITION)
        state = topic.partitions[index]
        if state.leader != node_id:
            return refused(
                Errors.NOT_LEADER_OR_FOLLOWER, LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.epoch)
            )
        batch = RecordBatch(data)
        batch.ensure_valid()
        if len(data) > self.max_message_bytes_by_topic.get(name, self.max_message_bytes):
            return refused(Errors.MESSAGE_TOO_LARGE)
        base_offset = len(state.records)
        if batch.producer_id >= 0:
            producer = state.producers.get(batch.producer_id)
            known = self._duplicate_of(producer, batch)
            if known is not None:
                return PartitionProduceResponse(index=index, base_offset=known.base_offset)
            error = self._sequence_error(producer, batch)
            if error is not Errors.NONE:
                return refused(error)
            if producer is None or producer.epoch != batch.producer_epoch:
                producer = state.producers[batch.producer_id] = _ProducerState(batch.producer_epoch)
            last = increment_sequence(batch.base_sequence, batch.record_count - 1)
            producer.batches.append(_ProducerEntry(batch.base_sequence, last, base_offset))
        for number, record in enumerate(read_records(batch)):
            sequence = -1 if batch.base_sequence < 0 else increment_sequence(batch.base_sequence, number)
            state.records.append(
                StoredRecord(
                    base_offset + number,
                    record.timestamp,
                    None if record.key is None else bytes(record.key),
                    None if record.value is None else bytes(record.value),
                    tuple((key, None if value is None else bytes(value)) for key, value in record.headers),
                    batch.producer_id,
                    batch.producer_epoch,
                    sequence,
                    batch.is_transactional,
                )
            )
        return PartitionProduceResponse(index=index, base_offset=base_offset)

    @staticmethod
    def _duplicate_of(producer: _ProducerState | None, batch: RecordBatch) -> _ProducerEntry | None:
        if producer is None or producer.epoch != batch.producer_epoch:
            return None
        last = increment_sequence(batch.base_sequence, batch.record_count - 1)
        for entry in producer.batches:
            if (entry.base_sequence, entry.last_sequence) == (batch.base_sequence, last):
                return entry
        return None

    @staticmethod
    def _sequence_error(producer: _ProducerState | None, batch: RecordBatch) -> Errors:
        if producer is None:
            return Errors.NONE if batch.base_sequence == 0 else Errors.OUT_OF_ORDER_SEQUENCE_NUMBER
        if batch.producer_epoch < producer.epoch:
            return Errors.INVALID_PRODUCER_EPOCH
        if batch.producer_epoch > producer.epoch:
            return Errors.NONE if batch.base_sequence == 0 else Errors.OUT_OF_ORDER_SEQUENCE_NUMBER
        expected = increment_sequence(producer.batches[-1].last_sequence, 1) if producer.batches else 0
        return Errors.NONE if batch.base_sequence == expected else Errors.OUT_OF_ORDER_SEQUENCE_NUMBER

    def _describe_producers(
        self, node_id: int, request: DescribeProducersRequest, error: Errors
    ) -> DescribeProducersResponse:
        return DescribeProducersResponse(
            topics=[
                TopicResponse(
                    name=topic.name,
                    partitions=[
                        self._producers(node_id, topic.name, index, error) for index in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ]
        )

    def _producers(self, node_id: int, name: str, index: int, error: Errors) -> PartitionResponse:
        topic = self.topics.get(name)
        if error is Errors.NONE:
            if topic is None or index >= len(topic.partitions):
                error = Errors.UNKNOWN_TOPIC_OR_PARTITION
            elif topic.partitions[index].leader != node_id:
                error = Errors.NOT_LEADER_OR_FOLLOWER
        if topic is None or error is not Errors.NONE:
            return PartitionResponse(partition_index=index, error_code=error)
        return PartitionResponse(
            partition_index=index,
            active_producers=[
                ProducerState(
                    producer_id=producer_id,
                    producer_epoch=state.epoch,
                    last_sequence=state.batches[-1].last_sequence if state.batches else -1,
                )
                for producer_id, state in topic.partitions[index].producers.items()
            ],
        )

    # -- transactions

    def _note_transactional(self, transactional_id: str | None, partition: TopicPartition) -> None:
        transaction = None if transactional_id is None else self.transactions.get(transactional_id)
        if transaction is not None:
            transaction.partitions.add(partition)
            mine = [
                record.offset
                for record in self.records(*partition)
                if record.transactional
                and record.producer_id == transaction.producer_id
                and record.producer_epoch == transaction.epoch
            ]
            if mine:
                transaction.starts.setdefault(partition, mine[0])

    def _init_producer_id(self, request: InitProducerIdRequest, error: Errors) -> InitProducerIdResponse:
        if error is not Errors.NONE:
            return InitProducerIdResponse(error_code=error)
        if request.transactional_id is None:
            self._next_producer_id += 1
            return InitProducerIdResponse(producer_id=self._next_producer_id, producer_epoch=0)
        transaction = self.transactions.get(request.transactional_id)
        if transaction is None:
            self._next_producer_id += 1
            transaction = self.transactions[request.transactional_id] = _Transaction(self._next_producer_id, 0)
        else:
            if request.producer_id != -1 and (request.producer_id, request.producer_epoch) != (
                transaction.producer_id,
                transaction.epoch,
            ):
                return InitProducerIdResponse(error_code=Errors.PRODUCER_FENCED)
            self._finish(transaction, committed=False)
            transaction.epoch += 1
        return InitProducerIdResponse(producer_id=transaction.producer_id, producer_epoch=transaction.epoch)

    def _find_coordinator(
        self, handled: Handled, request: FindCoordinatorRequest, error: Errors
    ) -> FindCoordinatorResponse:
        node = next(node for node in self.nodes.values() if node.id not in self.down)
        if handled.header.api_version < 4:
            return FindCoordinatorResponse(error_code=error, node_id=node.id, host=node.host, port=node.port)
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=node.id, host=node.host, port=node.port, error_code=error)
                for key in request.coordinator_keys
            ]
        )

    def _add_partitions(self, request: AddPartitionsToTxnRequest, error: Errors) -> AddPartitionsToTxnResponse:
        transaction = self.transactions[request.v3_and_below_transactional_id]
        if error is Errors.NONE and request.v3_and_below_producer_epoch != transaction.epoch:
            error = Errors.PRODUCER_FENCED
        results = []
        for topic in request.v3_and_below_topics:
            results.append(
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
                        for index in topic.partitions
                    ],
                )
            )
            if error is Errors.NONE:
                transaction.partitions.update(TopicPartition(topic.name, index) for index in topic.partitions)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

    def _txn_offset_commit(self, request: TxnOffsetCommitRequest, error: Errors) -> TxnOffsetCommitResponse:
        transaction = self.transactions[request.transactional_id]
        topics = []
        for topic in request.topics:
            for row in topic.partitions:
                if error is Errors.NONE:
                    key = (request.group_id, TopicPartition(topic.name, row.partition_index))
                    transaction.offsets[key] = row.committed_offset
            topics.append(
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponsePartition(partition_index=row.partition_index, error_code=error)
                        for row in topic.partitions
                    ],
                )
            )
        return TxnOffsetCommitResponse(topics=topics)

    def _end_txn(self, handled: Handled, request: EndTxnRequest, error: Errors) -> EndTxnResponse:
        transaction = self.transactions[request.transactional_id]
        if error is Errors.NONE and (request.producer_id, request.producer_epoch) != (
            transaction.producer_id,
            transaction.epoch,
        ):
            error = Errors.PRODUCER_FENCED
        if error is not Errors.NONE:
            return EndTxnResponse(error_code=error)
        self._finish(transaction, committed=request.committed)
        if handled.header.api_version < 5:
            return EndTxnResponse()
        transaction.epoch += 1
        return EndTxnResponse(producer_id=transaction.producer_id, producer_epoch=transaction.epoch)

    def _finish(self, transaction: _Transaction, *, committed: bool) -> None:
        if committed:
            self.committed_offsets.update(transaction.offsets)
        else:
            for partition, start in transaction.starts.items():
                hidden = self.aborted.setdefault(partition, set())
                for record in self.records(*partition)[start:]:
                    if record.producer_id == transaction.producer_id and record.producer_epoch == transaction.epoch:
                        hidden.add(record.offset)
        transaction.partitions.clear()
        transaction.starts.clear()
        transaction.offsets.clear()

    def __repr__(self) -> str:
        return f"ScriptedCluster({len(self.nodes)} nodes, topics {sorted(self.topics)})"


def _resolve(host: str) -> Sequence[ResolvedAddress]:
    return [ResolvedAddress(socket.AF_INET, host)]


class _Transport:
    """Takes all that is written; answers come another way."""

    is_ready = True
    has_bytes_buffered = False

    def __init__(self) -> None:
        self.written = bytearray()

    def send(self, data: Any) -> int:
        self.written += data
        return len(data)

    def sendmsg(self, buffers: Any) -> int:
        return self.send(b"".join(buffers))

    def recv(self, size: int) -> bytes:  # noqa: ARG002 - never
        raise AssertionError("answers do not come by this way")

    def recv_into(self, buffer: Any) -> int:  # noqa: ARG002 - never
        raise AssertionError("answers do not come by this way")

    def handshake(self) -> None: ...

    def expect(self, count: int) -> None:  # noqa: ARG002 - never
        raise AssertionError("answers do not come by this way")

    def send_file(self, fd: int, position: int, count: int) -> int:  # noqa: ARG002 - never
        raise AssertionError("a client sends no files")

    def finish_connect(self) -> bool:
        return True

    def fileno(self) -> int:
        return -1

    @property
    def socket(self) -> socket.socket:
        raise AssertionError("there is no socket")

    def close(self) -> None: ...


class _Event(NamedTuple):
    due_ms: int
    channel: KafkaChannel
    payload: bytes | None
    """An answer; None: the end of the connection."""
    is_connect: bool = False


class InMemorySelector:
    """The network: takes requests to the cluster and brings answers back, in order for each connection.

    A poll with nothing to bring moves the clock on, to the next answer or to the end of the wait.
    """

    def __init__(self, cluster: ScriptedCluster) -> None:
        self._cluster = cluster
        self._clock = cluster.clock
        self.completed_receives: list[tuple[KafkaChannel, memoryview]] = []
        self.completed_sends: list[tuple[KafkaChannel, NetworkSend]] = []
        self.connected: list[KafkaChannel] = []
        self.disconnected: list[tuple[KafkaChannel, ChannelState]] = []
        self.stats = SelectorStats()
        self._channels: dict[str, KafkaChannel] = {}
        self._hosts: dict[str, int] = {}
        self._events: list[_Event] = []
        self._woken = False
        self.wakeups = 0
        self.polls = 0

    def connect(
        self,
        channel_id: str,
        address: tuple[str, int],
        *,
        family: int,  # noqa: ARG002 - there are no sockets
        send_buffer: int,  # noqa: ARG002
        receive_buffer: int,  # noqa: ARG002
    ) -> None:
        node_id = next((node.id for node in self._cluster.nodes.values() if node.host == address[0]), None)
        if node_id is None or node_id in self._cluster.down:
            raise ConnectionRefusedError(f"{address[0]} is not running")
        channel = KafkaChannel(channel_id, _Transport(), _LIMIT)  # type: ignore[arg-type]
        self._channels[channel_id] = channel
        self._hosts[channel_id] = node_id
        self._events.append(_Event(self._now(), channel, None, is_connect=True))

    def _now(self) -> int:
        return self._clock.hi_res_milliseconds()

    def channel(self, channel_id: str) -> KafkaChannel | None:
        return self._channels.get(channel_id)

    def open_or_closing(self, channel_id: str) -> KafkaChannel | None:
        return self._channels.get(channel_id)

    def is_channel_ready(self, channel_id: str) -> bool:
        channel = self._channels.get(channel_id)
        return channel is not None and channel.state is ChannelState.READY

    def send(self, channel: KafkaChannel, send: NetworkSend) -> bool:
        send.write_to(channel.transport)
        written: bytearray = channel.transport.written  # type: ignore[attr-defined]
        while len(written) >= 4 and len(written) >= (size := 4 + int.from_bytes(written[:4])):
            payload = bytes(written[4:size])
            del written[:size]
            self._deliver(channel, payload)
        return True

    def _deliver(self, channel: KafkaChannel, payload: bytes) -> None:
        if any(event.channel is channel and event.payload is None and not event.is_connect for event in self._events):
            return  # the connection is breaking: nothing gets through any more
        answer, fate = self._cluster.handle(self._hosts[channel.id], payload)
        # Answers of one connection do not overtake each other.
        due = max([self._now() + fate.delay_ms, *(event.due_ms for event in self._events if event.channel is channel)])
        if fate.lose_request or fate.lose_answer:
            self._events.append(_Event(due, channel, None))
        elif answer is not None:
            self._events.append(_Event(due, channel, answer))

    def poll(self, timeout_ms: float) -> None:
        self.polls += 1
        self.completed_receives.clear()
        self.completed_sends.clear()
        self.connected.clear()
        self.disconnected.clear()
        now = self._now()
        next_due = min((event.due_ms for event in self._events), default=None)
        if not self._woken and (next_due is None or next_due > now):
            wait_ms = min(timeout_ms, self._cluster.idle_limit_ms)
            if next_due is not None:
                wait_ms = min(wait_ms, next_due - now)
            if wait_ms > 0:
                self._clock.advance(wait_ms)
                self.stats.select_ns += round(wait_ms * 1_000_000)
        self._woken = False
        now = self._now()
        due = [event for event in self._events if event.due_ms <= now]
        self._events = [event for event in self._events if event.due_ms > now]
        for event in due:
            self._report(event)

    def _report(self, event: _Event) -> None:
        channel = event.channel
        if self._channels.get(channel.id) is not channel:
            return  # given up meanwhile
        if event.is_connect:
            channel.state = ChannelState.READY
            self.stats.connections_created += 1
            self.connected.append(channel)
        elif event.payload is None:
            del self._channels[channel.id]
            self.stats.connections_closed += 1
            self.disconnected.append((channel, channel.state))
        else:
            self.completed_receives.append((channel, memoryview(event.payload)))

    def break_connections(self, node_id: int) -> None:
        now = self._now()
        for channel in list(self._channels.values()):
            if self._hosts[channel.id] == node_id:
                self._events = [event for event in self._events if event.channel is not channel]
                self._events.append(_Event(now, channel, None))

    def close(self, channel: KafkaChannel, mode: CloseMode = CloseMode.DISCARD_NO_NOTIFY) -> None:  # noqa: ARG002
        if self._channels.pop(channel.id, None) is not None:
            self.stats.connections_closed += 1
        self._events = [event for event in self._events if event.channel is not channel]

    def wakeup(self) -> None:
        self._woken = True
        self.wakeups += 1

    def close_all(self) -> None:
        self.stats.connections_closed += len(self._channels)
        self._channels.clear()
        self._events.clear()
