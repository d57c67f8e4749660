"""Proposals for in-sync replicas: batched, one request at a time, tried until they are answered."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.to_controller.alter_partition_manager import RETRY_DELAY_MS, DefaultAlterPartitionManager
from barnabas.common.errors import Errors, IneligibleReplicaError, OperationNotAttemptedError, UnknownServerError
from barnabas.common.identifiers import Uuid
from barnabas.common.scheduler import MockScheduler
from barnabas.metadata.partition_registration import LeaderRecoveryState
from barnabas.protocol.messages.alter_partition import (
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.replica.partition.alter_partition import IsrMember, LeaderAndIsr
from controller_channel_fixtures import FakeControllerChannel

A, B = Uuid(b"a" * 16), Uuid(b"b" * 16)
RECOVERED = LeaderRecoveryState.RECOVERED


def partition(topic_id: Uuid, index: int) -> TopicIdPartition:
    return TopicIdPartition(topic_id, "t", index)


def proposal(*isr: int, partition_epoch: int = 4) -> LeaderAndIsr:
    members = tuple(IsrMember(broker_id, 100 + broker_id) for broker_id in isr)
    return LeaderAndIsr(1, 7, RECOVERED, members, partition_epoch)


def good(index: int, *isr: int, **fields: Any) -> ResponsePartitionData:
    return ResponsePartitionData(
        **{
            "partition_index": index,
            "leader_id": 1,
            "leader_epoch": 7,
            "isr": list(isr),
            "partition_epoch": 5,
            **fields,
        }
    )


def answer(**partitions: list[ResponsePartitionData]) -> AlterPartitionResponse:
    ids = {"a": A, "b": B}
    return AlterPartitionResponse(
        topics=[ResponseTopicData(topic_id=ids[name], partitions=rows) for name, rows in partitions.items()]
    )


class Bench:
    def __init__(self) -> None:
        self.scheduler = MockScheduler()
        self.channel = FakeControllerChannel(self.scheduler.clock)
        self.epoch = 33
        self.manager = DefaultAlterPartitionManager(self.channel, self.scheduler, 1, lambda: self.epoch)

    def sent(self) -> list[tuple[Uuid, list[int]]]:
        """The topics and partitions of the request under way."""
        body = self.channel.sent[0].body
        return [(topic.topic_id, [row.partition_index for row in topic.partitions]) for topic in body.topics]


def test_a_proposal_goes_out_with_its_epochs_and_the_outcome_comes_back() -> None:
    b = Bench()
    future = b.manager.submit(partition(A, 0), proposal(1, 2))
    sent = b.channel.take()
    body = sent.body
    assert (body.broker_id, body.broker_epoch) == (1, 33)
    [row] = body.topics[0].partitions
    assert (row.leader_epoch, row.partition_epoch, row.leader_recovery_state) == (7, 4, RECOVERED)
    assert [(member.broker_id, member.broker_epoch) for member in row.new_isr_with_epochs] == [(1, 101), (2, 102)]
    sent.answer(answer(a=[good(0, 1, 2)]))
    assert future.result(0) == LeaderAndIsr(1, 7, RECOVERED, (IsrMember(1), IsrMember(2)), 5)
    assert not b.manager.pending


def test_a_controller_of_version_2_gets_ids_without_epochs() -> None:
    b = Bench()
    b.manager.submit(partition(A, 0), proposal(1, 2))
    [row] = b.channel.take().built(2).topics[0].partitions
    assert row.new_isr == [1, 2]


def test_what_comes_in_during_a_request_goes_out_together_in_the_next() -> None:
    b = Bench()
    b.manager.submit(partition(A, 0), proposal(1))
    b.manager.submit(partition(A, 1), proposal(1))
    b.manager.submit(partition(B, 0), proposal(1))
    b.manager.submit(partition(A, 2), proposal(1))
    assert b.sent() == [(A, [0])]
    b.channel.take().answer(answer(a=[good(0, 1)]))
    assert b.sent() == [(A, [1, 2]), (B, [0])]


def test_a_partition_has_one_proposal_at_a_time() -> None:
    b = Bench()
    first = b.manager.submit(partition(A, 0), proposal(1))
    second = b.manager.submit(partition(A, 0), proposal(1, 2))
    with pytest.raises(OperationNotAttemptedError):
        second.result(0)
    assert not first.done()
    b.channel.take().answer(answer(a=[good(0, 1)]))
    third = b.manager.submit(partition(A, 0), proposal(1, 2))
    assert b.channel.sent
    assert not third.done()


def test_whoever_is_told_may_propose_again() -> None:
    b = Bench()
    futures = []

    def again(_done: object) -> None:
        futures.append(b.manager.submit(partition(A, 0), proposal(1, 2, 3)))

    b.manager.submit(partition(A, 0), proposal(1)).add_done_callback(again)
    b.channel.take().answer(answer(a=[good(0, error_code=Errors.INELIGIBLE_REPLICA)]))
    assert b.sent() == [(A, [0])]
    assert not futures[0].done()


def test_an_error_of_one_partition_is_its_own() -> None:
    b = Bench()
    warm_up = b.manager.submit(partition(B, 9), proposal(1))
    bad, fine = b.manager.submit(partition(A, 0), proposal(1)), b.manager.submit(partition(A, 1), proposal(1))
    strange = b.manager.submit(partition(B, 0), proposal(1))
    b.channel.take().answer(answer(b=[good(9)]))
    assert warm_up.done()
    rows = [good(0, error_code=Errors.INELIGIBLE_REPLICA), good(1, 1)]
    b.channel.take().answer(answer(a=rows, b=[good(0, leader_recovery_state=9)]))
    with pytest.raises(IneligibleReplicaError):
        bad.result(0)
    assert fine.result(0).isr == (1,)
    with pytest.raises(UnknownServerError):
        strange.result(0)


def test_a_partition_that_the_response_forgets_is_sent_again() -> None:
    b = Bench()
    future = b.manager.submit(partition(A, 0), proposal(1))
    b.channel.take().answer(answer(b=[good(0)]))
    assert b.sent() == [(A, [0])]
    assert not future.done()


@pytest.mark.parametrize("how", ["refuse", "mismatch", "stale", "unauthorized"])
def test_an_error_of_the_whole_request_is_tried_again_shortly(how: str) -> None:
    b = Bench()
    future = b.manager.submit(partition(A, 0), proposal(1))
    sent = b.channel.take()
    errors = {"stale": Errors.STALE_BROKER_EPOCH, "unauthorized": Errors.CLUSTER_AUTHORIZATION_FAILED}
    if how in errors:
        sent.answer(AlterPartitionResponse(error_code=errors[how]))
    else:
        getattr(sent, how)()
    b.manager.submit(partition(A, 1), proposal(1))
    del b.channel.sent[0]  # the second proposal does not wait for the retry of the first
    b.epoch = 34
    b.scheduler.advance(RETRY_DELAY_MS)
    assert not future.done()
    assert not b.channel.sent, "one request at a time"


def test_the_retry_has_the_newest_broker_epoch() -> None:
    b = Bench()
    b.manager.submit(partition(A, 0), proposal(1))
    b.channel.take().answer(AlterPartitionResponse(error_code=Errors.STALE_BROKER_EPOCH))
    assert not b.channel.sent
    b.epoch = 34
    b.scheduler.advance(RETRY_DELAY_MS)
    assert b.channel.take().body.broker_epoch == 34


def test_after_shutdown_nothing_is_proposed() -> None:
    b = Bench()
    b.manager.start()
    waiting = b.manager.submit(partition(A, 0), proposal(1))
    b.manager.shutdown()
    b.channel.take().time_out()
    assert not waiting.done()
    assert isinstance(b.manager.submit(partition(A, 1), proposal(1)).exception(0), OperationNotAttemptedError)
    assert (b.channel.started, b.channel.shutdowns, len(b.channel.sent)) == (1, 1, 0)
