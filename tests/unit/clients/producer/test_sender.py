"""The I/O thread, turn by turn, on a mock clock."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest

from barnabas.clients.producer.errors import BufferExhaustedError
from barnabas.clients.producer.internals.future_record_metadata import FutureRecordMetadata
from barnabas.clients.producer.kafka_producer import KafkaProducer
from barnabas.clients.testing import Fate, Handled, ScriptedCluster
from barnabas.common.errors import (
    BarnabasError,
    ClusterAuthorizationError,
    Errors,
    InvalidRecordError,
    KafkaTimeoutError,
    NetworkError,
    RecordTooLargeError,
    TopicAuthorizationError,
    UnsupportedVersionError,
)
from barnabas.common.identifiers import Uuid
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

PLAIN: dict[str, Any] = {"enable_idempotence": False, "linger_ms": 0}


def settle(cluster: ScriptedCluster, producer: KafkaProducer, *futures: FutureRecordMetadata) -> None:
    cluster.run_until(producer, lambda: all(future.done() for future in futures))
    assert producer.accumulator.pool.available_memory() == producer.accumulator.pool.total_memory


@pytest.mark.mechanism("P08")
def test_one_request_for_each_node_with_all_its_partitions() -> None:
    cluster = ScriptedCluster({"t": 4, "u": 1}, nodes=2)
    producer = cluster.producer(**PLAIN)
    futures = [producer.send("t", b"%d" % index, partition=index) for index in range(4)]
    futures.append(producer.send("u", b"u"))
    settle(cluster, producer, *futures)
    requests: list[ProduceRequest] = cluster.requests(ApiKey.PRODUCE)
    assert len(requests) == 2
    sizes = sorted(sum(len(topic.partition_data) for topic in request.topic_data) for request in requests)
    assert sizes == [2, 3]
    assert {request.acks for request in requests} == {-1}
    assert [cluster.values("t", index) for index in range(4)] == [[b"0"], [b"1"], [b"2"], [b"3"]]


@pytest.mark.mechanism("P08")
def test_an_error_that_passes_is_tried_again() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(**PLAIN)
    cluster.fail_next(ApiKey.PRODUCE, Errors.NOT_ENOUGH_REPLICAS, Errors.REQUEST_TIMED_OUT)
    before = cluster.clock.hi_res_milliseconds()
    future = producer.send("t", b"v")
    settle(cluster, producer, future)
    assert future.result(0).offset == 0
    assert len(cluster.requests(ApiKey.PRODUCE)) == 3
    assert cluster.clock.hi_res_milliseconds() - before >= 80 + 160, "back-off grows: 100 and 200 ms, less 20 %"
    assert producer.metric("record-retry-total") == 2


@pytest.mark.mechanism("P08")
def test_a_retry_is_sent_when_its_backoff_is_over() -> None:
    """The backoff has jitter. `ready` and `drain` once drew it separately: if `ready` found it over and `drain` did
    not, nothing woke the I/O thread until the next response or until ``request.timeout.ms``."""
    waits_ms = []
    for seed in range(40):
        cluster = ScriptedCluster({"t": 1})
        producer = cluster.producer(random=Random(seed), **PLAIN)
        settle(cluster, producer, producer.send("t", b"first"))
        cluster.fail_next(ApiKey.PRODUCE, Errors.COORDINATOR_LOAD_IN_PROGRESS)
        before_ms = cluster.clock.hi_res_milliseconds()
        settle(cluster, producer, producer.send("t", b"second"))
        waits_ms.append(cluster.clock.hi_res_milliseconds() - before_ms)
        producer.close(0)
    assert all(80 <= wait_ms <= 200 for wait_ms in waits_ms), waits_ms


@pytest.mark.mechanism("P08", "P11")
def test_attempts_are_limited() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(retries=2, **PLAIN)
    cluster.fail_next(ApiKey.PRODUCE, *[Errors.NOT_ENOUGH_REPLICAS] * 3)
    future = producer.send("t", b"v")
    settle(cluster, producer, future)
    assert future.exception(0) is not None
    assert len(cluster.requests(ApiKey.PRODUCE)) == 3


@pytest.mark.mechanism("P08")
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Errors.TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationError),
        (Errors.CLUSTER_AUTHORIZATION_FAILED, ClusterAuthorizationError),
        (Errors.MESSAGE_TOO_LARGE, RecordTooLargeError),
        (Errors.INVALID_RECORD, InvalidRecordError),
    ],
)
def test_errors_that_do_not_pass(error: Errors, kind: type[Exception]) -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(**PLAIN)
    cluster.fail_next(ApiKey.PRODUCE, error)
    future = producer.send("t", b"one record alone")
    settle(cluster, producer, future)
    assert isinstance(future.exception(0), kind)
    assert len(cluster.requests(ApiKey.PRODUCE)) == 1
    assert producer.metric("record-error-total") == 1


@pytest.mark.mechanism("P08")
def test_a_batch_that_is_too_large_is_split_and_no_attempt_is_charged() -> None:
    cluster = ScriptedCluster({"t": 1}, max_message_bytes=400)
    producer = cluster.producer(batch_size=1_000, retries=0, **PLAIN)
    calls: list[int] = []
    futures = [
        producer.send("t", b"%02d" % index * 30, callback=lambda metadata, _: calls.append(metadata.offset))
        for index in range(12)
    ]
    settle(cluster, producer, *futures)
    assert cluster.values("t") == [b"%02d" % index * 30 for index in range(12)]
    assert [future.result(0).offset for future in futures] == calls == list(range(12))
    assert producer.metric("batch-split-total") >= 2, "once to batch.size, which was not enough, and then to half"


def batch_sizes(cluster: ScriptedCluster) -> list[int]:
    """Of everything that has arrived, in order."""
    return [
        len(data.records)
        for request in cluster.requests(ApiKey.PRODUCE)
        for topic in request.topic_data
        for data in topic.partition_data
    ]


@pytest.mark.mechanism("P05")
@pytest.mark.parametrize("idempotent", [True, False])
def test_what_waits_for_its_turn_is_sent_in_few_large_batches(idempotent: bool) -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(
        batch_size=500, batch_max_size=5_000, max_in_flight_requests_per_connection=2, enable_idempotence=idempotent
    )
    settle(cluster, producer, producer.send("t", b"warm"))
    cluster.fate_of = lambda _: Fate(delay_ms=100)
    values = [b"%03d" % index * 20 for index in range(200)]
    futures = []
    for index, value in enumerate(values):
        futures.append(producer.send("t", value))
        if index in {7, 15}:
            producer.sender.run_once()
    settle(cluster, producer, *futures)
    assert cluster.values("t") == [b"warm", *values]
    assert [future.result(0).offset for future in futures] == list(range(1, 201))
    sizes = batch_sizes(cluster)[1:]
    assert max(sizes[:2]) < 700, "there was a way for them: nothing is gained by waiting, and nothing waits"
    assert min(sizes[2:4]) > 4_500, "while two were in flight"
    assert max(sizes) <= 5_000
    assert len(sizes) == 5
    assert producer.metric("batch-size-max") == max(sizes)


@pytest.mark.mechanism("P08")
@pytest.mark.parametrize("idempotent", [True, False])
def test_a_topic_with_a_low_limit_gets_one_large_batch_and_no_more(idempotent: bool) -> None:
    cluster = ScriptedCluster({"t": 1, "u": 1}, max_message_bytes=1_500)
    cluster.max_message_bytes_by_topic["u"] = 1_048_588
    producer = cluster.producer(batch_size=500, batch_max_size=5_000, linger_ms=0, enable_idempotence=idempotent)
    settle(cluster, producer, producer.send("t", b"warm"), producer.send("u", b"warm"))
    values = [b"%03d" % index * 20 for index in range(120)]
    futures = [producer.send("t", value) for value in values[:60]]
    settle(cluster, producer, *futures)
    assert producer.metric("batch-split-total") == 1
    seen = len(batch_sizes(cluster))
    futures += [producer.send("t", value) for value in values[60:]]
    settle(cluster, producer, *futures)
    assert cluster.values("t") == [b"warm", *values]
    assert producer.metric("batch-split-total") == 1
    assert max(batch_sizes(cluster)[seen:]) <= 500
    settle(cluster, producer, *[producer.send("u", value) for value in values[:60]])
    assert batch_sizes(cluster)[-1] > 4_000


@pytest.mark.mechanism("P08")
def test_a_new_leader_is_found() -> None:
    cluster = ScriptedCluster({"t": 1}, nodes=2)
    producer = cluster.producer(**PLAIN)
    settle(cluster, producer, producer.send("t", b"0"))
    metadata_requests = len(cluster.requests(ApiKey.METADATA))
    cluster.move_leader("t", 0, to=2)
    before = cluster.clock.hi_res_milliseconds()
    future = producer.send("t", b"1")
    settle(cluster, producer, future)
    assert [handled.node_id for handled in cluster.handled if handled.header.api_key is ApiKey.PRODUCE] == [1, 1, 2]
    assert cluster.clock.hi_res_milliseconds() - before < 80, "the answer told who leads now, so nobody waits"
    cluster.run_until(producer, lambda: len(cluster.requests(ApiKey.METADATA)) > metadata_requests)


@pytest.mark.mechanism("P08")
def test_stale_metadata_is_asked_for_again() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(**PLAIN)
    settle(cluster, producer, producer.send("t", b"0"))
    asked = len(cluster.requests(ApiKey.METADATA))
    cluster.fail_next(ApiKey.PRODUCE, Errors.KAFKA_STORAGE_ERROR)
    before = cluster.clock.hi_res_milliseconds()
    settle(cluster, producer, producer.send("t", b"1"))
    # The batch goes out again after a back-off, and so does the request: either may be the first.
    cluster.run_until(producer, lambda: len(cluster.requests(ApiKey.METADATA)) == asked + 1)
    assert cluster.clock.hi_res_milliseconds() - before < 1_000


@pytest.mark.mechanism("P08")
def test_without_a_leader_metadata_is_asked_for_until_there_is_one() -> None:
    cluster = ScriptedCluster({"t": 2}, nodes=2)
    producer = cluster.producer(**PLAIN)
    cluster.stop(2)
    future = producer.send("t", b"v", partition=1)
    for _ in range(30):
        producer.sender.run_once()
    assert not future.done()
    cluster.start(2)
    settle(cluster, producer, future)


@pytest.mark.mechanism("P08")
def test_a_lost_connection_is_no_loss_of_records() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(**PLAIN)
    cluster.fates.append(Fate(lose_request=True))
    future = producer.send("t", b"v")
    settle(cluster, producer, future)
    assert cluster.values("t") == [b"v"]


def test_without_retries_a_lost_connection_is_an_error() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(retries=0, **PLAIN)
    cluster.fates.append(Fate(lose_request=True))
    future = producer.send("t", b"v")
    settle(cluster, producer, future)
    error = future.exception(0)
    assert isinstance(error, NetworkError)
    assert "Disconnected from node 1" in str(error)


@pytest.mark.mechanism("P11")
def test_the_request_timeout_and_the_delivery_deadline() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(request_timeout_ms=100, delivery_timeout_ms=1_000, **PLAIN)
    cluster.fate_of = lambda handled: Fate(delay_ms=10_000 * (handled.header.api_key is ApiKey.PRODUCE))
    before = cluster.clock.hi_res_milliseconds()
    future = producer.send("t", b"v")
    cluster.run_until(producer, future.done)
    error = future.exception(0)
    assert isinstance(error, KafkaTimeoutError)
    assert "Expiring 1 record(s) for t-0:" in str(error)
    assert "has passed since batch creation" in str(error)
    waited = cluster.clock.hi_res_milliseconds() - before
    assert 1_000 <= waited <= 1_110
    assert len(cluster.requests(ApiKey.PRODUCE)) > 2, "each attempt has its own, shorter limit"


@pytest.mark.mechanism("P11")
def test_a_delivery_time_out_names_the_last_error() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(request_timeout_ms=100, delivery_timeout_ms=1_000, **PLAIN)
    # After 0, 100, 300 and 700 ms; the next attempt would be too late.
    cluster.fail_next(ApiKey.PRODUCE, *[Errors.KAFKA_STORAGE_ERROR] * 4)
    future = producer.send("t", b"v")
    cluster.run_until(producer, future.done)
    assert str(future.exception(0)).endswith(". The last error was KAFKA_STORAGE_ERROR from node 1")
    settle(cluster, producer, producer.send("t", b"v"))
    assert not producer.accumulator.errors.last, "it works again"


@pytest.mark.mechanism("P11")
def test_a_send_without_memory_names_the_last_error() -> None:
    """A full disk, say: the application cannot know otherwise why its records are not sent."""
    cluster = ScriptedCluster({"t": 3})
    producer = cluster.producer(batch_size=1_000, buffer_memory=3_000, max_block_ms=0, **PLAIN)
    settle(cluster, producer, *[producer.send("t", b"v", partition=partition) for partition in range(3)])
    cluster.fail_next(ApiKey.PRODUCE, *[Errors.KAFKA_STORAGE_ERROR] * 20)
    for partition in range(3):
        producer.send("t", bytes(900), partition=partition)
    cluster.run_until(producer, lambda: len(producer.accumulator.errors.last) == 3)
    error = producer.send("t", bytes(900), partition=0).exception(0)
    assert isinstance(error, BufferExhaustedError)
    assert str(error).startswith("Failed to allocate ")
    assert "Batches wait to be sent again: the last error of t-" in str(error)
    assert str(error).endswith(" was KAFKA_STORAGE_ERROR from node 1 (and 2 more partitions)")
    producer.close(0)


@pytest.mark.mechanism("P11")
def test_a_batch_that_never_left_has_the_same_deadline() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(request_timeout_ms=100, delivery_timeout_ms=1_000, **PLAIN)
    cluster.stop(1)
    future = producer.send("t", b"v")
    settle(cluster, producer, future)
    assert isinstance(future.exception(0), KafkaTimeoutError)
    assert producer.accumulator.pool.available_memory() == producer.accumulator.pool.total_memory


def test_memory_of_an_expired_batch_is_kept_until_the_network_is_done_with_it() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(request_timeout_ms=2_000, delivery_timeout_ms=2_000, **PLAIN)
    settle(cluster, producer, producer.send("t", b"0"))
    cluster.fates.append(Fate(delay_ms=2_500))
    cluster.clock.advance(1)
    future = producer.send("t", b"1")
    producer.sender.run_once()
    cluster.clock.advance(1_999)
    cluster.run_until(producer, future.done)
    assert isinstance(future.exception(0), KafkaTimeoutError)
    pool = producer.accumulator.pool
    assert not producer.accumulator.has_incomplete
    cluster.run_until(producer, lambda: producer.client.in_flight_request_count() == 0)
    assert pool.available_memory() == pool.total_memory


def moved_while_in_flight(max_in_flight: int) -> tuple[ScriptedCluster, KafkaProducer, list[FutureRecordMetadata]]:
    """A leader moves while the first of three batches is in flight, and that one is lost on the way."""
    cluster = ScriptedCluster({"t": 1}, nodes=2)
    producer = cluster.producer(max_in_flight_requests_per_connection=max_in_flight, batch_size=1, **PLAIN)
    settle(cluster, producer, producer.send("t", b"warm"))
    cluster.fates.append(Fate(delay_ms=300, lose_request=True))
    futures = [producer.send("t", b"0")]
    while len(cluster.fates):
        producer.sender.run_once()
    cluster.move_leader("t", 0, to=2)
    producer.metadata.request_update()
    futures += [producer.send("t", b"1"), producer.send("t", b"2")]
    return cluster, producer, futures


@pytest.mark.mechanism("P10")
def test_one_in_flight_keeps_the_order_without_idempotence() -> None:
    """The partition is muted while a batch is in flight: what fails goes out again before what follows it."""
    cluster, producer, futures = moved_while_in_flight(1)
    queue = producer.accumulator.queues.find(TopicPartition("t", 0))
    assert queue is not None
    assert queue.muted
    settle(cluster, producer, *futures)
    assert cluster.values("t") == [b"warm", b"0", b"1", b"2"]
    assert not queue.muted


def test_several_in_flight_without_idempotence_can_be_reordered() -> None:
    """What the mechanism is for: without it, this is what happens."""
    cluster, producer, futures = moved_while_in_flight(5)
    settle(cluster, producer, *futures)
    assert cluster.values("t") == [b"warm", b"1", b"2", b"0"]


@pytest.mark.mechanism("P15")
def test_a_throttled_producer_holds_back() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(**PLAIN)
    cluster.throttle_time_ms = 700
    settle(cluster, producer, producer.send("t", b"0"))
    cluster.throttle_time_ms = 0
    before = cluster.clock.hi_res_milliseconds()
    future = producer.send("t", b"1")
    settle(cluster, producer, future)
    assert cluster.clock.hi_res_milliseconds() - before >= 700
    assert producer.metric("produce-throttle-time-max") == 700


def test_acks_0_expects_no_response() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(acks=0, linger_ms=0)
    future = producer.send("t", b"v")
    settle(cluster, producer, future)
    assert future.result(0).offset == -1
    assert cluster.values("t") == [b"v"]


def test_single_records_are_to_blame() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(**PLAIN)

    def refuse(handled: Handled) -> ProduceResponse:
        assert isinstance(handled.body, ProduceRequest)
        row = PartitionProduceResponse(
            error_code=Errors.INVALID_RECORD,
            base_offset=-1,
            error_message="no good",
            record_errors=[
                BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="this one"),
                BatchIndexAndErrorMessage(batch_index=2),
            ],
        )
        topic = handled.body.topic_data[0]
        return ProduceResponse(
            responses=[TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[row])]
        )

    cluster.on_next(ApiKey.PRODUCE, refuse)
    futures = [producer.send("t", b"%d" % index) for index in range(3)]
    settle(cluster, producer, *futures)
    errors = [future.exception(0) for future in futures]
    assert [type(error) for error in errors] == [BarnabasError, InvalidRecordError, InvalidRecordError]
    assert [str(error) for error in errors[1:]] == ["this one", "no good"]


@pytest.mark.parametrize("highest", [12, 11, 9, 3])
def test_older_brokers(highest: int) -> None:
    cluster = ScriptedCluster({"t": 1}, versions={ApiKey.PRODUCE: (3, highest)})
    producer = cluster.producer(linger_ms=0)
    settle(cluster, producer, producer.send("t", b"v"))
    (handled,) = [one for one in cluster.handled if one.header.api_key is ApiKey.PRODUCE]
    assert handled.header.api_version == highest


def test_topic_ids_where_there_are_any() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(linger_ms=0)
    settle(cluster, producer, producer.send("t", b"v"))
    (request,) = cluster.requests(ApiKey.PRODUCE)
    assert request.topic_data[0].topic_id == cluster.topics["t"].topic_id
    old = ScriptedCluster({"t": 1}, versions={ApiKey.METADATA: (0, 9)})
    without = old.producer(linger_ms=0)
    settle(old, without, without.send("t", b"v"))
    (handled,) = [one for one in old.handled if one.header.api_key is ApiKey.PRODUCE]
    assert handled.header.api_version == 12, "by name, as no id is known"


def test_a_broker_that_is_too_old() -> None:
    cluster = ScriptedCluster({"t": 1}, versions={ApiKey.PRODUCE: (0, 2)})
    producer = cluster.producer(**PLAIN)
    future = producer.send("t", b"v")
    settle(cluster, producer, future)
    assert isinstance(future.exception(0), UnsupportedVersionError)


def test_a_response_that_leaves_a_partition_out() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(**PLAIN)
    cluster.on_next(ApiKey.PRODUCE, lambda _: ProduceResponse())
    future = producer.send("t", b"v")
    settle(cluster, producer, future)
    assert "does not include t-0" in str(future.exception(0))


def test_nothing_to_do_is_nothing_done() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(linger_ms=0)
    settle(cluster, producer, producer.send("t", b"v"))
    before, polls = cluster.clock.hi_res_milliseconds(), cluster.selector.polls
    for _ in range(10):
        producer.sender.run_once()
    assert cluster.selector.polls == polls + 10
    assert cluster.clock.hi_res_milliseconds() - before > 100_000, "it sleeps instead of turning round and round"


def test_a_thread_that_appends_wakes_once_in_a_turn() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(linger_ms=1_000, batch_size=200)
    settle(cluster, producer, producer.send("t", b"v"))
    before = cluster.selector.wakeups
    for _ in range(100):
        producer.send("t", b"v" * 20)
    assert cluster.selector.wakeups == before + 1
    producer.sender.run_once()
    assert not producer.sender.woken


@pytest.mark.mechanism("P05")
def test_a_batch_that_waits_wakes_nobody_by_growing() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(linger_ms=1_000, batch_size=200, batch_max_size=2_000)
    settle(cluster, producer, producer.send("t", b"v"))
    woken = []
    for _ in range(60):
        before = cluster.selector.wakeups
        producer.sender.woken = False  # as if there were turns in which it could not be sent
        producer.send("t", b"v" * 20)
        woken.append(cluster.selector.wakeups - before)
    assert woken[0] == 1, "linger begins"
    assert sum(woken[1:10]) == 1, "ready"
    assert sum(woken[10:]) == 0


def test_metrics_have_kafkas_names() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(linger_ms=0, client_id="me")
    settle(cluster, producer, producer.send("t", b"v"))
    names = {(name.group, name.name) for name in producer.metrics()}
    wanted = [
        "batch-size-avg",
        "batch-size-max",
        "batch-split-rate",
        "batch-split-total",
        "buffer-available-bytes",
        "buffer-exhausted-rate",
        "buffer-exhausted-total",
        "buffer-total-bytes",
        "bufferpool-wait-ratio",
        "bufferpool-wait-time-ns-total",
        "compression-rate-avg",
        "flush-time-ns-total",
        "metadata-age",
        "metadata-wait-time-ns-total",
        "produce-throttle-time-avg",
        "produce-throttle-time-max",
        "record-error-rate",
        "record-error-total",
        "record-queue-time-avg",
        "record-queue-time-max",
        "record-retry-rate",
        "record-retry-total",
        "record-send-rate",
        "record-send-total",
        "record-size-avg",
        "record-size-max",
        "records-per-request-avg",
        "request-latency-avg",
        "request-latency-max",
        "requests-in-flight",
        "txn-abort-time-ns-total",
        "txn-begin-time-ns-total",
        "txn-commit-time-ns-total",
        "txn-init-time-ns-total",
        "txn-send-offsets-time-ns-total",
        "waiting-threads",
    ]
    assert {("producer-metrics", name) for name in wanted} <= names
    topic = "byte-rate byte-total compression-rate record-error-rate record-error-total record-retry-rate "
    topic += "record-retry-total record-send-rate record-send-total"
    assert {("producer-topic-metrics", name) for name in topic.split()} <= names
    assert ("producer-node-metrics", "request-latency-avg") in names
    assert producer.metric("record-send-total") == 1
    assert producer.metric("record-send-total", "producer-topic-metrics", topic="t") == 1
    assert producer.metric("requests-in-flight") == 0
    assert producer.metric("metadata-age") >= 0
    with pytest.raises(KeyError):
        producer.metric("no-such-metric")


@pytest.mark.mechanism("P06", "P08")
def test_memory_of_a_response_comes_back_at_once_but_before_callbacks_that_may_need_it() -> None:
    cluster = ScriptedCluster({"t": 4})
    producer = cluster.producer(**PLAIN)
    pool = producer.accumulator.pool
    released: list[int] = []
    give_back = pool.deallocate_all

    def deallocate_all(sizes: Iterable[int]) -> None:
        sizes = list(sizes)
        released.append(len(sizes))
        give_back(sizes)

    pool.deallocate_all = deallocate_all  # type: ignore[method-assign]
    free: list[int] = []
    futures = [producer.send("t", b"v", partition=index) for index in range(3)]
    futures.append(producer.send("t", b"v", partition=3, callback=lambda *_: free.append(pool.available_memory())))
    settle(cluster, producer, *futures)
    assert released == [3, 1]
    assert free == [pool.total_memory - 16_384]


@pytest.mark.mechanism("P08")
@pytest.mark.parametrize("seed", range(40))
def test_the_short_way_of_a_response_and_the_long_one_do_the_same(seed: int) -> None:
    """Answers to one batch, as they should be and as they should not: the same log, futures, metrics and memory."""

    def run(short: bool) -> list[object]:
        random = Random(seed)
        cluster = ScriptedCluster({"t": 2, "u": 1})
        taken: list[bool] = []
        producer = cluster.producer(
            linger_ms=0,
            retries=3,
            enable_idempotence=random.random() < 0.7,
            max_in_flight_requests_per_connection=random.choice([1, 5]),
            delivery_timeout_ms=40_000,
        )
        complete_single = producer.sender._complete_single

        def noted(*args: Any) -> bool:
            taken.append(short and complete_single(*args))
            return taken[-1]

        producer.sender._complete_single = noted  # type: ignore[method-assign,assignment]

        def answer(handled: Handled) -> ProduceResponse:
            assert isinstance(handled.body, ProduceRequest)
            made = cluster._produce(handled, handled.body, Errors.NONE)
            (topic,) = made.responses
            (row,) = topic.partition_responses
            change = random.randrange(10)
            if change == 0:
                row.index += 1
            elif change == 1:
                topic.topic_id = Uuid(bytes(15) + b"\x09")
            elif change == 2:
                topic.partition_responses.append(row)
            elif change == 3:
                made.responses = []
            elif change == 4:
                row.error_code = random.choice([Errors.NOT_ENOUGH_REPLICAS, Errors.INVALID_RECORD])
            elif change == 5:
                topic.partition_responses.append(PartitionProduceResponse(index=row.index + 1))
            return made

        outcomes: list[object] = []
        for number in range(12):
            cluster.on_next(ApiKey.PRODUCE, answer)
            where = random.choice([("t", 0), ("t", 1), ("u", 0)])
            called: list[object] = []

            def callback(metadata: object, error: object, called: list[object] = called) -> None:
                called.append((metadata, repr(error)))

            future = producer.send(
                where[0], b"%d" % number, partition=where[1], callback=random.choice([callback, None])
            )
            cluster.run_until(producer, future.done)
            error = future.exception(0)
            outcomes.append([where, repr(error) if error else future.result(0), called])
            outcomes.append([producer.accumulator.pool.available_memory(), len(producer.sender._in_flight_batches)])
        settle(cluster, producer)
        outcomes += [cluster.values("t", 0), cluster.values("t", 1), cluster.values("u", 0)]
        outcomes += [
            producer.metric(name) for name in ("record-send-total", "record-retry-total", "record-error-total")
        ]
        assert any(taken) is (short and producer.config.max_in_flight > 1)
        return outcomes

    assert run(short=True) == run(short=False)
