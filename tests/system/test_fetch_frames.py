"""Counts the Python frames of one fetch request: the hops that a reader has to follow, and most of its cost.

A frame is one call of a Python function in the broker process, from the moment the network thread takes a received
frame until the response is in the processor's queue. Calls of compiled code are not counted, and generated code, such
as a codec, is in no module. Each test prints its figures (``pytest -s``) and asserts the limits that were reached, so
that a hop added later is noticed.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from inspect import CO_GENERATOR
from types import CodeType, FrameType
from typing import Final

import pytest

from barnabas import EmbeddedBroker
from barnabas.broker.handlers.fetch import FetchHandler
from barnabas.common.identifiers import Uuid
from barnabas.network.server.processor import Processor
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import encode_request
from barnabas.protocol.message import Request
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records.builder import RecordBatchBuilder

PURE: Final = os.environ.get("BARNABAS_PURE") == "1"
FIRST: Final = Processor._process_completed_receives.__code__
LAST: Final = Processor.enqueue_response.__code__
HANDLER: Final = FetchHandler.fetch.__code__
TOPIC: Final = "frames"
VERSION: Final = ApiKey.FETCH.versions.highest
ROUNDS: Final = 30
"""The first requests compile their codecs, load modules and fill caches."""


class Fetches:
    """A broker in this process with one record in one topic, and what its network thread calls."""

    def __init__(self) -> None:
        self.called: list[list[CodeType]] = []
        self._current: dict[int, list[CodeType]] = {}
        self.topic_id = Uuid(bytes(16))
        self.socket: socket.socket

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        code, thread = frame.f_code, threading.get_ident()
        if code is FIRST:
            self._current[thread] = []
        current = self._current.get(thread)
        if current is not None:
            if code.co_flags & CO_GENERATOR and current[-1] is code:
                return  # the same generator goes on
            current.append(code)
            if code is LAST:
                del self._current[thread]
                if HANDLER in current:
                    self.called.append(current)

    def ask(self, request: Request, version: int) -> bytes:
        """The response to a request, without its length and its header."""
        self.socket.sendall(encode_request(request, version, 1, "frames"))
        return self._read(int.from_bytes(self._read(4)))[5:]

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            received = self.socket.recv(size - len(data))
            assert received
            data += received
        return data

    def fetch(self, session_id: int = 0, session_epoch: int = -1, *, listed: bool = True) -> FetchResponse:
        asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic_id=self.topic_id, partitions=[asked])] if listed else []
        request = FetchRequest(
            topics=topics, max_bytes=1 << 20, session_id=session_id, session_epoch=session_epoch, max_wait_ms=0
        )
        return FetchResponse.decode(self.ask(request, VERSION), VERSION)


@pytest.fixture(scope="module")
def fetches() -> Iterator[Fetches]:
    fetches = Fetches()
    threading.setprofile(fetches.profile)
    try:
        with EmbeddedBroker() as broker:
            host, port = broker.bootstrap_servers.rsplit(":", 1)
            with socket.create_connection((host, int(port)), timeout=60) as fetches.socket:
                topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
                fetches.ask(
                    CreateTopicsRequest(topics=[topic], timeout_ms=60_000), ApiKey.CREATE_TOPICS.versions.highest
                )
                version = ApiKey.METADATA.versions.highest
                about = fetches.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), version)
                fetches.topic_id = MetadataResponse.decode(about, version).topics[0].topic_id
                builder = RecordBatchBuilder()
                builder.append(time.time_ns() // 1_000_000, None, b"v" * 100)
                data = PartitionProduceData(index=0, records=builder.close())
                fetches.ask(
                    ProduceRequest(
                        acks=-1,
                        timeout_ms=60_000,
                        topic_data=[TopicProduceData(topic_id=fetches.topic_id, partition_data=[data])],
                    ),
                    ApiKey.PRODUCE.versions.highest,
                )
                yield fetches
    finally:
        threading.setprofile(None)


def check(what: str, called: list[list[CodeType]], most_frames: int, most_modules: int) -> None:
    """Prints the frames of the request that took the fewest, and asserts the limits."""
    frames = min(called[len(called) // 2 :], key=len)
    modules = {code.co_filename for code in frames if not code.co_filename.startswith("<")}
    print(f"{what}: {len(frames)} frames in {len(modules)} modules{' (pure)' if PURE else ''}")
    for code in frames:
        print(f"    {code.co_qualname}")
    assert len(frames) <= most_frames
    assert len(modules) <= most_modules


def test_a_fetch_without_a_session(fetches: Fetches) -> None:
    fetches.called.clear()
    for _ in range(ROUNDS):
        assert fetches.fetch().responses[0].partitions[0].records
    check("fetch without a session", fetches.called, *((80, 30) if PURE else (60, 26)))


def test_a_fetch_of_a_session(fetches: Fetches) -> None:
    session_id = fetches.fetch(0, 0).session_id
    assert session_id
    fetches.called.clear()
    for epoch in range(1, ROUNDS):
        assert fetches.fetch(session_id, epoch, listed=False).responses[0].partitions[0].records
    check("fetch of a session", fetches.called, *((90, 32) if PURE else (70, 29)))
