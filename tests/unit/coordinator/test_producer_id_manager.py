"""Producer ids in blocks, and producers that come when there is none."""

from __future__ import annotations

import threading

import pytest

from barnabas.common.errors import CoordinatorLoadInProgressError, Errors
from barnabas.common.scheduler import MockScheduler
from barnabas.coordinator.transaction.producer_id_manager import RETRY_BACKOFF_MS, ProducerIdManager
from barnabas.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from controller_channel_fixtures import FakeControllerChannel

SIZE = 10
"""Of a block: the tenth id is the last, and with the one before it the next block is asked for."""
TIMEOUT_MS = 1_000


class Bench:
    def __init__(self) -> None:
        self.scheduler = MockScheduler()
        self.channel = FakeControllerChannel(self.scheduler.clock)
        self.manager = ProducerIdManager(4, lambda: 33, self.channel, self.scheduler, self.scheduler.clock)

    def grant(self, first: int, size: int = SIZE) -> None:
        self.channel.take().answer(AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=size))

    def ids(self, count: int) -> list[int]:
        return [self.manager.generate_producer_id() for _ in range(count)]


def test_the_first_id_has_to_be_waited_for() -> None:
    b = Bench()
    for _ in range(3):
        with pytest.raises(CoordinatorLoadInProgressError):
            b.manager.generate_producer_id()
    assert len(b.channel.sent) == 1, "one request at a time"
    assert b.channel.sent[0].body == AllocateProducerIdsRequest(broker_id=4, broker_epoch=33)
    b.grant(3000)
    assert b.ids(2) == [3000, 3001]


def test_the_next_block_is_there_before_the_first_is_used_up() -> None:
    b = Bench()
    b.manager.prefetch()
    b.manager.prefetch()
    b.grant(0)
    assert b.ids(9) == list(range(9))
    assert not b.channel.sent
    assert b.ids(1) == [9], "the one at 90 % asks for the next"
    b.grant(70)
    assert b.ids(10) == list(range(70, 80))


def test_with_a_block_in_hand_nothing_is_prefetched() -> None:
    b = Bench()
    b.manager.prefetch()
    b.grant(0)
    b.ids(1)
    b.manager.prefetch()
    assert not b.channel.sent


def test_who_can_wait_gets_the_id_as_soon_as_it_is_there_in_order() -> None:
    b = Bench()
    futures = [b.manager.next_producer_id(TIMEOUT_MS) for _ in range(3)]
    assert len(b.channel.sent) == 1
    assert not any(future.done() for future in futures)
    b.grant(100)
    assert [future.result(0) for future in futures] == [100, 101, 102]
    assert b.manager.next_producer_id(TIMEOUT_MS).result(0) == 103
    assert not b.scheduler.pending, "no timeouts are left behind"


def test_more_who_wait_than_a_block_has_are_served_from_several() -> None:
    b = Bench()
    futures = [b.manager.next_producer_id(TIMEOUT_MS) for _ in range(SIZE + 2)]
    b.grant(0)
    assert sum(future.done() for future in futures) == SIZE
    b.grant(50)
    assert [future.result(0) for future in futures[SIZE:]] == [50, 51]


def test_who_waits_too_long_is_told_so() -> None:
    b = Bench()
    future = b.manager.next_producer_id(TIMEOUT_MS)
    b.scheduler.advance(TIMEOUT_MS)
    with pytest.raises(CoordinatorLoadInProgressError):
        future.result(0)
    b.grant(0)
    assert b.ids(1) == [0], "and no id is lost on it"


@pytest.mark.parametrize("how", ["refuse", "mismatch", "time_out", "stale", "unregistered", "negative", "empty"])
def test_a_refusal_is_tried_again_after_a_while_for_those_who_wait(how: str) -> None:
    b = Bench()
    future = b.manager.next_producer_id(TIMEOUT_MS)
    answers = {
        "stale": AllocateProducerIdsResponse(error_code=Errors.STALE_BROKER_EPOCH),
        "unregistered": AllocateProducerIdsResponse(error_code=Errors.BROKER_ID_NOT_REGISTERED),
        "negative": AllocateProducerIdsResponse(producer_id_start=-1, producer_id_len=SIZE),
        "empty": AllocateProducerIdsResponse(producer_id_start=0, producer_id_len=0),
    }
    sent = b.channel.take()
    if how in answers:
        sent.answer(answers[how])
    else:
        getattr(sent, how)()
    b.manager.next_producer_id(TIMEOUT_MS)
    b.scheduler.advance(RETRY_BACKOFF_MS - 1)
    assert not b.channel.sent
    b.scheduler.advance(1)
    assert len(b.channel.sent) == 1
    b.grant(0)
    assert future.result(0) == 0


def test_without_anybody_waiting_a_refusal_is_not_tried_again() -> None:
    b = Bench()
    b.manager.prefetch()
    b.channel.take().time_out()
    b.scheduler.advance(10 * RETRY_BACKOFF_MS)
    assert not b.channel.sent
    with pytest.raises(CoordinatorLoadInProgressError):
        b.manager.generate_producer_id()
    assert b.channel.sent


def test_a_block_that_was_given_before_is_not_taken() -> None:
    b = Bench()
    b.manager.prefetch()
    b.grant(100)
    b.ids(SIZE)
    b.grant(105)
    with pytest.raises(CoordinatorLoadInProgressError):
        b.manager.generate_producer_id()
    b.scheduler.advance(RETRY_BACKOFF_MS)
    with pytest.raises(CoordinatorLoadInProgressError):
        b.manager.generate_producer_id()
    b.grant(110)
    assert b.ids(1) == [110]


def test_no_id_is_given_twice_whoever_asks() -> None:
    b = Bench()
    b.manager.prefetch()
    b.grant(0, 4_000)
    given: list[list[int]] = [[] for _ in range(4)]

    def take(into: list[int]) -> None:
        for _ in range(500):
            into += b.manager.generate_producer_id(), b.manager.next_producer_id(TIMEOUT_MS).result(60)

    threads = [threading.Thread(target=take, args=(into,)) for into in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for into in given for number in into) == list(range(4_000))
    assert len(b.channel.sent) == 1, "the next block was asked for once"
