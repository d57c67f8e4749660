"""Reads a topic as it grows, for commands and small tools: all partitions, in no group, committing nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from barnabas.clients.common.blocking_client import BlockingClient, ClientError
from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import Errors
from barnabas.common.identifiers import Uuid
from barnabas.network.node import Node
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.records.batch import iter_batches
from barnabas.records.reader import Record, read_records

EARLIEST: Final = -2
LATEST: Final = -1
_CONSUMER: Final = -1
_MAX_BYTES: Final = 4 * 1024 * 1024
_MISSING: Final = frozenset({Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.LEADER_NOT_AVAILABLE})
_MOVED: Final = frozenset(
    {
        Errors.NOT_LEADER_OR_FOLLOWER,
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.UNKNOWN_TOPIC_ID,
        Errors.FENCED_LEADER_EPOCH,
        Errors.UNKNOWN_LEADER_EPOCH,
        Errors.OFFSET_NOT_AVAILABLE,
        Errors.LEADER_NOT_AVAILABLE,
    }
)
"""What passes, once one has looked again who leads the partition."""


class TailedRecord(NamedTuple):
    """A record, and where it is from."""

    partition: int
    record: Record


class TopicTail:
    """Where a reader is in each partition of a topic.

    A topic that is not there yet is waited for: whatever is written to it is new then, and read from its beginning.
    """

    def __init__(
        self, client: BlockingClient, topic: str, *, from_beginning: bool = False, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._client = client
        self._topic = topic
        self._clock = clock
        self._start = EARLIEST if from_beginning else LATEST
        self._topic_id: Uuid | None = None
        self._leaders: dict[int, Node] = {}
        self._positions: dict[int, int] = {}

    def poll(self, max_wait_ms: int) -> list[TailedRecord]:
        """What is new, or nothing after that time. The first call only finds out where the end is."""
        if not self._leaders and not self._find_leaders():
            self._start = EARLIEST
            self._clock.sleep(max_wait_ms)
            return []
        if not self._find_positions():
            self._leaders = {}
            return []
        found: list[TailedRecord] = []
        by_node: dict[Node, list[int]] = {}
        for partition, node in self._leaders.items():
            by_node.setdefault(node, []).append(partition)
        for node, partitions in by_node.items():
            found += self._fetch(node, partitions, max_wait_ms // len(by_node))
        return found

    def _find_leaders(self) -> bool:
        """Whether there is such a topic."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self._topic)], allow_auto_topic_creation=False)
        response: MetadataResponse = self._client.send(request)
        nodes = {broker.node_id: Node(broker.node_id, broker.host, broker.port) for broker in response.brokers}
        for topic in response.topics:
            if topic.error_code in _MISSING:
                return False
            _raise_for(topic.error_code, f"{self._topic} cannot be read")
            self._topic_id = topic.topic_id
            self._leaders = {
                one.partition_index: nodes[one.leader_id] for one in topic.partitions if one.leader_id in nodes
            }
        return bool(self._leaders)

    def _find_positions(self) -> bool:
        """Whether all leaders are still who they were."""
        for partition, node in self._leaders.items():
            if partition not in self._positions:
                asked = ListOffsetsPartition(partition_index=partition, timestamp=self._start)
                request = ListOffsetsRequest(
                    replica_id=_CONSUMER, topics=[ListOffsetsTopic(name=self._topic, partitions=[asked])]
                )
                response: ListOffsetsResponse = self._client.send(request, node)
                answer = response.topics[0].partitions[0]
                if answer.error_code in _MOVED:
                    return False
                _raise_for(answer.error_code, f"the end of {self._topic} is not known")
                self._positions[partition] = answer.offset
        return True

    def _fetch(self, node: Node, partitions: list[int], max_wait_ms: int) -> list[TailedRecord]:
        assert self._topic_id is not None
        topic = FetchTopic(
            topic=self._topic,
            topic_id=self._topic_id,
            partitions=[
                FetchPartition(partition=one, fetch_offset=self._positions[one], partition_max_bytes=_MAX_BYTES)
                for one in partitions
            ],
        )
        request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=_MAX_BYTES, topics=[topic])
        response: FetchResponse = self._client.send(request, node)
        _raise_for(response.error_code, f"{self._topic} cannot be read")
        found: list[TailedRecord] = []
        for answer in (one for topics in response.responses for one in topics.partitions):
            if answer.error_code in _MOVED:
                self._leaders = {}
            elif answer.error_code == Errors.OFFSET_OUT_OF_RANGE:  # deleted meanwhile
                self._positions[answer.partition_index] = max(answer.log_start_offset, 0)
            else:
                _raise_for(answer.error_code, f"{self._topic} cannot be read")
                assert answer.records is None or isinstance(answer.records, bytes | bytearray | memoryview)
                found += self._read(answer.partition_index, answer.records or b"")
        return found

    def _read(self, partition: int, records: bytes | bytearray | memoryview) -> Iterator[TailedRecord]:
        """What is new in some batches. The first may begin before what was asked for."""
        for batch in iter_batches(records, allow_partial=True):
            position = self._positions[partition]
            if not batch.is_control_batch:
                yield from (TailedRecord(partition, one) for one in read_records(batch) if one.offset >= position)
            self._positions[partition] = batch.last_offset + 1


def _raise_for(code: int, what: str) -> None:
    if code:
        error = Errors.for_code(code)
        raise ClientError(f"{what}: {error.message} ({error.name})")
