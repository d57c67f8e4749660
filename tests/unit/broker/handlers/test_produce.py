"""Produce: which partitions get as far as the log, what is kept meanwhile, and what becomes of the response."""

from __future__ import annotations

import gc
import logging
import weakref
from typing import Any

import pytest

from barnabas.broker.handlers.produce import ADMIN_CLIENT_ID, ProduceHandler
from barnabas.common.errors import Errors
from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.log.log_append_info import RecordError
from barnabas.network.reactor.memory_pool import SimpleMemoryPool
from barnabas.network.server.response import CLOSE_CONNECTION, NO_OP, SEND, START_THROTTLING
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.replica.results import ProduceResult
from barnabas.security.acl import AclOperation, ResourceType
from barnabas.server.request import Request
from barnabas.server.request_channel import CallbackRequest
from barnabas.server.request_local import RequestLocal
from log_fixtures import client_batch
from network_fixtures import request_from
from unit.broker.handlers.data_bench import ALICE, NOBODY, DataBench, Quotas, T, acls, questions

WRITE_T = (AclOperation.WRITE, ResourceType.TOPIC, "t")
WRITE_COMPACT = (AclOperation.WRITE, ResourceType.TOPIC, "compact")
WRITE_TXN = (AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "payments")
BATCH = bytes(client_batch([b"value"]))
VERSIONS = range(ApiKey.PRODUCE.versions.lowest, ApiKey.PRODUCE.versions.highest + 1)
TOPIC_IDS = next(field for field in TopicProduceData.fields if field.name == "topic_id").versions.lowest
TRANSACTIONAL = bytes(client_batch([b"value"], producer_id=7, epoch=0, sequence=0, transactional=True))


def handler_of(bench: DataBench) -> ProduceHandler:
    return ProduceHandler(bench.helper, bench.auth, bench.cache, bench.replicas, bench.clock)


def to(
    *partitions: tuple[str | Uuid, int] | tuple[str | Uuid, int, bytes],
    acks: int = -1,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """A request for these partitions, each its own topic entry; a topic is a name or, for v13, an id."""
    topics = []
    for topic, index, *records in partitions:
        entry = TopicProduceData(
            partition_data=[PartitionProduceData(index=index, records=records[0] if records else BATCH)]
        )
        if isinstance(topic, str):
            entry.name = topic
        else:
            entry.topic_id = topic
        topics.append(entry)
    return ProduceRequest(acks=acks, timeout_ms=1500, topic_data=topics, transactional_id=transactional_id)


def to_t(*partitions: int) -> ProduceRequest:
    """A request for partitions of ``t`` in one topic entry, which any version can carry."""
    data = [PartitionProduceData(index=index, records=BATCH) for index in partitions]
    topic = TopicProduceData(name="t", topic_id=T, partition_data=data)
    return ProduceRequest(acks=-1, timeout_ms=1500, topic_data=[topic])


def codes(response: Any) -> dict[str, Errors]:
    return {
        f"{topic.name or topic.topic_id.hex()[-2:]}-{partition.index}": Errors(partition.error_code)
        for topic in response.responses
        for partition in topic.partition_responses
    }


# ---------------------------------------------------------------------------------------------------- buckets


@pytest.mark.mechanism("R05")
@pytest.mark.parametrize("version", [version for version in VERSIONS if version < TOPIC_IDS])
def test_valid_batches_are_appended_and_acknowledged(version: int) -> None:
    bench = DataBench()
    bench.replicas.produce_results["t-1"] = ProduceResult(Errors.NONE, 42, 1700, 5)
    response = bench.answered(handler_of(bench), to(("t", 1), acks=1), version)
    assert bench.replicas.appended == {TopicIdPartition(T, "t", 1): BATCH}
    assert bench.replicas.append_calls == [{"timeout_ms": 1500, "acks": 1, "internal": False}]
    (topic,) = response.responses
    (answer,) = topic.partition_responses
    assert (topic.name, answer.index, answer.error_code, answer.base_offset) == ("t", 1, 0, 42)
    assert answer.log_append_time_ms == 1700
    assert answer.log_start_offset == (5 if version >= 5 else -1)
    assert response.throttle_time_ms == 0


@pytest.mark.mechanism("R05")
def test_topics_by_id() -> None:
    bench = DataBench()
    response = bench.answered(handler_of(bench), to((T, 1), (NOBODY, 0), (ZERO_UUID, 0), (T, 9)), 13)
    assert list(bench.replicas.appended) == [TopicIdPartition(T, "t", 1)]
    assert [(topic.topic_id, topic.name) for topic in response.responses] == [(T, ""), (NOBODY, ""), (ZERO_UUID, "")]
    assert codes(response) == {
        "01-1": Errors.NONE,
        "63-0": Errors.UNKNOWN_TOPIC_ID,
        "00-0": Errors.UNKNOWN_TOPIC_ID,
        "01-9": Errors.UNKNOWN_TOPIC_OR_PARTITION,
    }


@pytest.mark.mechanism("R05")
def test_the_buckets() -> None:
    bench = DataBench(auth=acls(WRITE_T))
    body = to(("t", 0), ("t", 9), ("nope", 0), ("", 0), ("compact", 0), ("t", 1, b""))
    response = bench.answered(handler_of(bench), body, 12, principal=ALICE)
    assert codes(response) == {
        "t-0": Errors.NONE,
        "t-9": Errors.UNKNOWN_TOPIC_OR_PARTITION,
        "nope-0": Errors.TOPIC_AUTHORIZATION_FAILED,  # it must not learn which topics exist
        "00-0": Errors.TOPIC_AUTHORIZATION_FAILED,
        "compact-0": Errors.TOPIC_AUTHORIZATION_FAILED,
        "t-1": Errors.INVALID_RECORD,
    }
    assert [str(partition) for partition in bench.replicas.appended] == ["t-0"]
    refused = [
        partition for topic in response.responses for partition in topic.partition_responses if partition.error_code
    ]
    assert all((answer.base_offset, answer.log_start_offset) == (-1, -1) for answer in refused)
    assert all(answer.log_append_time_ms == -1 and answer.error_message is None for answer in refused)
    assert bench.errors_counted("Produce")["TOPIC_AUTHORIZATION_FAILED"] == 3


@pytest.mark.mechanism("R05")
def test_all_topics_are_one_question_to_the_authorizer() -> None:
    auth = acls(WRITE_T, WRITE_COMPACT)
    bench = DataBench(auth=auth)
    bench.answered(handler_of(bench), to(("t", 0), ("t", 1), ("compact", 0)), 12, principal=ALICE)
    (actions,) = questions(auth)
    assert {action.resource_pattern.name: action.resource_reference_count for action in actions} == {
        "t": 2,
        "compact": 1,
    }
    bench.answered(handler_of(bench), to((T, 0), (NOBODY, 0)), 13, principal=ALICE)
    assert [action.resource_pattern.name for action in questions(auth)[1]] == ["t"]


@pytest.mark.mechanism("R05")
def test_without_an_authorizer_no_context_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(request: Request) -> None:
        raise AssertionError("somebody made a context for nobody")

    monkeypatch.setattr(Request, "request_context", property(fail))
    bench = DataBench()
    body = to(("t", 0, TRANSACTIONAL), transactional_id="payments")
    assert codes(bench.answered(handler_of(bench), body, 12)) == {"t-0": Errors.NONE}


@pytest.mark.mechanism("R05")
def test_nothing_to_append_gets_a_response_without_the_replica_manager() -> None:
    bench = DataBench()
    for body in (to(), to(("nope", 0)), to(("t", 0, b""))):
        bench.answered(handler_of(bench), body, 12)
    assert bench.replicas.append_calls == []


@pytest.mark.mechanism("R05")
def test_a_partition_twice_gets_the_second_batch() -> None:
    bench = DataBench()
    first, second = bytes(client_batch([b"first"])), bytes(client_batch([b"second"]))
    response = bench.answered(handler_of(bench), to(("t", 0, first), ("t", 0, second)), 12)
    assert codes(response) == {"t-0": Errors.NONE}
    assert bench.replicas.appended == {TopicIdPartition(T, "t", 0): second}


@pytest.mark.mechanism("R05")
def test_what_is_cut_off_behind_a_batch_is_left_out() -> None:
    bench = DataBench()
    bench.answered(handler_of(bench), to(("t", 0, BATCH + BATCH[:40])), 12)
    assert bench.replicas.appended == {TopicIdPartition(T, "t", 0): BATCH}


@pytest.mark.mechanism("R05")
def test_damage_at_the_very_beginning_fails_the_request_as_a_whole() -> None:
    """As in Kafka, which looks at all partitions for transactional records first."""
    bench = DataBench()
    response = bench.answered(handler_of(bench), to(("t", 0), ("t", 1, bytes(40)), ("nope", 0)), 12)
    assert set(codes(response).values()) == {Errors.CORRUPT_MESSAGE}
    assert bench.replicas.appended == {}
    assert all("0 bytes" in topic.partition_responses[0].error_message for topic in response.responses)


@pytest.mark.mechanism("R05")
def test_who_may_write_to_internal_topics() -> None:
    bench = DataBench()
    bench.dispatch(handler_of(bench), to(("t", 0)), 12, client_id=ADMIN_CLIENT_ID)
    bench.dispatch(handler_of(bench), to(("t", 0)), 12, client_id=None)
    assert [call["internal"] for call in bench.replicas.append_calls] == [True, False]


# ---------------------------------------------------------------------------------------------------- transactions


@pytest.mark.mechanism("R05")
@pytest.mark.parametrize(
    ("transactional_id", "rules", "allowed"),
    [
        ("payments", (WRITE_T, WRITE_TXN), True),
        ("payments", (WRITE_T,), False),
        ("other", (WRITE_T, WRITE_TXN), False),
        (None, (WRITE_T, WRITE_TXN), False),
    ],
)
def test_transactional_records_need_the_transactional_id(
    transactional_id: str | None, rules: tuple[Any, ...], allowed: bool
) -> None:
    bench = DataBench(auth=acls(*rules))
    body = to(("t", 0), ("t", 1, TRANSACTIONAL), transactional_id=transactional_id)
    response = bench.answered(handler_of(bench), body, 12, principal=ALICE)
    expected = Errors.NONE if allowed else Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert codes(response) == {"t-0": expected, "t-1": expected}
    assert bool(bench.replicas.appended) == allowed


@pytest.mark.mechanism("R05")
def test_records_without_a_transaction_need_no_transactional_id() -> None:
    bench = DataBench(auth=acls(WRITE_T))
    body = to(("t", 0), transactional_id="not mine")
    assert codes(bench.answered(handler_of(bench), body, 12, principal=ALICE)) == {"t-0": Errors.NONE}


@pytest.mark.mechanism("R05")
def test_without_an_authorizer_transactional_records_need_an_id_all_the_same() -> None:
    bench = DataBench()
    response = bench.answered(handler_of(bench), to(("t", 0, TRANSACTIONAL)), 12)
    assert codes(response) == {"t-0": Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}


@pytest.mark.mechanism("R05")
@pytest.mark.parametrize("transactional_id", ["payments", None])
def test_damage_after_a_transactional_batch_fails_its_partition_only(transactional_id: str | None) -> None:
    """As in Kafka, which looks at the batches until it has found a transactional one."""
    bench = DataBench()
    body = to(("t", 0, TRANSACTIONAL), ("t", 1, bytes(40)), ("nope", 0, bytes(40)), transactional_id=transactional_id)
    found = codes(bench.answered(handler_of(bench), body, 12))
    if transactional_id is None:
        assert set(found.values()) == {Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    else:
        unknown = Errors.UNKNOWN_TOPIC_OR_PARTITION
        assert found == {"t-0": Errors.NONE, "t-1": Errors.CORRUPT_MESSAGE, "nope-0": unknown}


# ---------------------------------------------------------------------------------------------------- answers


@pytest.mark.mechanism("R05")
@pytest.mark.parametrize(("version", "told"), [(9, False), (10, True), (12, True)])
def test_who_leads_now(version: int, told: bool) -> None:
    bench = DataBench()
    bench.replicas.produce_results["elsewhere-0"] = ProduceResult(Errors.NOT_LEADER_OR_FOLLOWER)
    response = bench.answered(handler_of(bench), to(("elsewhere", 0), ("t", 0)), version)
    (elsewhere, t) = response.responses
    (answer,) = elsewhere.partition_responses
    assert answer.current_leader == (LeaderIdAndEpoch(leader_id=2, leader_epoch=5) if told else None)
    assert response.node_endpoints == (
        [NodeEndpoint(node_id=2, host="plaintext-2", port=9092, rack="east")] if told else []
    )
    assert t.partition_responses[0].current_leader is None


@pytest.mark.mechanism("R05")
def test_a_leader_is_only_told_to_who_came_to_the_wrong_broker() -> None:
    bench = DataBench()
    bench.replicas.produce_results["elsewhere-0"] = ProduceResult(Errors.KAFKA_STORAGE_ERROR)
    response = bench.answered(handler_of(bench), to(("elsewhere", 0)), 12)
    assert response.responses[0].partition_responses[0].current_leader is None
    assert response.node_endpoints == []


@pytest.mark.mechanism("R05")
@pytest.mark.parametrize("version", [7, 8])
def test_what_is_wrong_with_records(version: int) -> None:
    bench = DataBench()
    bench.replicas.produce_results["t-0"] = ProduceResult(
        Errors.INVALID_RECORD, record_errors=(RecordError(3, "no key"),), error_message="keys are needed"
    )
    (topic,) = bench.answered(handler_of(bench), to(("t", 0)), version).responses
    (answer,) = topic.partition_responses
    assert answer.error_code == Errors.INVALID_RECORD
    if version >= 8:
        assert answer.error_message == "keys are needed"
        assert answer.record_errors == [BatchIndexAndErrorMessage(batch_index=3, batch_index_error_message="no key")]


@pytest.mark.mechanism("R06")
def test_with_all_acks_the_response_comes_when_it_is_called_for() -> None:
    bench = DataBench()
    bench.replicas.parks = True
    request = bench.dispatch(handler_of(bench), to(("t", 0), ("nope", 0), acks=-1), 12)
    assert bench.responses(request) == []
    bench.replicas.complete()
    assert codes(bench.answer(request)) == {"t-0": Errors.NONE, "nope-0": Errors.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.mechanism("R13")
def test_a_response_that_cannot_be_made_is_an_error_and_no_silence(caplog: pytest.LogCaptureFixture) -> None:
    """After a wait it is the thread of somebody else, who would not answer for us."""
    bench = DataBench()
    bench.replicas.parks = True
    bench.replicas.produce_results["t-0"] = ProduceResult(Errors.NONE, 2**99)
    request = bench.dispatch(handler_of(bench), to(("t", 0)), 12)
    bench.replicas.complete()
    assert codes(bench.answer(request)) == {"t-0": Errors.UNKNOWN_SERVER_ERROR}
    assert caplog.records


class Frame(bytearray):
    """The memory of a request, of which it can be seen whether somebody still has it."""

    __slots__ = ("__weakref__",)


@pytest.mark.mechanism("R14")
@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize("other", ["compact-1", None])
def test_a_request_that_waits_keeps_no_records(acks: int, other: str | None) -> None:
    bench = DataBench()
    bench.replicas.parks = True
    partitions = [("t", 0), ("compact", 1)] if other else [("t", 0)]
    frame = Frame(bench.request(to(*partitions, acks=acks), 12).buffer or b"")
    frame[:0] = len(frame).to_bytes(4, "big")
    alive = weakref.ref(frame)
    pool = SimpleMemoryPool(1 << 20, len(frame))
    assert pool.try_reserve(len(frame) - 4)
    request = request_from(memoryview(frame), bench.times, pool=pool)  # type: ignore[arg-type]
    seen = []

    def watch(*args: Any, **kwargs: Any) -> None:
        seen.append((request.buffer is not None, pool.available < 1 << 20))
        original(*args, **kwargs)

    original = bench.replicas.append_records
    bench.replicas.append_records = watch  # type: ignore[method-assign]
    bench.handle(handler_of(bench), request)
    assert seen == [(True, True)]  # the buffer belongs to the request while it is handled
    assert pool.available == 1 << 20
    del frame
    gc.collect()
    assert alive() is None, "something that waits still refers to the records"
    bench.replicas.complete()
    assert codes(bench.answer(request)) == dict.fromkeys(["t-0", other] if other else ["t-0"], Errors.NONE)


@pytest.mark.mechanism("N07")
@pytest.mark.parametrize("topics", [[("t", 1)], [("t", 1), ("compact", 0)]], ids=["plain", "any"])
def test_records_that_wait_for_a_slow_log_directory_stay_counted(topics: list[tuple[str, int]]) -> None:
    bench = DataBench()
    bench.replicas.parks = bench.replicas.holds = True
    frame = bytes(bench.request(to(*topics), 12).buffer or b"")
    pool = SimpleMemoryPool(1 << 20, len(frame))
    assert pool.try_reserve(len(frame))
    request = request_from(len(frame).to_bytes(4, "big") + frame, bench.times, pool=pool)
    bench.handle(handler_of(bench), request)
    assert pool.available == (1 << 20) - len(frame)
    bench.replicas.complete()
    assert pool.available == 1 << 20
    assert set(codes(bench.answer(request)).values()) == {Errors.NONE}


@pytest.mark.mechanism("R13")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_that_waited_gets_an_error_for_each_partition(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = DataBench()
    bench.replicas.parks = True
    handler = handler_of(bench)
    request = request_from(encode_request(to_t(0, 1), version, 7, "test"), bench.times)
    bench.handle(handler, request)
    assert request.buffer is None
    assert not bench.is_answered(request)

    def fail(*_: object) -> None:
        raise ValueError("no response today")

    monkeypatch.setattr(handler, "_response", fail)
    bench.replicas.complete()
    response = bench.answer(request)
    errors = [partition.error_code for topic in response.responses for partition in topic.partition_responses]
    assert errors == [Errors.UNKNOWN_SERVER_ERROR] * 2


@pytest.mark.mechanism("R05")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["t", "n" * 126, "n" * 127, "n" * 249, "ü" * 63])
def test_the_response_can_be_read_in_every_version(version: int, name: str) -> None:
    """Also with counts and names whose length takes two bytes."""
    bench = DataBench()
    handler = handler_of(bench)
    request = bench.request(to_t(0), version)
    for count in (1, 2, 126, 127, 200):
        partitions = [TopicIdPartition(T, name, 2**31 - 1 - index) for index in range(count)]
        results = {one: ProduceResult(Errors.NONE, 2**62 - one.partition, 1700, 5) for one in partitions}
        encoded = handler._response(request, results, 30).encode(version)
        response = ProduceResponse.decode(encoded, version)
        (topic,) = response.responses
        by_id = version >= TOPIC_IDS
        assert (topic.name, topic.topic_id) == (("", T) if by_id else (name, ZERO_UUID))
        assert [(found.index, found.error_code, found.base_offset) for found in topic.partition_responses] == [
            (one.partition, 0, 2**62 - one.partition) for one in partitions
        ]
        assert {found.log_append_time_ms for found in topic.partition_responses} == {1700}
        assert response.throttle_time_ms == 30


# ------------------------------------------------------------------------------------------- network threads


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("topics", "partitions"), [(1, 49_000), (24_000, 1), (200, 200)])
def test_a_request_with_many_partitions_is_handed_over_before_it_is_decoded(
    version: int, topics: int, partitions: int
) -> None:
    data = [PartitionProduceData(index=0) for _ in range(partitions)]
    body = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", topic_id=T, partition_data=data)] * topics)
    bench = DataBench()
    request = bench.request(body, version)
    handed_over: list[Request] = []
    local = RequestLocal(lambda *_: None, handed_over.extend)
    local.request = request
    handler_of(bench).produce(request, local)
    assert handed_over == [request]
    assert request._body is None
    assert request.buffer is not None, "the bulk lane has to decode it"
    bench.handle(handler_of(bench), request)
    assert set(codes(bench.answer(request)).values()) == {Errors.INVALID_RECORD}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_network_thread_appends_to_a_usual_number_of_partitions(version: int) -> None:
    bench = DataBench()
    request = bench.request(to_t(0, 1), version)
    local = RequestLocal(lambda *_: None, lambda _: pytest.fail("handed over"))
    local.request = request
    handler_of(bench).produce(request, local)
    assert [str(partition) for partition in bench.replicas.appended] == ["t-0", "t-1"]


# ---------------------------------------------------------------------------------------------------- acks=0


@pytest.mark.mechanism("R06")
def test_without_acks_nothing_is_sent_and_the_connection_reads_on() -> None:
    bench = DataBench(Quotas())
    assert bench.quotas is not None
    request = bench.dispatch(handler_of(bench), to(("t", 0), acks=0), 12)
    assert [response.kind for response in bench.responses(request)] == [NO_OP]
    assert bench.quotas.request.exempt == [request]
    assert list(bench.replicas.appended) == [TopicIdPartition(T, "t", 0)]


@pytest.mark.mechanism("R06")
@pytest.mark.parametrize(
    "body", [to(("t", 0), ("nope", 0), acks=0), to(("t", 1), acks=0), to(("t", 0), ("t", 1, bytes(40)), acks=0)]
)
def test_without_acks_an_error_ends_the_connection(body: ProduceRequest, caplog: pytest.LogCaptureFixture) -> None:
    bench = DataBench()
    bench.replicas.produce_results["t-1"] = ProduceResult(Errors.NOT_LEADER_OR_FOLLOWER)
    with caplog.at_level(logging.INFO):
        request = bench.dispatch(handler_of(bench), body, 12)
    assert not bench.is_answered(request)
    assert bench.was_closed(request)
    assert sum(bench.errors_counted("Produce").values()) == 1
    assert [record for record in caplog.records if record.levelno == logging.INFO]


@pytest.mark.mechanism("R06")
def test_it_is_said_why_a_connection_was_ended(caplog: pytest.LogCaptureFixture) -> None:
    bench = DataBench()
    with caplog.at_level(logging.INFO):
        bench.dispatch(handler_of(bench), to(("t", 0), ("nope", 3), acks=0), 12)
    assert "nope-3: UNKNOWN_TOPIC_OR_PARTITION" in caplog.text
    assert "t-0" not in caplog.text


@pytest.mark.mechanism("R06")
def test_without_acks_the_request_quota_is_not_enforced_but_bandwidth_is() -> None:
    bench = DataBench(Quotas(request=1000))
    assert bench.quotas is not None
    bench.dispatch(handler_of(bench), to(("t", 0), acks=0), 12)
    assert bench.quotas.request.throttled == []
    bench = DataBench(Quotas(request=1000, produce=300))
    assert bench.quotas is not None
    request = bench.dispatch(handler_of(bench), to(("t", 0), acks=0), 12)
    assert bench.quotas.produce.throttled == [300]
    assert {response.kind for response in bench.responses(request)} == {START_THROTTLING, NO_OP}


# ---------------------------------------------------------------------------------------------------- quotas


@pytest.mark.mechanism("R11")
@pytest.mark.parametrize(("bandwidth", "request_ms"), [(300, 100), (100, 300), (300, 300), (300, 0), (0, 300)])
def test_the_larger_throttle_time_counts(bandwidth: int, request_ms: int) -> None:
    bench = DataBench(Quotas(produce=bandwidth, request=request_ms))
    quotas = bench.quotas
    assert quotas is not None
    request = bench.dispatch(handler_of(bench), to(("t", 0)), 12)
    assert bench.answer(request).throttle_time_ms == 300
    assert request.api_throttle_time_ms == 300
    by_bandwidth = bandwidth > request_ms
    assert quotas.produce.throttled == ([300] if by_bandwidth else [])
    assert quotas.request.throttled == ([] if by_bandwidth else [(request, 300)])
    assert quotas.produce.recorded == [request.size]
    assert [response.kind for response in bench.responses(request)] == [START_THROTTLING, SEND]


def test_the_first_request_of_a_connection_waits_while_its_entity_is_throttled() -> None:
    bench = DataBench(Quotas())
    quota = bench.quotas.produce if bench.quotas else None
    assert quota is not None
    quota.wait_ms = 700
    handler = handler_of(bench)
    request = bench.dispatch(handler, to(("t", 0)), 12)
    request.handler_done(bench.clock.nanoseconds)  # the buffer is given back
    assert bench.responses(request) == []
    assert quota.recorded == [], "nothing is charged, because nothing is appended yet"
    assert quota.held is not None
    (resume,) = quota.held
    resume()
    item = bench.channel.receive_request(0)
    assert isinstance(item, CallbackRequest)
    item.callback(bench.local)
    assert codes(bench.answer(request)) == {"t-0": Errors.NONE}
    assert quota.recorded == [request.size]
    assert len(quota.held) == 1, "nobody waits twice"


def test_too_many_that_wait_lose_their_connection(caplog: pytest.LogCaptureFixture) -> None:
    bench = DataBench(Quotas())
    quota = bench.quotas.produce if bench.quotas else None
    assert quota is not None
    quota.wait_ms = 700
    quota.held = None
    request = bench.dispatch(handler_of(bench), to(("t", 0)), 12)
    assert [response.kind for response in bench.responses(request)] == [CLOSE_CONNECTION]
    assert quota.recorded == []
    assert "too many requests wait" in caplog.text


@pytest.mark.mechanism("R11")
def test_within_the_quotas_nobody_is_held_back() -> None:
    bench = DataBench(Quotas())
    request = bench.dispatch(handler_of(bench), to(("t", 0)), 12)
    assert [response.kind for response in bench.responses(request)] == [SEND]
    assert bench.answer(request).throttle_time_ms == 0
