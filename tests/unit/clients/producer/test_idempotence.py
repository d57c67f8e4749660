"""Sequence numbers: once, and in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.clients.common.metadata import LeaderIdAndEpoch
from barnabas.clients.producer.errors import TransactionError
from barnabas.clients.producer.internals.future_record_metadata import FutureRecordMetadata
from barnabas.clients.producer.internals.partition_result import PartitionResult
from barnabas.clients.producer.internals.producer_batch import ProducerBatch, ProducerIdAndEpoch
from barnabas.clients.producer.internals.transaction_coordinators import CoordinatorType
from barnabas.clients.producer.internals.transaction_manager import MAX_EPOCH, TransactionManager
from barnabas.clients.producer.kafka_producer import KafkaProducer
from barnabas.clients.testing import Fate, ScriptedCluster
from barnabas.common.errors import ClusterAuthorizationError, Errors, KafkaTimeoutError
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.records.batch import RecordBatch
from barnabas.records.builder import RecordBatchBuilder

pytestmark = pytest.mark.mechanism("P09")

T0 = TopicPartition("t", 0)


def made(**settings: Any) -> tuple[ScriptedCluster, KafkaProducer, TransactionManager]:
    cluster = ScriptedCluster({"t": 2}, nodes=2)
    producer = cluster.producer(linger_ms=0, batch_size=1, **settings)
    manager = producer.transaction_manager
    assert manager is not None
    return cluster, producer, manager


def send(producer: KafkaProducer, *values: bytes) -> list[FutureRecordMetadata]:
    """Each in a batch of its own, which takes some bytes: the room for a record is reckoned generously."""
    return [producer.send("t", value.ljust(30), partition=0) for value in values]


def stored(cluster: ScriptedCluster) -> list[bytes]:
    return [(value or b"").rstrip() for value in cluster.values("t")]


def settle(cluster: ScriptedCluster, producer: KafkaProducer, futures: list[FutureRecordMetadata]) -> None:
    cluster.run_until(producer, lambda: all(future.done() for future in futures))
    cluster.run_until(producer, lambda: producer.client.in_flight_request_count() == 0)


def headers(cluster: ScriptedCluster) -> list[tuple[int, int]]:
    """Epoch and base sequence of each batch that has arrived."""
    found = []
    for request in cluster.requests(ApiKey.PRODUCE):
        batch = RecordBatch(request.topic_data[0].partition_data[0].records)
        found.append((batch.producer_epoch, batch.base_sequence))
    return found


def test_an_id_is_asked_for_once_and_sequences_count_records() -> None:
    cluster, producer, manager = made()
    settle(cluster, producer, send(producer, b"0", b"1", b"2"))
    (request,) = cluster.requests(ApiKey.INIT_PRODUCER_ID)
    assert isinstance(request, InitProducerIdRequest)
    assert (request.transactional_id, request.transaction_timeout_ms) == (None, 2**31 - 1)
    assert headers(cluster) == [(0, 0), (0, 1), (0, 2)]
    assert manager.partitions.last_acked_sequence(T0) == 2
    assert manager.producer_id_and_epoch == ProducerIdAndEpoch(1001, 0)


def test_a_turn_leaves_out_what_is_about_identity_only_if_there_is_nothing_to_do_about_it() -> None:
    cluster, producer, manager = made()

    def quiet() -> bool:
        return manager.is_quiet

    assert not quiet()
    settle(cluster, producer, send(producer, b"0"))
    assert quiet()
    manager.request_idempotent_epoch_bump_for_partition(T0)
    assert not quiet()
    settle(cluster, producer, send(producer, b"1"))
    assert quiet()
    batch = ProducerBatch(T0, RecordBatchBuilder(max_size=100), 0, producer.accumulator.estimator)
    batch.builder.append(0, None, b"v")
    manager.partitions.mark_sequence_unresolved(batch)
    assert not quiet()
    producer.sender.run_once()
    cluster.run_until(producer, lambda: manager.is_quiet)
    changes: list[Callable[[TransactionManager], object]] = [
        lambda manager: setattr(manager.requests, "in_flight_correlation_id", 1),
        lambda manager: manager.lookup_coordinator(CoordinatorType.TRANSACTION, "x"),
        lambda manager: manager.transaction.new_partitions.update({T0: None}),
        lambda manager: manager.partitions.sequence_questions.update({T0: None}),  # type: ignore[dict-item]
        lambda manager: manager.set_producer_id_and_epoch(ProducerIdAndEpoch(-1, -1)),
        lambda manager: manager.transition_to_fatal_error(KafkaTimeoutError("x")),
    ]
    for change in changes:
        cluster, producer, manager = made()
        settle(cluster, producer, send(producer, b"0"))
        assert quiet()
        change(manager)
        assert not quiet()


def test_a_quiet_turn_asks_for_nothing_that_is_about_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, producer, manager = made()
    settle(cluster, producer, send(producer, b"0"))
    asked: list[str] = []
    for name in ("maybe_resolve_sequences", "bump_idempotent_epoch_and_reset_id_if_needed", "next_request"):
        monkeypatch.setattr(manager, name, lambda *_, name=name, **_more: asked.append(name))
    settle(cluster, producer, send(producer, b"1"))
    assert asked == []
    assert stored(cluster) == [b"0", b"1"]


def test_no_batch_goes_out_without_an_id() -> None:
    cluster, producer, _ = made()
    cluster.fail_next(ApiKey.INIT_PRODUCER_ID, *[Errors.COORDINATOR_LOAD_IN_PROGRESS] * 3)
    futures = send(producer, b"v")
    settle(cluster, producer, futures)
    kinds = [handled.header.api_key for handled in cluster.handled]
    assert kinds.index(ApiKey.PRODUCE) > max(
        index for index, kind in enumerate(kinds) if kind is ApiKey.INIT_PRODUCER_ID
    )
    assert len(cluster.requests(ApiKey.INIT_PRODUCER_ID)) == 4


def test_a_response_that_is_lost_makes_no_duplicate() -> None:
    cluster, producer, _ = made()
    settle(cluster, producer, send(producer, b"0"))
    cluster.fates.append(Fate(lose_response=True))
    futures = send(producer, b"1", b"2")
    settle(cluster, producer, futures)
    assert stored(cluster) == [b"0", b"1", b"2"]
    assert futures[0].result(0).offset == 1


def test_five_in_flight_stay_in_order() -> None:
    """The first of five is refused, and so are those behind it, which leave a gap: all go out again, one by one."""
    cluster, producer, _ = made()
    settle(cluster, producer, send(producer, b"w"))
    most = 0

    def fate_of(_: object) -> Fate:
        nonlocal most
        most = max(most, producer.client.in_flight_request_count("1"))
        return Fate(delay_ms=5)

    cluster.fate_of = fate_of
    cluster.fail_next(ApiKey.PRODUCE, Errors.NOT_ENOUGH_REPLICAS)
    futures = send(producer, *(b"%d" % index for index in range(8)))
    settle(cluster, producer, futures)
    assert most == 5
    assert stored(cluster) == [b"w", *(b"%d" % index for index in range(8))]
    assert [future.result(0).offset for future in futures] == list(range(1, 9))
    assert {epoch for epoch, _ in headers(cluster)} == {0}


def test_what_is_sent_again_goes_back_in_the_order_of_sequences() -> None:
    cluster, producer, _ = made(retry_backoff_ms=100)
    settle(cluster, producer, send(producer, b"w"))
    cluster.fate_of = lambda _: Fate(delay_ms=5)
    futures = send(producer, *(b"%d" % index for index in range(5)))
    cluster.run_until(producer, lambda: producer.client.in_flight_request_count("1") == 4)
    producer.sender.wakeup()  # the turn of the fifth would wait for a response otherwise
    producer.sender.run_once()
    assert producer.client.in_flight_request_count("1") == 5
    cluster.break_connections(1)
    queue = producer.accumulator.queues.find(T0)
    assert queue is not None
    cluster.run_until(producer, lambda: len(queue.batches) == 5)
    assert [batch.base_sequence for batch in queue.batches] == [1, 2, 3, 4, 5]
    while queue.batches:
        producer.sender.run_once()
        assert len(producer.sender._in_flight_batches.of(T0)) <= 1, "one by one, until they are through"
    settle(cluster, producer, futures)
    assert stored(cluster) == [b"w", *(b"%d" % index for index in range(5))]


def test_a_batch_that_is_given_up_is_a_gap_and_the_epoch_is_raised() -> None:
    """The broker never got the batch whose time was over. What follows must not wait for it for ever."""
    cluster, producer, manager = made(request_timeout_ms=100, delivery_timeout_ms=300, retry_backoff_ms=0)
    settle(cluster, producer, send(producer, b"0"))
    cluster.fate_of = lambda handled: Fate(lose_request=handled.header.api_key is ApiKey.PRODUCE)
    lost = send(producer, b"lost")
    cluster.run_until(producer, lost[0].done)
    assert isinstance(lost[0].exception(0), KafkaTimeoutError)
    cluster.fate_of = None
    futures = send(producer, b"1", b"2")
    settle(cluster, producer, futures)
    assert stored(cluster) == [b"0", b"1", b"2"]
    assert manager.producer_id_and_epoch.epoch == 1
    assert headers(cluster)[-2:] == [(1, 0), (1, 1)], "counting starts over"


def test_nothing_new_is_drained_while_the_sequence_is_unresolved() -> None:
    cluster, producer, manager = made(request_timeout_ms=1_000, delivery_timeout_ms=1_000)
    settle(cluster, producer, send(producer, b"0"))
    cluster.fates.extend([Fate(delay_ms=990), Fate(delay_ms=995)])
    first = send(producer, b"1")
    producer.sender.run_once()
    cluster.clock.advance(500)
    second = send(producer, b"2")
    producer.sender.run_once()
    manager.partitions.mark_sequence_unresolved(manager.partitions.get_or_create(T0).in_flight[0])
    third = send(producer, b"3")
    sent = len(cluster.requests(ApiKey.PRODUCE))
    producer.sender.run_once()
    assert len(cluster.requests(ApiKey.PRODUCE)) == sent
    assert manager.partitions.unresolved_sequence(T0) is not None
    settle(cluster, producer, first + second + third)
    assert stored(cluster) == [b"0", b"1", b"2", b"3"]
    assert manager.producer_id_and_epoch.epoch == 0, "all was written after all: there was no gap"


def test_a_refused_batch_leaves_a_gap_too() -> None:
    cluster, producer, manager = made()
    settle(cluster, producer, send(producer, b"0"))
    cluster.fail_next(ApiKey.PRODUCE, Errors.INVALID_RECORD)
    futures = send(producer, b"bad", b"1")
    settle(cluster, producer, futures)
    assert futures[0].exception(0) is not None
    assert stored(cluster) == [b"0", b"1"]
    assert manager.producer_id_and_epoch.epoch == 1


def test_what_may_have_been_written_is_not_numbered_anew() -> None:
    """Two batches are written. The response to the first is lost, and it has no time left to ask again; if that raised
    the epoch at once, the second would be written once more."""
    cluster, producer, manager = made()
    settle(cluster, producer, send(producer, b"0"))
    cluster.fate_of = lambda _: Fate(delay_ms=50)
    futures = send(producer, b"1", b"2")
    in_flight = manager.partitions.get_or_create(T0).in_flight
    cluster.run_until(producer, lambda: len(in_flight) == 2)
    first = in_flight[0]
    first.created_ms -= 200_000
    now = cluster.clock.hi_res_milliseconds()
    producer.sender._completion.complete_batch(first, PartitionResult(Errors.REQUEST_TIMED_OUT), now)
    assert futures[0].exception(0) is not None
    assert manager.partitions.unresolved_sequence(T0) is not None
    cluster.break_connections(1)
    settle(cluster, producer, futures)
    assert stored(cluster) == [b"0", b"1", b"2"]
    assert futures[1].result(0).offset == 2


def test_epochs_run_out() -> None:
    cluster, producer, manager = made()
    settle(cluster, producer, send(producer, b"0"))
    manager.set_producer_id_and_epoch(ProducerIdAndEpoch(1001, MAX_EPOCH))
    manager.request_idempotent_epoch_bump_for_partition(T0)
    settle(cluster, producer, send(producer, b"1"))
    assert manager.producer_id_and_epoch == ProducerIdAndEpoch(1002, 0)
    assert stored(cluster) == [b"0", b"1"]


def test_the_broker_has_forgotten_the_producer() -> None:
    cluster, producer, manager = made()
    settle(cluster, producer, send(producer, b"0"))
    cluster.topics["t"].partitions[0].producers.clear()
    futures = send(producer, b"1")
    settle(cluster, producer, futures)
    assert stored(cluster) == [b"0", b"1"]
    assert manager.producer_id_and_epoch.epoch == 1


def test_other_partitions_go_on_with_the_old_epoch_until_nothing_is_in_flight() -> None:
    cluster, producer, manager = made()
    other = producer.send("t", b"a", partition=1)
    settle(cluster, producer, [other, *send(producer, b"0")])
    manager.request_idempotent_epoch_bump_for_partition(T0)
    futures = [*send(producer, b"1"), producer.send("t", b"b", partition=1)]
    settle(cluster, producer, futures)
    assert [record.producer_epoch for record in cluster.records("t", 0)] == [0, 1]
    assert [record.producer_epoch for record in cluster.records("t", 1)] == [0, 1]
    assert [record.sequence for record in cluster.records("t", 1)] == [0, 0]


def test_a_sixth_batch_waits_for_the_first() -> None:
    """The leader moves while the response to the first batch is missing. More than five later ones would make the
    broker forget it, and its repetition would be refused for ever."""
    cluster, producer, manager = made()
    settle(cluster, producer, send(producer, b"w"))
    cluster.idle_limit_ms = 100
    cluster.fates.append(Fate(delay_ms=20_000, lose_response=True))
    futures = send(producer, b"0")
    while cluster.fates:
        producer.sender.run_once()
    cluster.move_leader("t", 0, to=2)
    producer.metadata.update_partition_leadership({T0: LeaderIdAndEpoch(2, 1)}, [])
    futures += send(producer, *(b"%d" % index for index in range(1, 10)))
    cluster.run_until(producer, lambda: len(stored(cluster)) == 6)
    for _ in range(5):
        producer.sender.run_once()
    assert len(stored(cluster)) == 6
    settle(cluster, producer, futures)
    assert stored(cluster) == [b"w", *(b"%d" % index for index in range(10))]
    assert manager.producer_id_and_epoch.epoch == 0


def test_a_duplicate_that_the_broker_cannot_place_is_success() -> None:
    cluster, producer, _ = made()
    cluster.fail_next(ApiKey.PRODUCE, Errors.DUPLICATE_SEQUENCE_NUMBER)
    futures = send(producer, b"v")
    settle(cluster, producer, futures)
    assert futures[0].result(0).offset == -1


def test_sequences_wrap_around() -> None:
    cluster, producer, manager = made()
    settle(cluster, producer, send(producer, b"0"))
    entry = manager.partitions.get_or_create(T0)
    entry.next_sequence = 2**31 - 1
    entry.last_acked_sequence = 2**31 - 2
    state = cluster.topics["t"].partitions[0].producers[1001]
    state.batches[-1] = state.batches[-1]._replace(last_sequence=2**31 - 2)
    settle(cluster, producer, send(producer, b"1", b"2", b"3"))
    assert [sequence for _, sequence in headers(cluster)] == [0, 2**31 - 1, 0, 1]
    assert manager.partitions.last_acked_sequence(T0) == 1
    assert stored(cluster) == [b"0", b"1", b"2", b"3"]


def test_without_the_right_to_it_everything_fails_and_can_start_over() -> None:
    cluster, producer, _ = made()
    cluster.fail_next(ApiKey.INIT_PRODUCER_ID, Errors.CLUSTER_AUTHORIZATION_FAILED)
    futures = send(producer, b"v")
    settle(cluster, producer, futures)
    assert isinstance(futures[0].exception(0), ClusterAuthorizationError)
    later = send(producer, b"w")
    settle(cluster, producer, later)
    assert stored(cluster) == [b"w"]


def test_an_identity_that_is_refused_is_not_requested_without_a_pause() -> None:
    cluster, producer, _ = made()
    cluster.fail_next(ApiKey.INIT_PRODUCER_ID, *[Errors.CLUSTER_AUTHORIZATION_FAILED] * 100)
    started_ms = cluster.clock.hi_res_milliseconds()
    for _ in range(200):
        producer.sender.run_once()
        if cluster.clock.hi_res_milliseconds() - started_ms >= 1_000:
            break
    assert cluster.clock.hi_res_milliseconds() - started_ms >= 1_000, "it waits"
    assert 5 <= len(cluster.requests(ApiKey.INIT_PRODUCER_ID)) <= 11, "one in retry.backoff.ms"


def test_after_a_fatal_error_nothing_is_sent() -> None:
    cluster, producer, manager = made()
    cluster.fail_next(ApiKey.PRODUCE, Errors.CLUSTER_AUTHORIZATION_FAILED)
    futures = send(producer, b"0", b"1")
    settle(cluster, producer, futures)
    assert manager.machine.has_fatal_error
    assert all(future.exception(0) is not None for future in futures)
    with pytest.raises(TransactionError, match="error state"):
        producer.send("t", b"2", partition=0)
    pool = producer.accumulator.pool
    cluster.run_until(producer, lambda: not producer.accumulator.has_incomplete)
    assert pool.available_memory() == pool.total_memory


def test_the_first_batch_goes_alone_until_the_broker_knows_the_producer() -> None:
    """A broker without a memory of the producer would take the second one for the first."""
    cluster, producer, _ = made()
    cluster.fail_next(ApiKey.PRODUCE, Errors.NOT_LEADER_OR_FOLLOWER)
    values = [b"%d" % number for number in range(5)]
    settle(cluster, producer, send(producer, *values))
    assert headers(cluster) == [(0, 0), (0, 0), (0, 1), (0, 2), (0, 3), (0, 4)]
    assert stored(cluster) == values


def test_a_turn_after_which_the_node_takes_no_more_waits_for_a_response() -> None:
    cluster, producer, _ = made()
    clock = cluster.clock
    settle(cluster, producer, send(producer, b"w"))
    cluster.fate_of = lambda _: Fate(delay_ms=5)
    futures = send(producer, *(b"%d" % index for index in range(8)))
    started = clock.hi_res_milliseconds()
    for count in range(1, 5):
        producer.sender.run_once()
        assert producer.client.in_flight_request_count("1") == count
        assert clock.hi_res_milliseconds() == started, "there may be more for a node that takes more"
    producer.sender.run_once()
    assert clock.hi_res_milliseconds() == started + 5
    assert futures[0].done()
    settle(cluster, producer, futures)
    assert stored(cluster) == [b"w", *(b"%d" % index for index in range(8))]
