"""Counts the Python frames of one request: the hops that a reader has to follow, and most of its cost.

A frame is one call of a Python function in the broker process, from the moment the network thread takes a received
frame until the response is in the processor's queue. Calls of compiled code are not counted. Each test prints its
figures (``pytest -s``) and asserts the limits that were reached, so that a hop added later is noticed.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import CO_GENERATOR
from types import CodeType, FrameType
from typing import Final, NamedTuple

import pytest

from barnabas import EmbeddedBroker
from barnabas.common.identifiers import Uuid
from barnabas.network.server.processor import Processor
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import encode_request
from barnabas.protocol.message import Request
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas.records.builder import RecordBatchBuilder

PURE: Final = os.environ.get("BARNABAS_PURE") == "1"
FIRST: Final = Processor._process_completed_receives.__code__
LAST: Final = Processor.enqueue_response.__code__
NOW_MS: Final = time.time_ns() // 1_000_000
TOPIC: Final = "frames"
ROUNDS: Final = 30
"""The first requests compile their codecs, load modules and fill caches."""


class Limit(NamedTuple):
    """How many frames a request may take, and in how many modules."""

    frames: int
    modules: int


class FrameCounter:
    """Collects the code objects that one thread calls between `FIRST` and `LAST`."""

    def __init__(self) -> None:
        self.requests: list[list[CodeType]] = []
        self._current: dict[int, list[CodeType]] = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        thread = threading.get_ident()
        if code is FIRST:
            self._current[thread] = []
        called = self._current.get(thread)
        if called is not None:
            if code.co_flags & CO_GENERATOR and called[-1] is code:
                return  # the same generator goes on
            called.append(code)
            if code is LAST:
                self.requests.append(self._current.pop(thread))

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Profiles all threads that start meanwhile."""
        threading.setprofile(self)
        try:
            yield
        finally:
            threading.setprofile(None)


class Connection:
    """A plain socket: a client library would be in the way."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=60)

    def ask(self, request: Request, version: int) -> bytes:
        """The response to a request, without its length."""
        self._socket.sendall(encode_request(request, version, 1, "frames"))
        size = int.from_bytes(self._read(4))
        return self._read(size)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            received = self._socket.recv(size - len(data))
            assert received
            data += received
        return data

    def close(self) -> None:
        self._socket.close()


class Broker(NamedTuple):
    """A broker of this process with one topic, and what its threads call."""

    connection: Connection
    counter: FrameCounter
    topic_id: Uuid

    def frames_of(self, requests: list[tuple[Request, int]]) -> list[CodeType]:
        """Sends the requests one after the other; the frames of the one that took the fewest."""
        self.counter.requests.clear()
        for request, version in requests:
            self.connection.ask(request, version)
        return min(self.counter.requests[len(requests) // 2 :], key=len)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    counter = FrameCounter()
    with counter.installed(), EmbeddedBroker() as running:
        connection = Connection(running.bootstrap_servers)
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        connection.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), ApiKey.CREATE_TOPICS.versions.highest)
        version = ApiKey.METADATA.versions.highest
        answer = connection.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), version)
        metadata, _ = MetadataResponse.decode_from(answer, version, 5)
        yield Broker(connection, counter, metadata.topics[0].topic_id)
        connection.close()


def check(what: str, called: list[CodeType], limit: Limit) -> None:
    """Prints the frames of a request, and asserts that they are no more than the limit.

    Generated code, such as a codec, counts as a frame, but is in no module.
    """
    modules = {code.co_filename for code in called if not code.co_filename.startswith("<")}
    print(f"\n{what}: {len(called)} frames in {len(modules)} modules ({'pure' if PURE else 'with kernels'})")
    for code in called:
        print(f"  {code.co_filename.rsplit('barnabas/', 1)[-1]}:{code.co_firstlineno} {code.co_qualname}")
    assert len(called) <= limit.frames, f"{what} takes {len(called)} frames"
    assert len(modules) <= limit.modules, f"{what} takes {len(modules)} modules"


def produce(broker: Broker, records: int) -> tuple[Request, int]:
    builder = RecordBatchBuilder()
    for _ in range(records):
        builder.append(NOW_MS, None, b"v" * 100)
    partition = PartitionProduceData(index=0, records=builder.close())
    topic = TopicProduceData(topic_id=broker.topic_id, partition_data=[partition])
    return ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[topic]), ApiKey.PRODUCE.versions.highest


def test_produce_of_one_record(broker: Broker) -> None:
    called = broker.frames_of([produce(broker, 1) for _ in range(ROUNDS)])
    check("produce, 1 record", called, Limit(68, 28) if PURE else Limit(40, 22))


@pytest.mark.skipif(PURE, reason="the Python twin of the record walk takes some frames for each record")
def test_produce_of_fifty_records(broker: Broker) -> None:
    """The batch is larger than the interval of the offset index, and gets an entry there."""
    called = broker.frames_of([produce(broker, 50) for _ in range(ROUNDS)])
    check("produce, 50 records", called, Limit(45, 25))


def test_a_produce_request_is_answered_without_an_error(broker: Broker) -> None:
    """The figures above are those of appends, and not of refusals."""
    request, version = produce(broker, 1)
    answer, _ = ProduceResponse.decode_from(broker.connection.ask(request, version), version, 5)
    (topic,) = answer.responses
    assert [(found.index, found.error_code) for found in topic.partition_responses] == [(0, 0)]
