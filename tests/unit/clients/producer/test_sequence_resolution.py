"""A broker that has forgotten batches, and a producer that asks before it writes them again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from barnabas.clients.common.metadata import LeaderIdAndEpoch
from barnabas.clients.producer.internals.future_record_metadata import FutureRecordMetadata
from barnabas.clients.producer.internals.producer_batch import ProducerBatch
from barnabas.clients.producer.internals.sequence_resolution import MAX_TRIES, Verdict, verdict
from barnabas.clients.producer.internals.transaction_manager import TransactionManager
from barnabas.clients.producer.kafka_producer import KafkaProducer
from barnabas.clients.producer.record_metadata import RecordMetadata
from barnabas.clients.testing import Fate, Handled, ScriptedCluster
from barnabas.common.errors import Errors, KafkaTimeoutError, OutOfOrderSequenceError
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

pytestmark = pytest.mark.mechanism("P09")

T0 = TopicPartition("t", 0)
LAST = 2**31 - 1


@pytest.mark.parametrize(
    ("base", "last", "following", "known", "expected"),
    [
        (10, 19, 40, 29, Verdict.WRITTEN),
        (10, 19, 40, 39, Verdict.WRITTEN),
        (10, 19, 40, 25, Verdict.WRITTEN),
        (10, 19, 40, 40, Verdict.UNKNOWN),  # more than was ever sent
        (10, 19, 40, 19, Verdict.EXPECTED),
        (10, 19, 20, 19, Verdict.EXPECTED),
        (10, 19, 40, 9, Verdict.EXPECTED),
        (10, 19, 40, 8, Verdict.UNKNOWN),
        (10, 19, 40, 15, Verdict.UNKNOWN),  # a part of a batch
        (10, 19, 40, -1, Verdict.UNKNOWN),
        (10, 19, 40, None, Verdict.UNKNOWN),
        (0, 9, 20, LAST, Verdict.EXPECTED),
        (0, 9, 20, -1, Verdict.UNKNOWN),
        (LAST - 4, 5, 20, 19, Verdict.WRITTEN),
        (LAST - 9, LAST, 20, 9, Verdict.WRITTEN),
        (LAST - 9, LAST, 20, 20, Verdict.UNKNOWN),
        (LAST - 9, LAST, 0, 0, Verdict.UNKNOWN),
        (LAST - 9, LAST, 20, LAST - 10, Verdict.EXPECTED),
        (LAST - 9, LAST, 20, LAST - 11, Verdict.UNKNOWN),
    ],
)
def test_what_the_last_sequence_of_the_leader_means(
    base: int, last: int, following: int, known: int | None, expected: Verdict
) -> None:
    assert verdict(base, last, following, known) is expected


class Forgotten:
    """A producer whose batches ``1`` to ``n`` are on the way when the broker crashes: the first ``written`` of them are
    in the log, and none is acknowledged."""

    def __init__(self, count: int = 3, written: int = 3, versions: Any = None, **settings: Any) -> None:
        self.cluster = ScriptedCluster({"t": 2}, nodes=2, versions=versions)
        self.cluster.idle_limit_ms = 100
        self.producer: KafkaProducer = self.cluster.producer(linger_ms=0, batch_size=1, **settings)
        manager = self.producer.transaction_manager
        assert manager is not None
        self.manager: TransactionManager = manager
        self.called: list[int] = []
        self.futures: list[FutureRecordMetadata] = []
        self.settle(self.send(1))
        self.cluster.fates.extend(
            [Fate(delay_ms=20)] * written + [Fate(lose_request=True, delay_ms=20)] * (count - written)
        )
        self.lost = self.send(count)
        self.cluster.run_until(self.producer, lambda: len(self.in_flight) == count and not self.cluster.fates)

    @property
    def in_flight(self) -> list[ProducerBatch]:
        return self.manager.partitions.window(T0)[0]

    def send(self, count: int) -> list[FutureRecordMetadata]:
        first = len(self.futures)
        for number in range(first, first + count):
            told = partial(self._told, number)
            self.futures.append(self.producer.send("t", (b"%d" % number).ljust(30), partition=0, callback=told))
        return self.futures[first:]

    def _told(self, number: int, _metadata: RecordMetadata, _error: Exception | None) -> None:
        self.called.append(number)

    def crash(self) -> None:
        self.cluster.crash(1)

    def settle(self, futures: list[FutureRecordMetadata] | None = None) -> None:
        wanted = self.futures if futures is None else futures
        self.cluster.run_until(self.producer, lambda: all(future.done() for future in wanted))
        self.cluster.run_until(self.producer, lambda: self.producer.client.in_flight_request_count() == 0)

    @property
    def stored(self) -> list[int]:
        return [int(value or b"") for value in self.cluster.values("t")]

    @property
    def asked(self) -> list[DescribeProducersRequest]:
        return self.cluster.requests(ApiKey.DESCRIBE_PRODUCERS)

    @property
    def offsets(self) -> list[int]:
        return [future.result(0).offset for future in self.futures]

    @property
    def epoch(self) -> int:
        return self.manager.producer_id_and_epoch.epoch

    def answer(self, state: ProducerState | None, *, times: int = 1) -> None:
        """What the broker tells about the producer next."""
        rows = [] if state is None else [state]
        for _ in range(times):
            self.cluster.on_next(
                ApiKey.DESCRIBE_PRODUCERS,
                lambda _: DescribeProducersResponse(
                    topics=[
                        TopicResponse(
                            name="t", partitions=[PartitionResponse(partition_index=0, active_producers=list(rows))]
                        )
                    ]
                ),
            )

    def check_nothing_left(self) -> None:
        accumulator = self.producer.accumulator
        assert accumulator.pool.available_memory() == accumulator.pool.total_memory
        assert not accumulator.has_incomplete
        assert not accumulator.has_undrained
        assert not self.in_flight
        self.producer.sender.run_once()
        assert not self.manager.partitions.sequence_questions


def test_what_is_in_the_log_already_is_not_written_again() -> None:
    world = Forgotten()
    world.crash()
    world.settle()
    assert world.stored == [0, 1, 2, 3]
    assert world.offsets == [0, -1, -1, 3], "where the last one is, the broker knows"
    assert world.called == [0, 1, 2, 3], "in order"
    assert world.epoch == 0
    (request,) = world.asked
    assert [(topic.name, topic.partition_indexes) for topic in request.topics] == [("t", [0])]
    world.settle(world.send(2))
    assert world.stored == [0, 1, 2, 3, 4, 5], "and the sequence goes on"
    assert world.epoch == 0
    world.check_nothing_left()


def test_of_three_batches_two_were_written() -> None:
    world = Forgotten(count=3, written=2)
    world.crash()
    world.settle()
    assert world.stored == [0, 1, 2, 3]
    assert world.offsets == [0, -1, 2, 3]
    assert world.called == [0, 1, 2, 3]
    assert world.epoch == 0
    world.check_nothing_left()


def test_one_batch_is_recognised_without_a_question() -> None:
    world = Forgotten(count=2, written=1)
    world.crash()
    world.settle()
    assert (world.stored, world.offsets) == ([0, 1, 2], [0, 1, 2])
    assert not world.asked


def test_nothing_else_of_the_partition_is_sent_while_the_question_is_open() -> None:
    world = Forgotten()
    world.cluster.fate_of = lambda handled: Fate(
        delay_ms=5_000 if handled.header.api_key is ApiKey.DESCRIBE_PRODUCERS else 0
    )
    world.crash()
    world.cluster.run_until(world.producer, lambda: bool(world.manager.partitions.sequence_questions))
    world.send(2)
    other = world.producer.send("t", b"other", partition=1)
    sent = len(world.cluster.requests(ApiKey.PRODUCE))
    world.cluster.run_until(world.producer, other.done)
    assert len(world.asked) == 1
    assert len(world.cluster.requests(ApiKey.PRODUCE)) == sent + 1, "other partitions do not wait"
    assert world.manager.partitions.sequence_questions[T0].holds_back
    world.settle()
    assert world.stored == [0, 1, 2, 3, 4, 5]
    assert world.epoch == 0


def test_the_broker_confirms_before_the_application_is_told() -> None:
    """That the leader has them does not mean that the replicas have: only its response to a Produce says that."""
    world = Forgotten()
    world.crash()
    world.cluster.run_until(world.producer, lambda: bool(world.asked))
    done: list[bool] = []
    world.cluster.on_next(ApiKey.PRODUCE, lambda _: done.extend(future.done() for future in world.lost))
    world.settle()
    assert done == [False, False, False]
    assert world.offsets == [0, -1, -1, 3]


@pytest.mark.parametrize(
    "state",
    [
        None,
        ProducerState(producer_id=1002, producer_epoch=0, last_sequence=3),
        ProducerState(producer_id=1001, producer_epoch=1, last_sequence=3),
        ProducerState(producer_id=1001, producer_epoch=0, last_sequence=-1),
        ProducerState(producer_id=1001, producer_epoch=0, last_sequence=LAST),
        ProducerState(producer_id=1001, producer_epoch=0, last_sequence=4),
    ],
    ids=["unknown", "somebody else", "other epoch", "no sequence", "behind", "beyond"],
)
def test_the_broker_knows_nothing_that_helps(state: ProducerState | None) -> None:
    """Then it is as it was: a new epoch, and everything once more."""
    world = Forgotten()
    world.answer(state)
    world.crash()
    world.settle()
    assert world.epoch == 1
    assert world.stored == [0, 1, 2, 3, 1, 2, 3]
    assert len(world.asked) == 1
    world.check_nothing_left()


@pytest.mark.parametrize("error", [Errors.TOPIC_AUTHORIZATION_FAILED, Errors.UNKNOWN_SERVER_ERROR])
def test_the_broker_refuses_to_tell(error: Errors) -> None:
    world = Forgotten()
    world.cluster.fail_next(ApiKey.DESCRIBE_PRODUCERS, error)
    world.crash()
    world.settle()
    assert (world.epoch, len(world.asked)) == (1, 1)
    world.check_nothing_left()


def test_the_broker_cannot_be_asked() -> None:
    world = Forgotten(versions={ApiKey.DESCRIBE_PRODUCERS: (1, 1)})
    world.crash()
    world.settle()
    assert (world.epoch, len(world.asked)) == (1, 0)
    world.check_nothing_left()


def test_an_error_that_passes() -> None:
    world = Forgotten()
    world.cluster.fail_next(ApiKey.DESCRIBE_PRODUCERS, *[Errors.NOT_LEADER_OR_FOLLOWER] * 3)
    world.crash()
    world.settle()
    assert world.offsets == [0, -1, -1, 3]
    assert (world.epoch, len(world.asked)) == (0, 4)


def test_an_error_that_does_not_pass() -> None:
    world = Forgotten()
    world.cluster.fail_next(ApiKey.DESCRIBE_PRODUCERS, *[Errors.NOT_LEADER_OR_FOLLOWER] * 100)
    world.crash()
    world.settle()
    assert (world.epoch, len(world.asked)) == (1, MAX_TRIES)


def one_in(count: int, kind: ApiKey, fate: Fate) -> Callable[[Handled], Fate]:
    """The first ``count`` requests of a kind have this fate."""
    left = [count]

    def fate_of(handled: Handled) -> Fate:
        if handled.header.api_key is kind and left[0]:
            left[0] -= 1
            return fate
        return Fate()

    return fate_of


@pytest.mark.parametrize("fate", [Fate(lose_request=True), Fate(lose_response=True), Fate(delay_ms=10_000)])
def test_the_connection_breaks_while_the_question_is_open(fate: Fate) -> None:
    world = Forgotten(request_timeout_ms=1_000)
    world.cluster.fate_of = one_in(2, ApiKey.DESCRIBE_PRODUCERS, fate)
    world.crash()
    world.settle()
    assert world.stored == [0, 1, 2, 3]
    assert world.offsets == [0, -1, -1, 3]
    assert world.epoch == 0
    world.check_nothing_left()


def test_the_connection_breaks_before_the_proof() -> None:
    world = Forgotten()
    world.crash()
    world.cluster.run_until(world.producer, lambda: bool(world.asked))
    world.cluster.fates.append(Fate(lose_response=True, delay_ms=5))
    world.settle()
    assert world.stored == [0, 1, 2, 3]
    assert world.offsets == [0, -1, -1, 3]
    assert (world.epoch, len(world.asked)) == (0, 2)
    world.check_nothing_left()


def test_another_leader_has_less() -> None:
    """Between question and proof somebody takes over who was not that far: the batches are not in his log."""
    world = Forgotten()
    world.crash()
    world.cluster.run_until(world.producer, lambda: bool(world.asked))
    partition = world.cluster.topics["t"].partitions[0]
    del partition.records[1:]
    producer = partition.producers[1001]
    producer.batches[-1] = producer.batches[-1]._replace(base_sequence=0, last_sequence=0, base_offset=0)
    world.settle()
    assert world.stored == [0, 1, 2, 3]
    assert world.epoch == 0
    assert world.called == [0, 1, 2, 3]
    world.check_nothing_left()


def test_the_broker_ought_to_take_it() -> None:
    """It says that the batch is what it waits for. So it gets it again, and has to stand by its word some day."""
    world = Forgotten()
    before = ProducerState(producer_id=1001, producer_epoch=0, last_sequence=0)
    world.answer(before, times=2)
    world.crash()
    world.settle()
    assert (world.epoch, len(world.asked)) == (0, 3)
    assert world.offsets == [0, -1, -1, 3]
    world = Forgotten()
    world.answer(before, times=100)
    world.crash()
    world.settle()
    assert (world.epoch, len(world.asked)) == (1, MAX_TRIES)
    world.check_nothing_left()


def test_time_runs_out_while_the_question_is_open() -> None:
    world = Forgotten(request_timeout_ms=1_000, delivery_timeout_ms=1_500)
    world.cluster.fate_of = lambda handled: Fate(
        delay_ms=10_000 if handled.header.api_key is ApiKey.DESCRIBE_PRODUCERS else 0
    )
    start = world.cluster.clock.hi_res_milliseconds()
    world.crash()
    world.cluster.run_until(world.producer, lambda: all(future.done() for future in world.lost))
    assert world.cluster.clock.hi_res_milliseconds() - start <= 1_600
    for future in world.lost:
        assert isinstance(future.exception(0), KafkaTimeoutError)
    world.cluster.fate_of = None
    world.settle(world.send(2))
    assert world.stored == [0, 1, 2, 3, 4, 5]
    assert world.epoch == 1, "nobody knows where the sequence was"
    world.check_nothing_left()


def test_time_of_the_first_runs_out_while_the_witness_is_on_the_way() -> None:
    world = Forgotten(request_timeout_ms=1_000, delivery_timeout_ms=1_500)
    world.in_flight[0].created_ms -= 1_000
    world.crash()
    world.cluster.run_until(world.producer, lambda: bool(world.asked))
    world.cluster.fates.append(Fate(delay_ms=600))
    world.settle()
    assert isinstance(world.futures[1].exception(0), KafkaTimeoutError)
    assert [future.result(0).offset for future in world.futures[2:]] == [-1, 3]
    world.settle(world.send(1))
    assert world.stored == [0, 1, 2, 3, 4]
    assert world.epoch == 0
    world.check_nothing_left()


def test_time_of_the_witness_runs_out_on_the_way() -> None:
    """Its confirmation is good for those before it all the same."""
    world = Forgotten(request_timeout_ms=1_000, delivery_timeout_ms=1_500)
    world.in_flight[2].created_ms -= 1_000
    world.crash()
    world.cluster.run_until(world.producer, lambda: bool(world.asked))
    world.cluster.fates.append(Fate(delay_ms=600))
    later = world.send(1)
    world.settle()
    assert isinstance(world.futures[3].exception(0), KafkaTimeoutError)
    assert [future.result(0).offset for future in world.futures[1:3]] == [-1, -1]
    assert later[0].result(0).offset == 4
    assert world.stored == [0, 1, 2, 3, 4]
    assert world.epoch == 0
    world.check_nothing_left()


def test_sequences_that_wrap_around() -> None:
    world = Forgotten(count=1, written=1)
    world.settle()
    entry = world.manager.partitions.get_or_create(T0)
    entry.next_sequence = LAST
    entry.last_acked_sequence = LAST - 1
    state = world.cluster.topics["t"].partitions[0].producers[1001]
    last = state.batches[-1]._replace(base_sequence=LAST - 1, last_sequence=LAST - 1)
    state.batches.clear()
    state.batches.append(last)
    world.cluster.fates.extend([Fate(delay_ms=20)] * 3)
    world.send(3)
    world.cluster.run_until(world.producer, lambda: not world.cluster.fates)
    assert [batch.base_sequence for batch in world.in_flight] == [LAST, 0, 1]
    world.crash()
    world.settle()
    assert world.stored == [0, 1, 2, 3, 4]
    assert world.offsets == [0, 1, -1, -1, 4]
    assert (world.epoch, len(world.asked)) == (0, 1)
    world.settle(world.send(1))
    assert world.stored == [0, 1, 2, 3, 4, 5]


def test_a_later_batch_was_confirmed() -> None:
    """The response of one leader is lost, that of the next one is not. The batches before it need no request."""
    world = Forgotten(count=1, written=1)
    world.settle()
    world.cluster.fates.append(Fate(delay_ms=20_000, lose_response=True))
    first = world.send(1)
    world.cluster.run_until(world.producer, lambda: not world.cluster.fates)
    world.cluster.move_leader("t", 0, to=2)
    world.producer.metadata.update_partition_leadership({T0: LeaderIdAndEpoch(2, 1)}, [])
    world.settle(world.send(2))
    assert not first[0].done()
    world.cluster.crash(2)
    world.settle()
    assert world.offsets == [0, 1, -1, 3, 4]
    assert world.stored == [0, 1, 2, 3, 4]
    assert (world.epoch, len(world.asked)) == (0, 0)
    world.check_nothing_left()


def test_what_was_refused_each_time_is_not_there() -> None:
    """A broker without any memory of the producer has refused the first batch, and taken the second for a first one.
    What it says about the second proves nothing about the first, which must not be lost."""
    world = Forgotten(count=1, written=1)
    world.settle()
    world.cluster.fates.extend([Fate(delay_ms=20), Fate(delay_ms=30, lose_response=True)])
    world.cluster.fail_next(ApiKey.PRODUCE, Errors.NOT_ENOUGH_REPLICAS)
    state = world.cluster.topics["t"].partitions[0].producers[1001]
    state.batches[-1] = state.batches[-1]._replace(last_sequence=2)  # any will do, so also the second's
    world.send(2)
    world.settle()
    assert world.stored == [0, 1, 3, 2, 3]
    assert not world.asked
    assert world.epoch == 1


def test_flush_and_close_wait_for_the_response() -> None:
    world = Forgotten()
    world.crash()
    world.cluster.run_while(world.producer, world.producer.flush)
    assert world.offsets == [0, -1, -1, 3]
    world = Forgotten()
    world.crash()
    world.producer.sender.initiate_close()
    world.producer.sender.run()
    assert world.offsets == [0, -1, -1, 3]
    assert world.stored == [0, 1, 2, 3]


def test_closed_by_force_while_the_question_is_open() -> None:
    world = Forgotten()
    world.cluster.fate_of = lambda handled: Fate(
        delay_ms=1_000 if handled.header.api_key is ApiKey.DESCRIBE_PRODUCERS else 0
    )
    world.crash()
    world.cluster.run_until(world.producer, lambda: bool(world.asked))
    world.producer.sender.force_close()
    world.producer.sender.run()
    assert all(future.exception(0) is not None for future in world.lost)


def test_a_transaction_is_aborted_instead() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(linger_ms=0, batch_size=1, transactional_id="tx")
    cluster.run_while(producer, producer.init_transactions)
    producer.begin_transaction()
    first = producer.send("t", b"0".ljust(30), partition=0)
    cluster.run_until(producer, first.done)
    cluster.fates.extend([Fate(delay_ms=20)] * 3)
    futures = [producer.send("t", (b"%d" % number).ljust(30), partition=0) for number in range(1, 4)]
    cluster.run_until(producer, lambda: not cluster.fates)
    cluster.crash(1)
    cluster.run_until(producer, lambda: all(future.done() for future in futures))
    assert isinstance(futures[0].exception(0), OutOfOrderSequenceError)
    assert not cluster.requests(ApiKey.DESCRIBE_PRODUCERS)
