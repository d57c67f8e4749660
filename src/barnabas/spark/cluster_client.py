"""What a reader asks a cluster: who leads what, where partitions begin and end, and their records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from barnabas.clients.common.blocking_client import BlockingClient, ClientError
from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import Errors
from barnabas.common.identifiers import Uuid
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.client_request import ClientRequest, ClientResponse, RequestBuilder
from barnabas.network.node import Node
from barnabas.protocol.message import Request
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.spark.client_settings import ClientSettings

_CONSUMER: Final = -1
_POLL_MS: Final = 100

MISSING: Final = frozenset({Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.UNKNOWN_TOPIC_ID})
MOVED: Final = frozenset(
    {
        *MISSING,
        Errors.NOT_LEADER_OR_FOLLOWER,
        Errors.LEADER_NOT_AVAILABLE,
        Errors.FENCED_LEADER_EPOCH,
        Errors.UNKNOWN_LEADER_EPOCH,
        Errors.OFFSET_NOT_AVAILABLE,
        Errors.REPLICA_NOT_AVAILABLE,
        Errors.KAFKA_STORAGE_ERROR,
        Errors.INCONSISTENT_TOPIC_ID,
    }
)
"""What passes, mostly, once one has looked again who leads the partition."""


class UnknownPartitionsError(ClientError):
    """Some of the topics or partitions are not there, or have no leader."""

    def __init__(self, message: str, partitions: frozenset[TopicPartition] = frozenset()) -> None:
        super().__init__(message)
        self.partitions = partitions


class Leader(NamedTuple):
    """Where a partition is read."""

    node: Node | None
    """None while there is none."""
    topic_id: Uuid
    epoch: int


class ClusterState(NamedTuple):
    """Topics as a broker knows them."""

    nodes: Mapping[int, Node]
    leaders: Mapping[TopicPartition, Leader]
    internal: frozenset[str]


class ClusterClient(BlockingClient):
    """A `BlockingClient` that knows a few questions, and can have answers under way while it does something else.

    It belongs to one thread.
    """

    def __init__(self, settings: ClientSettings, *, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(",".join(settings.bootstrap_servers), config=settings.network_config(), clock=clock)
        self.settings = settings
        self._ended: dict[ClientRequest, ClientResponse] = {}
        """Answers to posted requests that nobody has waited for yet."""

    # -- requests

    def post(self, body: Request | RequestBuilder, node: Node) -> ClientRequest:
        """Sends a request, and does not wait for the answer."""
        self._connect_to([node])
        now = self._clock.hi_res_milliseconds()
        request = self._client.new_client_request(node.id_string, body, now, callback=self._note)
        self._client.send(request, now)
        self._client.poll(0, now)
        return request

    def _note(self, response: ClientResponse) -> None:
        self._ended[response.request] = response

    def wait(self, request: ClientRequest, node: Node) -> Any:
        """The answer to a posted request."""
        while request not in self._ended:
            self._client.poll(_POLL_MS, self._clock.hi_res_milliseconds())
        return self._answer(node, self._ended.pop(request))

    def ask_all(self, questions: Iterable[tuple[Node, Request]]) -> list[Any]:
        """The answers of several nodes, which are all asked before the first is waited for."""
        posted = [(node, self.post(body, node)) for node, body in questions]
        return [self.wait(request, node) for node, request in posted]

    @property
    def is_idle(self) -> bool:
        """Whether there is no answer under way."""
        return not self._client.has_in_flight_requests() and not self._ended

    # -- questions

    def describe(self, topics: Collection[str] | None) -> ClusterState:
        """These topics, or all; those that do not exist are left out."""
        asked = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
        response: MetadataResponse = self.send(MetadataRequest(topics=asked, allow_auto_topic_creation=False))
        nodes = {one.node_id: Node(one.node_id, one.host, one.port, one.rack) for one in response.brokers}
        leaders: dict[TopicPartition, Leader] = {}
        internal = set()
        for topic in response.topics:
            if topic.name is None or topic.error_code in MISSING:
                continue
            if topic.error_code != Errors.LEADER_NOT_AVAILABLE:
                raise_for(topic.error_code, f"topic {topic.name} cannot be read")
            if topic.is_internal:
                internal.add(topic.name)
            for one in topic.partitions:
                leaders[TopicPartition(topic.name, one.partition_index)] = Leader(
                    nodes.get(one.leader_id), topic.topic_id, one.leader_epoch
                )
        return ClusterState(nodes, leaders, frozenset(internal))

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], state: ClusterState
    ) -> dict[TopicPartition, int | None]:
        """For each partition the offset of a time in milliseconds, or of -2 (the first) or -1 (the last).

        None where all records are older. `UnknownPartitionsError` if some leaders are not who they were.
        """
        by_node: dict[Node, dict[str, list[ListOffsetsPartition]]] = {}
        leaderless = frozenset(one for one in wanted if one not in state.leaders or state.leaders[one].node is None)
        if leaderless:
            raise UnknownPartitionsError(
                f"{', '.join(map(str, sorted(leaderless)))}: there is no such partition, or it has no leader",
                leaderless,
            )
        for partition, timestamp in wanted.items():
            leader = state.leaders[partition]
            assert leader.node is not None
            by_node.setdefault(leader.node, {}).setdefault(partition.topic, []).append(
                ListOffsetsPartition(
                    partition_index=partition.partition, current_leader_epoch=leader.epoch, timestamp=timestamp
                )
            )
        isolation = int(self.settings.read_committed)
        questions = [
            (
                node,
                ListOffsetsRequest(
                    replica_id=_CONSUMER,
                    isolation_level=isolation,
                    topics=[ListOffsetsTopic(name=name, partitions=asked) for name, asked in topics.items()],
                    timeout_ms=self.settings.request_timeout_ms,
                ),
            )
            for node, topics in by_node.items()
        ]
        found: dict[TopicPartition, int | None] = {}
        moved: dict[TopicPartition, Errors] = {}
        response: ListOffsetsResponse
        for response in self.ask_all(questions):
            for topic in response.topics:
                for answer in topic.partitions:
                    partition = TopicPartition(topic.name, answer.partition_index)
                    if answer.error_code in MOVED:
                        moved[partition] = Errors.for_code(answer.error_code)
                    else:
                        raise_for(answer.error_code, f"the offsets of {partition} are not known")
                        found[partition] = answer.offset if answer.offset >= 0 else None
        if moved:
            reasons = ", ".join(f"{partition}: {error.name}" for partition, error in moved.items())
            raise UnknownPartitionsError(f"the offsets of some partitions are not known: {reasons}", frozenset(moved))
        return found

    def fetch_request(self, partition: TopicPartition, leader: Leader, offset: int, max_bytes: int) -> FetchRequest:
        """For the records of one partition from an offset on."""
        settings = self.settings
        asked = FetchPartition(
            partition=partition.partition,
            current_leader_epoch=leader.epoch,
            fetch_offset=offset,
            partition_max_bytes=max_bytes,
        )
        return FetchRequest(
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=max(settings.fetch_max_bytes, max_bytes),
            isolation_level=int(settings.read_committed),
            topics=[FetchTopic(topic=partition.topic, topic_id=leader.topic_id, partitions=[asked])],
            rack_id=settings.client_rack,
        )

    @staticmethod
    def fetched(response: Any, partition: TopicPartition) -> PartitionData:
        """The one partition of an answer."""
        raise_for(response.error_code, f"{partition} cannot be read")
        data: PartitionData
        for topic in response.responses:
            for data in topic.partitions:
                if data.partition_index == partition.partition:
                    return data
        raise ClientError(f"{partition} is missing in the answer to a fetch request for it")


def raise_for(code: int, what: str) -> None:
    if code:
        error = Errors.for_code(code)
        raise ClientError(f"{what}: {error.message} ({error.name})")
