"""Fetch: authorization, sessions, hints, and the response to a reader that is over its quota."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import pytest

from barnabas.broker.handlers import fetch
from barnabas.broker.handlers.fetch import FetchHandler
from barnabas.common.errors import Errors
from barnabas.common.identifiers import Uuid
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.fetch_isolation import FetchIsolation
from barnabas.log.leader_epoch_cache import EpochEndOffset as LogEpochEndOffset
from barnabas.network.reactor.send import FileRegion
from barnabas.network.server.response import SEND, START_THROTTLING
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.internal.storage import AbortedTxn
from barnabas.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ReplicaState,
)
from barnabas.replica.broker_topic_stats import (
    BYTES_OUT,
    REASSIGNMENT_BYTES_OUT,
    REPLICATION_BYTES_OUT,
    BrokerTopicStats,
)
from barnabas.replica.fetch import fetch_context
from barnabas.replica.fetch.fetch_session_cache import FetchSessionCache
from barnabas.replica.fetch.fetch_session_manager import FetchManager
from barnabas.replica.follower.replica_quota import UNBOUNDED_QUOTA
from barnabas.replica.results import ClientMetadata, FetchPartitionData
from barnabas.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from barnabas.server.request import Request
from unit.broker.handlers.data_bench import ALICE, COMPACT, ELSEWHERE, NOBODY, DataBench, Quotas, T, acls, questions

pytestmark = pytest.mark.mechanism("R07")

READ_T = (AclOperation.READ, ResourceType.TOPIC, "t")
CLUSTER_ACTION = (AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
LATEST = ApiKey.FETCH.versions.highest
FETCH_MAX_BYTES = 50_000


class LeaderQuota:
    """A limit for followers, on partition 0 of each topic."""

    is_quota_exceeded = False

    def __init__(self) -> None:
        self.recorded: list[int] = []

    def record(self, value: int) -> None:
        self.recorded.append(value)

    def is_throttled(self, partition: TopicPartition) -> bool:
        return partition.partition == 0


class FetchBench(DataBench):
    """A bench with a fetch handler on it."""

    def __init__(self, *args: Any, leader_quota: LeaderQuota | None = None, slots: int = 10, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sessions = FetchSessionCache(slots)
        self.stats = BrokerTopicStats(self.registry)
        self.handler = FetchHandler(
            self.helper,
            self.auth,
            self.cache,
            self.replicas,
            FetchManager(self.clock, self.sessions),
            self.stats,
            self.clock,
            fetch_max_bytes=FETCH_MAX_BYTES,
            leader_quota=leader_quota or UNBOUNDED_QUOTA,
        )

    def fetch(self, body: FetchRequest, version: int = LATEST) -> Any:
        return self.answered(self.handler, body, version, principal=ALICE)

    def finds(self, partition: str, records: bytes = b"", **data: Any) -> None:
        """What a read of the partition comes to."""
        values = {"error": Errors.NONE, "high_watermark": 10, "log_start_offset": 0, "records": records, **data}
        self.replicas.fetch_results[partition] = FetchPartitionData(**values)

    @property
    def read(self) -> list[str]:
        """What was read by the last request."""
        return [str(partition) for partition, _ in self.replicas.fetch_calls[-1][1]]


def of(*partitions: tuple[str | Uuid, int], **fields: Any) -> FetchRequest:
    """A request for these partitions; topics by name, or by id for v13 and later."""
    topics = []
    for topic, index in partitions:
        asked = FetchPartition(partition=index, fetch_offset=3, partition_max_bytes=1000)
        entry = FetchTopic(partitions=[asked])
        if isinstance(topic, str):
            entry.topic = topic
        else:
            entry.topic_id = topic
        topics.append(entry)
    return FetchRequest(topics=topics, **{"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20, **fields})


def data_of(response: Any) -> dict[str, PartitionData]:
    names = {T: "t", COMPACT: "compact", ELSEWHERE: "elsewhere", NOBODY: "nobody"}
    return {
        f"{topic.topic or names[topic.topic_id]}-{data.partition_index}": data
        for topic in response.responses
        for data in topic.partitions
    }


def codes(response: Any) -> dict[str, Errors]:
    return {name: Errors(data.error_code) for name, data in data_of(response).items()}


def records_of(response: Any) -> dict[str, bytes]:
    return {name: bytes(cast("bytes", data.records)) for name, data in data_of(response).items()}


# ---------------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize("version", range(ApiKey.FETCH.versions.lowest, LATEST + 1))
def test_every_version(version: int) -> None:
    b = FetchBench()
    b.finds("t-1", b"records", last_stable_offset=9, log_start_offset=2)
    response = b.fetch(of(("t" if version < 13 else T, 1)), version)
    answer = data_of(response)["t-1"]
    assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (0, 10, 9)
    assert answer.log_start_offset == (2 if version >= 5 else -1)
    assert records_of(response) == {"t-1": b"records"}
    assert answer.aborted_transactions is None
    assert (response.error_code, response.throttle_time_ms) == (0, 0)
    ((partition, asked),) = b.replicas.fetch_calls[0][1]
    assert (partition.topic, partition.partition, asked.fetch_offset, asked.partition_max_bytes) == ("t", 1, 3, 1000)
    assert partition.topic_id == (T if version >= 13 else bytes(16))


def test_records_leave_as_a_region_of_the_log(tmp_path: Path) -> None:
    """They are not read here, not even to find out how many there are."""
    path = tmp_path / "log"
    content = os.urandom(100_000)
    path.write_bytes(content)
    with path.open("rb") as file:
        b = FetchBench()
        region = FileRegion(file.fileno(), 2, 90_000)
        b.finds("t-0", region)  # type: ignore[arg-type]
        request = b.dispatch(b.handler, of((T, 0)), LATEST)
        (sent,) = b.responses(request)
        assert region in sent._pieces
        assert records_of(b.answer(request)) == {"t-0": content[2:90_002]}
        assert b.stats.all_topics[BYTES_OUT].count == 90_000


def test_what_is_asked_of_the_replica_manager() -> None:
    b = FetchBench()
    b.fetch(of(("t", 0), rack_id="east", isolation_level=1), 11)
    params, _, quota = b.replicas.fetch_calls[-1]
    assert (params.replica_id, params.replica_epoch, params.max_wait_ms) == (-1, -1, 500)
    assert (params.min_bytes, params.max_bytes) == (1, FETCH_MAX_BYTES)
    assert params.isolation is FetchIsolation.TXN_COMMITTED
    assert params.client_metadata == ClientMetadata("east", "test", "127.0.0.1", "User:alice", "PLAINTEXT")
    assert quota is UNBOUNDED_QUOTA
    b.fetch(of(("t", 0), max_bytes=100, min_bytes=1000), 10)
    params, _, _ = b.replicas.fetch_calls[-1]
    assert (params.min_bytes, params.max_bytes) == (100, 100)  # else it would wait for what it cannot get
    assert params.isolation is FetchIsolation.HIGH_WATERMARK
    assert params.client_metadata is None  # v11 is the first that can be sent to another replica


@pytest.mark.parametrize(
    ("version", "fields"),
    [(14, {"replica_id": 2}), (15, {"replica_state": ReplicaState(replica_id=2, replica_epoch=77)})],
)
def test_a_follower(version: int, fields: dict[str, Any]) -> None:
    b = FetchBench()
    b.finds("t-0", b"records")
    request = b.dispatch(b.handler, of((T, 0), **fields), version)
    params, _, _ = b.replicas.fetch_calls[-1]
    assert (params.replica_id, params.replica_epoch) == (2, 77 if version == 15 else -1)
    assert params.isolation is FetchIsolation.LOG_END
    assert records_of(b.answer(request)) == {"t-0": b"records"}
    request.complete(0, b.responses(request)[0])
    assert b.times.follower_fetch.rate(version).count == 1
    assert b.times.consumer_fetch.rate(version).count == 0


def test_a_long_poll_gets_a_response_when_there_is_something() -> None:
    b = FetchBench()
    b.replicas.parks = True
    request = b.dispatch(b.handler, of((T, 0), (NOBODY, 0)), LATEST)
    assert b.responses(request) == []
    b.finds("t-0", b"late")
    b.replicas.complete()
    assert records_of(b.answer(request)) == {"t-0": b"late", "nobody-0": b""}


@pytest.mark.mechanism("R13")
def test_a_response_that_cannot_be_encoded_becomes_an_error_response(caplog: pytest.LogCaptureFixture) -> None:
    """After a wait the thread belongs to another request, which would not respond to this one."""
    b = FetchBench()
    b.replicas.parks = True
    request = b.dispatch(b.handler, of((T, 0)), LATEST)
    b.finds("t-0", b"r", high_watermark=2**99)
    b.replicas.complete()
    assert Errors(b.answer(request).error_code) is Errors.UNKNOWN_SERVER_ERROR
    assert caplog.records


def test_aborted_transactions() -> None:
    b = FetchBench()
    b.finds("t-0", b"r", aborted_transactions=[AbortedTxn(producer_id=7, first_offset=3, last_offset=9)])
    b.finds("t-1", b"r", aborted_transactions=[])
    answers = data_of(b.fetch(of((T, 0), (T, 1), isolation_level=1)))
    assert answers["t-0"].aborted_transactions == [AbortedTransaction(producer_id=7, first_offset=3)]
    assert answers["t-1"].aborted_transactions == []


def test_divergence_and_other_replicas() -> None:
    b = FetchBench()
    b.finds("t-0", diverging_epoch=LogEpochEndOffset(4, 123))
    b.finds("t-1", preferred_read_replica=2)
    answers = data_of(b.fetch(of((T, 0), (T, 1))))
    assert answers["t-0"].diverging_epoch == EpochEndOffset(epoch=4, end_offset=123)
    assert answers["t-1"].preferred_read_replica == 2


def test_an_isolation_level_that_there_is_not() -> None:
    b = FetchBench()
    assert b.fetch(of((T, 0), isolation_level=7)).error_code == Errors.INVALID_REQUEST
    assert b.replicas.fetch_calls == []


# ---------------------------------------------------------------------------------------------------- buckets


def test_what_is_unknown() -> None:
    b = FetchBench()
    response = b.fetch(of(("nope", 0), ("t", 0), ("t", 9)), 12)
    assert codes(response) == {
        "t-0": Errors.NONE,
        "nope-0": Errors.UNKNOWN_TOPIC_OR_PARTITION,
        "t-9": Errors.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert b.read == ["t-0"]
    failed = data_of(response)["t-9"]
    assert (failed.high_watermark, failed.last_stable_offset, failed.log_start_offset) == (-1, -1, -1)
    assert failed.aborted_transactions == []
    assert records_of(response)["t-9"] == b""
    assert b.errors_counted("Fetch") == {"UNKNOWN_TOPIC_OR_PARTITION": 2}
    assert codes(b.fetch(of((NOBODY, 0)), 13)) == {"nobody-0": Errors.UNKNOWN_TOPIC_ID}
    assert len(b.replicas.fetch_calls) == 1  # with nothing to read nobody is bothered


def test_consumers_need_read_and_are_asked_about_once() -> None:
    auth = acls(READ_T)
    b = FetchBench(auth=auth)
    response = b.fetch(of((T, 0), (T, 1), (COMPACT, 0), (NOBODY, 0), (T, 9)))
    assert codes(response) == {
        "t-0": Errors.NONE,
        "t-1": Errors.NONE,
        "compact-0": Errors.TOPIC_AUTHORIZATION_FAILED,
        "nobody-0": Errors.UNKNOWN_TOPIC_ID,
        "t-9": Errors.UNKNOWN_TOPIC_OR_PARTITION,
    }
    (actions,) = questions(auth)
    assert {action.resource_pattern.name: action.resource_reference_count for action in actions} == {
        "t": 3,
        "compact": 1,
    }


def test_followers_need_cluster_action_and_nothing_else() -> None:
    follower = {"replica_state": ReplicaState(replica_id=2, replica_epoch=1)}
    b = FetchBench(auth=acls(READ_T))
    assert codes(b.fetch(of((T, 0), (NOBODY, 0), **follower))) == {
        "t-0": Errors.TOPIC_AUTHORIZATION_FAILED,
        "nobody-0": Errors.TOPIC_AUTHORIZATION_FAILED,
    }
    b = FetchBench(auth=acls(CLUSTER_ACTION))
    assert codes(b.fetch(of((T, 0), (NOBODY, 0), **follower))) == {
        "t-0": Errors.NONE,
        "nobody-0": Errors.UNKNOWN_TOPIC_ID,
    }
    assert codes(b.fetch(of((T, 0)))) == {"t-0": Errors.TOPIC_AUTHORIZATION_FAILED}  # a consumer is no follower


def test_without_an_authorizer_no_context_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(request: Request) -> None:
        raise AssertionError("somebody made a context for nobody")

    monkeypatch.setattr(Request, "request_context", property(fail))
    assert codes(FetchBench().fetch(of((T, 0)))) == {"t-0": Errors.NONE}


# ---------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("error", [Errors.NOT_LEADER_OR_FOLLOWER, Errors.FENCED_LEADER_EPOCH])
@pytest.mark.parametrize(("version", "told"), [(15, False), (16, True), (18, True)])
def test_who_leads_now(error: Errors, version: int, told: bool) -> None:
    b = FetchBench()
    b.finds("elsewhere-0", error=error, high_watermark=-1)
    response = b.fetch(of((ELSEWHERE, 0), (T, 0)), version)
    answers = data_of(response)
    assert answers["elsewhere-0"].error_code == error
    assert answers["elsewhere-0"].current_leader == (LeaderIdAndEpoch(leader_id=2, leader_epoch=5) if told else None)
    assert answers["t-0"].current_leader is None
    assert response.node_endpoints == (
        [NodeEndpoint(node_id=2, host="plaintext-2", port=9092, rack="east")] if told else []
    )


def test_a_follower_is_told_the_leader_but_not_where_it_is() -> None:
    """It knows the brokers, and it is not a client of this listener."""
    b = FetchBench()
    b.finds("elsewhere-0", error=Errors.NOT_LEADER_OR_FOLLOWER)
    response = b.fetch(of((ELSEWHERE, 0), replica_state=ReplicaState(replica_id=2, replica_epoch=1)))
    assert data_of(response)["elsewhere-0"].current_leader == LeaderIdAndEpoch(leader_id=2, leader_epoch=5)
    assert response.node_endpoints == []


@pytest.mark.mechanism("R12")
@pytest.mark.parametrize(("version", "expected"), [(4, 6), (5, 6), (6, 56), (18, 56)])
def test_old_readers_do_not_know_storage_errors(version: int, expected: int) -> None:
    b = FetchBench()
    b.finds("t-0", error=Errors.KAFKA_STORAGE_ERROR)
    response = b.fetch(of(("t" if version < 13 else T, 0)), version)
    assert data_of(response)["t-0"].error_code == expected
    assert data_of(response)["t-0"].current_leader is None


# ---------------------------------------------------------------------------------------------------- sessions


def session_request(session_id: int, epoch: int, *partitions: tuple[Uuid, int], **fields: Any) -> FetchRequest:
    return of(*partitions, session_id=session_id, session_epoch=epoch, **fields)


def test_a_session_from_its_beginning_to_its_end() -> None:
    b = FetchBench()
    b.finds("t-0", b"one")
    first = b.fetch(session_request(0, 0, (T, 0), (T, 1), (NOBODY, 0)))
    session = first.session_id
    assert session != 0
    assert codes(first) == {"t-0": Errors.NONE, "t-1": Errors.NONE, "nobody-0": Errors.UNKNOWN_TOPIC_ID}
    # Nothing is new but what is wrong.
    b.finds("t-0")
    second = b.fetch(session_request(session, 1))
    assert b.read == ["t-0", "t-1"]
    assert second.session_id == session
    assert codes(second) == {"nobody-0": Errors.UNKNOWN_TOPIC_ID}
    # A high watermark that has moved is news, and so are records.
    b.finds("t-0", high_watermark=11)
    b.finds("t-1", b"two")
    third = b.fetch(session_request(session, 2))
    assert records_of(third) == {"t-0": b"", "t-1": b"two", "nobody-0": b""}
    # The one that has had its turn is read last, and one that is no longer wanted not at all.
    forgotten = [ForgottenTopic(topic_id=NOBODY, partitions=[0])]
    b.finds("t-1")
    fourth = b.fetch(session_request(session, 3, forgotten_topics_data=forgotten))
    assert b.read == ["t-0", "t-1"]
    assert fourth.responses == []
    closing = b.fetch(session_request(session, -1))
    assert (closing.session_id, closing.responses) == (0, [])
    assert b.fetch(session_request(session, 4)).error_code == Errors.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("epoch", "version", "error"),
    [(5, 18, Errors.INVALID_FETCH_SESSION_EPOCH), (1, 12, Errors.FETCH_SESSION_TOPIC_ID_ERROR)],
)
def test_a_session_that_is_not_what_the_reader_thinks(epoch: int, version: int, error: Errors) -> None:
    b = FetchBench()
    session = b.fetch(session_request(0, 0, (T, 0))).session_id
    response = b.fetch(session_request(session, epoch), version)
    assert (response.error_code, response.session_id, response.responses) == (error, 0, [])
    assert b.errors_counted("Fetch") == {error.name: 1}


def test_no_room_for_a_session() -> None:
    response = FetchBench(slots=0).fetch(session_request(0, 0, (T, 0)))
    assert response.session_id == 0
    assert codes(response) == {"t-0": Errors.NONE}


def test_partitions_without_news_cost_no_response(monkeypatch: pytest.MonkeyPatch) -> None:
    b = FetchBench()
    session = b.fetch(session_request(0, 0, (T, 0), (T, 1))).session_id

    def fail(*args: Any) -> None:
        raise AssertionError("an answer was made that nobody is going to get")

    monkeypatch.setattr(fetch, "PartitionData", fail)
    response = b.fetch(session_request(session, 1))
    assert (response.error_code, response.responses) == (0, [])


# ---------------------------------------------------------------------------------------------------- quotas


@pytest.mark.mechanism("R11")
@pytest.mark.parametrize(("bandwidth", "request_ms"), [(300, 100), (100, 300), (300, 300), (300, 0), (0, 300)])
def test_a_consumer_over_its_quota_gets_an_empty_response(bandwidth: int, request_ms: int) -> None:
    b = FetchBench(Quotas(fetch=bandwidth, request=request_ms))
    quotas = b.quotas
    assert quotas is not None
    b.finds("t-0", b"records")
    request = b.dispatch(b.handler, of((T, 0)), LATEST)
    response = b.answer(request)
    assert (response.throttle_time_ms, response.responses, response.error_code) == (300, [], 0)
    assert request.api_throttle_time_ms == 300
    assert [response.kind for response in b.responses(request)] == [START_THROTTLING, SEND]
    by_bandwidth = bandwidth > request_ms
    assert quotas.fetch.throttled == ([300] if by_bandwidth else [])
    assert quotas.request.throttled == ([] if by_bandwidth else [(request, 300)])
    assert quotas.fetch.recorded == quotas.fetch.unrecorded  # the records will be charged when they are sent
    assert b.stats.all_topics[BYTES_OUT].count == 0


@pytest.mark.mechanism("R11")
def test_throttling_leaves_the_session_as_it_was() -> None:
    quotas = Quotas()
    b = FetchBench(quotas)
    session = b.fetch(session_request(0, 0, (T, 0), (T, 1))).session_id
    b.finds("t-0", high_watermark=11)
    quotas.fetch.throttle_time_ms = 300
    throttled = b.fetch(session_request(session, 1))
    assert (throttled.session_id, throttled.responses, throttled.throttle_time_ms) == (session, [], 300)
    quotas.fetch.throttle_time_ms = 0
    assert list(data_of(b.fetch(session_request(session, 2)))) == ["t-0"]  # that its watermark moved is news still


@pytest.mark.mechanism("R11")
def test_a_throttled_full_fetch_makes_no_session() -> None:
    b = FetchBench(Quotas(fetch=300))
    assert b.fetch(session_request(0, 0, (T, 0))).session_id == 0


@pytest.mark.mechanism("R11")
def test_what_is_charged_is_the_size_of_the_response() -> None:
    quotas = Quotas()
    b = FetchBench(quotas)
    sizes = []
    for size in (0, 1000):
        b.finds("t-0", bytes(size))
        request = b.dispatch(b.handler, of((T, 0)), LATEST)
        sizes.append(b.responses(request)[0].size)
    assert quotas.fetch.recorded[1] - quotas.fetch.recorded[0] == sizes[1] - sizes[0]
    assert abs(quotas.fetch.recorded[0] - sizes[0]) <= 8  # the header of the frame apart


@pytest.mark.mechanism("R11")
def test_no_more_is_read_than_the_quota_lets_through_in_a_window() -> None:
    b = FetchBench(Quotas(window=1234.9))
    b.fetch(of((T, 0), min_bytes=5000))
    params, _, _ = b.replicas.fetch_calls[-1]
    assert (params.min_bytes, params.max_bytes) == (1234, 1234)
    b.fetch(of((T, 0), replica_state=ReplicaState(replica_id=2, replica_epoch=1)))
    assert b.replicas.fetch_calls[-1][0].max_bytes == FETCH_MAX_BYTES  # the quota is for clients


@pytest.mark.mechanism("R11")
def test_without_quotas_nobody_works_out_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> int:
        raise AssertionError("an answer was encoded that is not sent")

    monkeypatch.setattr(fetch_context, "response_size", fail)
    response = FetchBench().fetch(of((T, 0)))
    assert (response.error_code, codes(response)) == (0, {"t-0": Errors.NONE})


@pytest.mark.mechanism("R11")
def test_followers_are_not_held_back() -> None:
    quotas = Quotas(fetch=300, request=300)
    limit = LeaderQuota()
    b = FetchBench(quotas, leader_quota=limit)
    b.finds("t-0", bytes(1000))
    b.finds("t-1", bytes(500), is_reassignment_fetch=True)
    request = b.dispatch(
        b.handler, of((T, 0), (T, 1), replica_state=ReplicaState(replica_id=2, replica_epoch=1)), LATEST
    )
    assert [response.kind for response in b.responses(request)] == [SEND]
    assert b.answer(request).throttle_time_ms == 0
    assert quotas.request.exempt == [request]
    assert quotas.fetch.recorded == []
    assert b.replicas.fetch_calls[-1][2] is limit
    (recorded,) = limit.recorded
    assert 1000 < recorded < 1100  # the partition with a limit, and some bytes around it
    assert b.stats.all_topics[REPLICATION_BYTES_OUT].count == 1500
    assert b.stats.all_topics[REASSIGNMENT_BYTES_OUT].count == 500
    assert b.stats.all_topics[BYTES_OUT].count == 0
