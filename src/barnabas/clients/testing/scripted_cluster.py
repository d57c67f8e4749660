"""The brokers of a cluster in memory: their responses, and failures that a test injects."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, TypeVar

from barnabas.clients.producer.kafka_producer import KafkaProducer
from barnabas.clients.testing.driving_clock import DrivingClock
from barnabas.clients.testing.fate import Fate, Handled
from barnabas.clients.testing.in_memory_selector import InMemorySelector
from barnabas.clients.testing.partition_log import PartitionLog, StoredRecord
from barnabas.clients.testing.scripted_transactions import ScriptedTransactions
from barnabas.common.errors import Errors
from barnabas.common.identifiers import Uuid
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.client.host_resolver import ResolvedAddress
from barnabas.network.client.node import Node
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.headers import parse_request_header
from barnabas.protocol.message import Response
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
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
    TopicResponse,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
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
)
from barnabas.records.batch import RecordBatch

_TELEMETRY: Final = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})

T = TypeVar("T")


@dataclass(slots=True)
class ScriptedTopic:
    """A topic of the cluster."""

    topic_id: Uuid
    partitions: list[PartitionLog]


class ScriptedCluster:
    """The brokers, their data, and the network between them and a client."""

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
        """``versions`` restricts the versions that the brokers support; telemetry APIs only if it names them."""
        self.clock = DrivingClock() if clock is None else clock
        self.nodes = {index: Node(index, f"node-{index}.test", 9092) for index in range(1, nodes + 1)}
        self.down: set[int] = set()
        self.topics: dict[str, ScriptedTopic] = {}
        self.max_message_bytes = max_message_bytes
        self.max_message_bytes_by_topic: dict[str, int] = {}
        self.transaction_version = transaction_version
        self.auto_create_topics = auto_create_topics
        self.versions = dict(versions or {})
        self.handled: list[Handled] = []
        """Every request that has arrived, in order."""
        self.fates: deque[Fate] = deque()
        """The fates of the next Produce requests; empty: none fails."""
        self.fate_of: Callable[[Handled], Fate] | None = None
        """Returns the fate of any request; called when ``fates`` is empty."""
        self.throttle_time_ms = 0
        """The throttle time in Produce responses."""
        self._errors: dict[ApiKey, deque[Errors]] = {}
        self._overrides: dict[ApiKey, deque[Callable[[Handled], Response | None]]] = {}
        self._coordinator = ScriptedTransactions(lambda partition: self.records(*partition))
        self.selectors: list[InMemorySelector] = []
        """The network of each producer, in creation order."""
        self.idle_limit_ms = 60_000
        """The time that a poll without a limit waits."""
        for name, count in (topics or {}).items():
            self.create_topic(name, count)

    # -- test interface

    def producer(self, *topics: str, **settings: Any) -> KafkaProducer:
        """Returns a producer of this cluster that runs no thread; with the metadata of these topics, or of all."""
        producer = KafkaProducer(**self._client_settings(settings))
        for topic in topics or tuple(self.topics):
            producer.metadata.add(topic, self.clock.hi_res_milliseconds())
        wanted = topics or tuple(self.topics)
        if wanted:
            self.run_until(producer, lambda: all(producer.metadata.snapshot.partition_count(name) for name in wanted))
        return producer

    def _client_settings(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Returns the settings of a client with a network of its own in this cluster, and without a thread."""
        self.selectors.append(InMemorySelector(self))
        return {
            "bootstrap_servers": [f"{node.host}:{node.port}" for node in self.nodes.values()],
            "clock": self.clock,
            "selector": self.selectors[-1],
            "resolver": _resolve,
            "start_thread": False,
            **settings,
            "random": settings.get("random") or Random(0),  # noqa: S311 - a test wants the same each time
        }

    def run_until(self, producer: KafkaProducer, done: Callable[[], bool], max_turns: int = 10_000) -> None:
        """Runs iterations of the producer's I/O loop on this thread until a condition holds."""
        for _ in range(max_turns):
            if done():
                return
            producer.sender.run_once()
        raise AssertionError(f"the condition does not hold after {max_turns} turns: {producer!r}")

    def run_while(self, producer: KafkaProducer, call: Callable[[], Any]) -> Any:
        """Runs a call that blocks until the I/O thread has acted, such as ``commit_transaction``: each wait runs one
        iteration instead."""

        return self._driven(producer.sender.run_once, call)

    def _driven(self, run_once: Callable[[], object], call: Callable[[], T]) -> T:
        """Runs a call that waits for a thread: each wait runs one iteration of that thread instead."""

        def turn(timeout_ms: float | None) -> None:
            limit_ms = self.idle_limit_ms
            self.idle_limit_ms = limit_ms if timeout_ms is None else min(max(int(timeout_ms), 1), limit_ms)
            try:
                run_once()
            finally:
                self.idle_limit_ms = limit_ms

        with self.clock.driving(turn):
            return call()

    def create_topic(self, name: str, partitions: int) -> None:
        """Creates a topic, with its partitions spread over the nodes."""
        ids = sorted(self.nodes)
        number = len(self.topics) + 1
        self.topics[name] = ScriptedTopic(
            Uuid(number.to_bytes(16)), [PartitionLog(ids[index % len(ids)]) for index in range(partitions)]
        )

    def move_leader(self, topic: str, partition: int, *, to: int) -> None:
        """Moves the leadership of a partition to another node, in the next epoch."""
        state = self.topics[topic].partitions[partition]
        state.leader = to
        state.epoch += 1

    def stop(self, node_id: int) -> None:
        """Stops a node: its connections break, and new ones fail."""
        self.down.add(node_id)
        self.break_connections(node_id)

    def start(self, node_id: int) -> None:
        """Makes a stopped node reachable again."""
        self.down.discard(node_id)

    def crash(self, node_id: int) -> None:
        """Kills a node and restarts it at once, as Apache Kafka does: its connections break, and of each producer it
        remembers only the last batch of a partition."""
        self.break_connections(node_id)
        for topic in self.topics.values():
            for partition in topic.partitions:
                if partition.leader == node_id:
                    partition.forget()

    def break_connections(self, node_id: int) -> None:
        """Breaks connections; data in flight in either direction is lost."""
        for selector in self.selectors:
            selector.break_connections(node_id)

    @property
    def selector(self) -> InMemorySelector:
        """The network of the producer that was created last."""
        return self.selectors[-1]

    def fail_next(self, api_key: ApiKey, *errors: Errors) -> None:
        """Fails the next requests of this kind with errors, without executing them."""
        self._errors.setdefault(api_key, deque()).extend(errors)

    def on_next(self, api_key: ApiKey, respond: Callable[[Handled], Response | None]) -> None:
        """Sets the response to the next request of this kind; with None it is handled as usual."""
        self._overrides.setdefault(api_key, deque()).append(respond)

    def requests(self, api_key: ApiKey) -> list[Any]:
        """Returns the bodies of all received requests of a kind."""
        return [handled.body for handled in self.handled if handled.header.api_key is api_key]

    def records(self, topic: str, partition: int = 0) -> list[StoredRecord]:
        """Returns all records of a partition."""
        return self.topics[topic].partitions[partition].records

    @property
    def committed_offsets(self) -> dict[tuple[str, TopicPartition], int]:
        """Returns the offsets that committed transactions stored for consumer groups."""
        return self._coordinator.committed_offsets

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """Returns the values of all records of a partition."""
        return [record.value for record in self.records(topic, partition)]

    def committed_values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """Returns the values that a read_committed consumer reads once no transaction is open."""
        key = TopicPartition(topic, partition)
        hidden = self._coordinator.hidden(key)
        return [record.value for record in self.records(topic, partition) if record.offset not in hidden]

    # -- received requests

    def handle(self, node_id: int, payload: bytes) -> tuple[bytes | None, Fate]:
        """Returns the response to a request, as bytes, or None, and its fate."""
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
        response = self._respond(handled)
        if response is None or (isinstance(body, ProduceRequest) and body.acks == 0):
            return None, fate
        version = header.api_version if header.api_version <= header.api_key.stable_versions.highest else 0
        return b"".join(response.frame_parts(version, header.correlation_id))[4:], fate

    def _respond(self, handled: Handled) -> Response | None:
        response, error = self._scripted(handled)
        if response is not None:
            return response
        body = handled.body
        if isinstance(body, ApiVersionsRequest):
            return self._api_versions()
        if isinstance(body, MetadataRequest):
            return self._metadata(body, error)
        if isinstance(body, ProduceRequest):
            return self._produce(handled, body, error)
        if isinstance(body, InitProducerIdRequest):
            return self._coordinator.init_producer_id(body, error)
        if isinstance(body, DescribeProducersRequest):
            return self._describe_producers(handled.node_id, body, error)
        if isinstance(body, FindCoordinatorRequest):
            return self._find_coordinator(handled, body, error)
        if isinstance(body, AddPartitionsToTxnRequest):
            return self._coordinator.add_partitions(body, error)
        if isinstance(body, AddOffsetsToTxnRequest):
            return AddOffsetsToTxnResponse(error_code=error)
        if isinstance(body, TxnOffsetCommitRequest):
            return self._coordinator.txn_offset_commit(body, error)
        if isinstance(body, EndTxnRequest):
            return self._coordinator.end_txn(handled, body, error)
        raise AssertionError(f"this cluster does not respond to {body!r}")

    def _scripted(self, handled: Handled) -> tuple[Response | None, Errors]:
        """Returns the response that a test has set for this request, or the error that it has."""
        overrides = self._overrides.get(handled.header.api_key)
        response = overrides.popleft()(handled) if overrides else None
        if response is not None:
            return response, Errors.NONE
        errors = self._errors.get(handled.header.api_key)
        return None, errors.popleft() if errors else Errors.NONE

    def _api_versions(self) -> ApiVersionsResponse:
        rows = []
        for key in ApiKey:
            if key in _TELEMETRY and key not in self.versions:
                continue  # like brokers without a client metrics receiver
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
                    self._coordinator.note_append(request.transactional_id, TopicPartition(name, partition.index))
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
        error, base_offset = state.append(batch)
        if error is not Errors.NONE:
            return refused(error)
        return PartitionProduceResponse(index=index, base_offset=base_offset)

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
            active_producers=topic.partitions[index].describe_producers(),
        )

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

    def __repr__(self) -> str:
        return f"ScriptedCluster({len(self.nodes)} nodes, topics {sorted(self.topics)})"


def _resolve(host: str) -> Sequence[ResolvedAddress]:
    return [ResolvedAddress(socket.AF_INET, host)]
