"""One connection to a broker and nothing in between: no retries, no metadata, every error code as it came.

What a real client would hide is what tests of damaged brokers look at, and what a benchmark must not measure.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from barnabas.common.errors import Errors
from barnabas.protocol.framing import encode_request
from barnabas.protocol.message import Request, Response
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.records.batch import iter_batches
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.reader import read_records
from benchmarks.waiting import until

TIMEOUT_S = 30.0
PRODUCE_VERSION = 12
FETCH_VERSION = 12
"""The last ones with names of topics."""
NOT_YET = (Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.NOT_LEADER_OR_FOLLOWER)
RETRY_S = 0.002
_HEAD = struct.Struct(">ii")
_NOW_MS = 1_700_000_000_000


class WireClient:
    """Asks and waits for the answer."""

    def __init__(self, bootstrap_servers: str, connection: socket.socket | None = None) -> None:
        """``connection``: an open one to use, such as one with TLS whose user is authenticated."""
        host, _, port = bootstrap_servers.rpartition(":")
        self.socket = connection or socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def ask(self, request: Request, version: int, response: type[Any]) -> Any:
        self._correlation_id += 1
        self.socket.sendall(encode_request(request, version, self._correlation_id, "wire"))
        return self._read(response, version)

    def _read(self, response: type[Response], version: int) -> Response:
        length, correlation_id = _HEAD.unpack(self._receive(_HEAD.size))
        assert correlation_id == self._correlation_id
        body = self._receive(length - 4)
        start = 1 if response.api_key.response_header_version(version) else 0
        return response.decode_from(body, version, start)[0]

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the broker has closed the connection")
            data += part
        return bytes(data)

    # -- topics

    def create_topics(
        self, topics: Iterable[tuple[str, int]], configs: Mapping[str, object] | None = None
    ) -> list[Errors]:
        """Names and numbers of partitions."""
        return self._create(
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=_configs(configs))
            for name, partitions in topics
        )

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None) -> None:
        """Returns when its partitions are led: the broker hears of it only after the controller has answered."""
        assert self.create_topics([(name, partitions)], configs) == [Errors.NONE]
        for partition in range(partitions):
            until(partial(self._is_led, name, partition), f"{name}-{partition} is led", TIMEOUT_S, pause_s=RETRY_S)

    def _is_led(self, topic: str, partition: int) -> bool:
        return self.fetch(topic, partition)[0] not in NOT_YET

    def create_assigned(self, name: str, brokers: Sequence[Sequence[int]]) -> list[Errors]:
        """With the brokers of each partition given."""
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(ids)) for index, ids in enumerate(brokers)
        ]
        return self._create(
            [CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)]
        )

    def _create(self, topics: Iterable[CreatableTopic]) -> list[Errors]:
        response = self.ask(CreateTopicsRequest(topics=list(topics), timeout_ms=30_000), 7, CreateTopicsResponse)
        return [Errors.for_code(topic.error_code) for topic in response.topics]

    def metadata(self, names: Iterable[str] | None = None) -> MetadataResponse:
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        response = self.ask(request, 12, MetadataResponse)
        assert isinstance(response, MetadataResponse)
        return response

    # -- records

    def produce(self, topic: str, partition: int, *values: bytes, acks: int = -1) -> tuple[Errors, int]:
        """One batch; the error and the offset of its first record."""
        return self.produce_batch(topic, partition, batch_of(*values), acks=acks)

    def produce_batch(self, topic: str, partition: int, batch: bytes, *, acks: int = -1) -> tuple[Errors, int]:
        request = ProduceRequest(
            acks=acks,
            timeout_ms=10_000,
            topic_data=[
                TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
            ],
        )
        response = self.ask(request, PRODUCE_VERSION, ProduceResponse)
        answer = response.responses[0].partition_responses[0]
        return Errors.for_code(answer.error_code), answer.base_offset

    def fetch(
        self, topic: str, partition: int, offset: int = 0, max_bytes: int = 1 << 24
    ) -> tuple[Errors, list[bytes]]:
        """The error and the values of what is there from an offset on; waits for nothing."""
        asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=[asked])])
        response = self.ask(request, FETCH_VERSION, FetchResponse)
        answer = response.responses[0].partitions[0]
        values = [
            bytes(record.value)
            for batch in iter_batches(answer.records or b"")
            for record in read_records(batch)
            if record.offset >= offset and record.value is not None
        ]
        return Errors.for_code(answer.error_code), values

    def fetch_all(self, topic: str, partition: int) -> list[bytes]:
        """Everything from the beginning."""
        values: list[bytes] = []
        while True:
            error, more = self.fetch(topic, partition, len(values))
            assert error is Errors.NONE, error
            if not more:
                return values
            values += more

    def log_dirs(self) -> dict[str, Errors]:
        response = self.ask(DescribeLogDirsRequest(topics=None), 4, DescribeLogDirsResponse)
        return {result.log_dir: Errors.for_code(result.error_code) for result in response.results}

    # -- life

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def batch_of(*values: bytes) -> bytes:
    """An uncompressed batch."""
    builder = RecordBatchBuilder()
    for value in values:
        builder.append(_NOW_MS, None, value)
    return bytes(builder.close())


def _configs(configs: Mapping[str, object] | None) -> list[CreatableTopicConfig]:
    return [CreatableTopicConfig(name=name, value=str(value)) for name, value in (configs or {}).items()]
