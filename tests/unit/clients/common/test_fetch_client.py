"""Fetch requests, with a session and without, and what their responses say."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

import pytest

from barnabas.clients.common.blocking_client import BlockingClient, ClientError
from barnabas.clients.common.fetch_client import FetchClient, FetchSettings
from barnabas.clients.common.fetch_session_handler import PartitionToFetch
from barnabas.clients.common.list_offsets import LATEST_TIMESTAMP
from barnabas.clients.common.partition_errors import RECOVERIES, Recovery
from barnabas.clients.common.topic_reader import ClusterState, Leader, TopicReader, UnknownPartitionsError
from barnabas.clients.common.topic_tail import TopicTail
from barnabas.common.clock import MockClock
from barnabas.common.errors import Errors
from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.client.node import Node
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.message import Request
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.records.builder import RecordBatchBuilder

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOPIC_ID = Uuid(b"topic-id-0123456")
NODE = Node(1, "h", 9092)
SETTINGS = FetchSettings(max_wait_ms=7, min_bytes=2, max_bytes=1000, isolation_level=1, client_rack="r")
ERRORS = [error for error in RECOVERIES if error]
PASSING = {Recovery.REFRESH_METADATA, Recovery.RETRY}


def row(offset: int, topic_id: Uuid = TOPIC_ID) -> PartitionToFetch:
    return PartitionToFetch(topic_id, offset, 100, 3)


def fetched(*rows: PartitionData, session_id: int = 0, error: Errors = Errors.NONE) -> FetchResponse:
    topics = [FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(rows))] if rows else []
    return FetchResponse(responses=topics, session_id=session_id, error_code=error)


def batch(offset: int, value: bytes) -> bytes:
    builder = RecordBatchBuilder(base_offset=offset)
    builder.append(0, None, value)
    return bytes(builder.close())


def test_a_session_names_what_has_changed() -> None:
    client = FetchClient(SETTINGS)
    first = client.fetch(1, {T0: row(0), T1: row(0)})
    assert (first.body.session_id, first.body.session_epoch) == (0, 0)
    assert (first.body.max_wait_ms, first.body.min_bytes, first.body.max_bytes) == (7, 2, 1000)
    assert (first.body.isolation_level, first.body.rack_id) == (1, "r")
    rows = [PartitionData(partition_index=0), PartitionData(partition_index=1)]
    assert first.read(fetched(*rows, session_id=9)) == [(T0, rows[0]), (T1, rows[1])]
    second = client.fetch(1, {T0: row(5), T1: row(0)})
    assert (second.body.session_id, second.body.session_epoch) == (9, 1)
    assert [one.partition for topic in second.body.topics for one in topic.partitions] == [0]
    assert second.partitions.keys() == {T0, T1}
    assert [(node, body.session_id, body.session_epoch) for node, body in client.close()] == [(1, 9, -1)]
    assert client.close() == []


def test_without_a_session_every_request_is_full() -> None:
    client = FetchClient(SETTINGS, sessionless=True)
    for offset in (0, 5):
        fetch = client.fetch(1, {T0: row(offset)}, max_wait_ms=0, max_bytes=5)
        assert (fetch.body.session_id, fetch.body.session_epoch) == (0, -1)
        assert (fetch.body.max_wait_ms, fetch.body.max_bytes) == (0, 5)
        assert len(fetch.body.topics) == 1
        assert fetch.read(fetched(error=Errors.UNKNOWN_TOPIC_ID)) is None
        assert fetch.read(fetched(PartitionData(partition_index=1))) is None, "which is another partition"
        assert fetch.read(fetched(PartitionData(partition_index=0))) is not None
    assert client.close() == []


@pytest.mark.parametrize(("topic_id", "highest"), [(TOPIC_ID, ApiKey.FETCH.stable_versions.highest), (ZERO_UUID, 12)])
def test_without_topic_ids_only_versions_with_names_will_do(topic_id: Uuid, highest: int) -> None:
    fetch = FetchClient(SETTINGS).fetch(1, {T0: row(0, topic_id)})
    assert fetch.versions == (ApiKey.FETCH.stable_versions.lowest, highest)


class ScriptedClient:
    """A cluster of one broker with one partition. Fetches and offset lookups are answered from scripts."""

    def __init__(self, *fetches: PartitionData | FetchResponse, list_error: Errors = Errors.NONE) -> None:
        self.fetches = deque(fetches)
        self.list_errors = deque([list_error, Errors.NONE])
        self.topic_error = Errors.NONE
        self.described = 0
        self.offsets: list[int] = []

    def send(self, body: Request, node: Node | None = None) -> Any:
        if isinstance(body, MetadataRequest):
            self.described += 1
            return MetadataResponse(
                brokers=[MetadataResponseBroker(node_id=1, host="h", port=9092)],
                topics=[
                    MetadataResponseTopic(
                        name="t",
                        topic_id=TOPIC_ID,
                        error_code=self.topic_error,
                        partitions=[MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=3)],
                    )
                ],
            )
        if isinstance(body, ListOffsetsRequest):
            found = ListOffsetsPartitionResponse(partition_index=0, error_code=self.list_errors.popleft(), offset=4)
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[found])])
        assert isinstance(body, FetchRequest)
        self.offsets.append(body.topics[0].partitions[0].fetch_offset)
        following = self.fetches.popleft()
        return following if isinstance(following, FetchResponse) else fetched(following)

    def post(self, body: Request, node: Node, versions: object) -> Request:
        return body

    def wait(self, body: Request) -> Any:
        return self.send(body)

    def send_all(self, requests: Any) -> list[Any]:
        return [self.send(body) for _, body in requests]


def reader(client: ScriptedClient) -> TopicReader:
    return TopicReader(cast("BlockingClient", client), SETTINGS)


@pytest.mark.parametrize("error", ERRORS)
def test_describing_a_topic_with_an_error(error: Errors) -> None:
    client = ScriptedClient()
    client.topic_error = error
    if RECOVERIES[error] is not Recovery.REFRESH_METADATA:
        with pytest.raises(ClientError, match=error.name):
            reader(client).describe(["t"])
    else:
        missing = error in {Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.UNKNOWN_TOPIC_ID}
        assert (reader(client).describe(["t"]).leaders == {}) is missing


@pytest.mark.parametrize("error", ERRORS)
def test_listing_offsets_with_an_error(error: Errors) -> None:
    made = reader(ScriptedClient(list_error=error))
    state = made.describe(["t"])
    with pytest.raises(ClientError, match=error.name) as raised:
        made.list_offsets({T0: LATEST_TIMESTAMP}, state)
    assert isinstance(raised.value, UnknownPartitionsError) is (RECOVERIES[error] in PASSING)
    assert made.list_offsets({T0: LATEST_TIMESTAMP}, state) == {T0: 4}


def test_offsets_of_a_partition_without_a_leader() -> None:
    state = ClusterState({}, {T0: Leader(None, TOPIC_ID, 3)}, frozenset())
    with pytest.raises(UnknownPartitionsError, match="t-0, t-1: there is no such partition, or it has no leader"):
        reader(ScriptedClient()).list_offsets({T0: LATEST_TIMESTAMP, T1: LATEST_TIMESTAMP}, state)


def test_an_error_of_the_whole_response_is_that_of_each_partition() -> None:
    made = reader(ScriptedClient(fetched(error=Errors.FETCH_SESSION_TOPIC_ID_ERROR), fetched()))
    assert made.fetch(NODE, {T0: row(0)})[T0].error_code == Errors.FETCH_SESSION_TOPIC_ID_ERROR
    with pytest.raises(ClientError, match="lacks some of t-0"):
        made.fetch(NODE, {T0: row(0)})


class SteppingClock(MockClock):
    """A clock on which a sleep is over at once."""

    def sleep(self, milliseconds: float) -> None:
        self.advance(milliseconds)


@pytest.mark.parametrize("error", ERRORS)
def test_a_tail_recovers_from_what_passes(error: Errors) -> None:
    failed = PartitionData(partition_index=0, error_code=error, log_start_offset=6)
    client = ScriptedClient(failed, PartitionData(partition_index=0, records=batch(6, b"v")))
    clock = SteppingClock()
    tail = TopicTail(cast("BlockingClient", client), "t", clock=clock)
    if RECOVERIES[error] is Recovery.FAIL:
        with pytest.raises(ClientError, match=error.name):
            tail.poll(10)
        return
    assert tail.poll(500) == []
    assert clock.hi_res_milliseconds() == (100 if RECOVERIES[error] in PASSING else 0), "a backoff before the retry"
    assert [(one.partition, one.record.value) for one in tail.poll(10)] == [(0, b"v")]
    assert client.offsets == [4, 6 if RECOVERIES[error] is Recovery.RESET_OFFSET else 4]
    assert client.described == (2 if RECOVERIES[error] in PASSING else 1)


def test_a_tail_looks_for_its_start_again() -> None:
    client = ScriptedClient(PartitionData(partition_index=0), list_error=Errors.NOT_LEADER_OR_FOLLOWER)
    tail = TopicTail(cast("BlockingClient", client), "t", clock=MockClock())
    assert tail.poll(10) == tail.poll(10) == []
    assert (client.described, client.offsets) == (2, [4])
