"""Transactions, of both versions, with a scripted coordinator."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.clients.producer import ConsumerGroupMetadata, KafkaProducer, OffsetAndMetadata
from barnabas.clients.producer.errors import (
    CommitFailedError,
    IllegalStateError,
    TransactionAbortedError,
    TransactionError,
)
from barnabas.clients.producer.internals.transaction_manager import TransactionManager
from barnabas.clients.producer.internals.transaction_state import State
from barnabas.clients.testing import Fate, ScriptedCluster
from barnabas.common.errors import (
    Errors,
    GroupAuthorizationError,
    KafkaTimeoutError,
    ProducerFencedError,
    ProtocolError,
    TopicAuthorizationError,
    TransactionAbortableError,
    TransactionalIdAuthorizationError,
)
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.api_keys import ApiKey

pytestmark = pytest.mark.mechanism("P14")


class World:
    def __init__(self, version: int = 2, **settings: Any) -> None:
        self.cluster = ScriptedCluster({"t": 2}, nodes=2, transaction_version=version)
        self.producer = self.made(**settings)
        self.call(self.producer.init_transactions)

    def made(self, **settings: Any) -> KafkaProducer:
        return self.cluster.producer(transactional_id="tx", linger_ms=0, **{"max_block_ms": 10_000, **settings})

    @property
    def manager(self) -> TransactionManager:
        assert self.producer.transaction_manager is not None
        return self.producer.transaction_manager

    def call(self, function: Any, producer: KafkaProducer | None = None) -> Any:
        return self.cluster.run_while(producer or self.producer, function)

    def send(self, value: bytes, partition: int = 0) -> Any:
        return self.producer.send("t", value, partition=partition)

    def settle(self, *futures: Any) -> None:
        self.cluster.run_until(self.producer, lambda: all(future.done() for future in futures))

    def kinds(self) -> list[ApiKey]:
        """The kinds of requests since the beginning, without repetitions in a row."""
        found: list[ApiKey] = []
        for handled in self.cluster.handled:
            kind = handled.header.api_key
            if kind not in {ApiKey.API_VERSIONS, ApiKey.METADATA} and (not found or found[-1] is not kind):
                found.append(kind)
        return found


@pytest.fixture(params=[1, 2])
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param)


def test_commit(world: World) -> None:
    producer = world.producer
    producer.begin_transaction()
    futures = [world.send(b"a", 0), world.send(b"b", 1)]
    world.settle(*futures)
    assert world.cluster.committed_values("t", 0) == [], "not yet"
    world.call(producer.commit_transaction)
    assert world.cluster.committed_values("t", 0) == [b"a"]
    assert world.cluster.committed_values("t", 1) == [b"b"]
    assert all(record.transactional for record in world.cluster.records("t", 0))
    assert world.manager.machine.state is State.READY


def test_which_requests_are_sent() -> None:
    """Version 2 needs no AddPartitionsToTxn, and the end of each transaction raises the epoch."""
    expected = {
        1: [ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.PRODUCE, ApiKey.END_TXN],
        2: [ApiKey.PRODUCE, ApiKey.END_TXN],
    }
    for version, requests in expected.items():
        world = World(version)
        epoch = world.manager.producer_id_and_epoch.epoch
        world.producer.begin_transaction()
        world.send(b"a")
        world.call(world.producer.commit_transaction)
        assert world.kinds() == [ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID, *requests]
        assert world.manager.producer_id_and_epoch.epoch == epoch + (version == 2)
        (produce,) = [one for one in world.cluster.handled if one.header.api_key is ApiKey.PRODUCE]
        assert produce.header.api_version >= 12 if version == 2 else produce.header.api_version == 11
        (end,) = [one for one in world.cluster.handled if one.header.api_key is ApiKey.END_TXN]
        assert end.header.api_version >= 5 if version == 2 else end.header.api_version == 4


def test_the_end_waits_for_all_records(world: World) -> None:
    world.producer.begin_transaction()
    world.cluster.fail_next(ApiKey.PRODUCE, Errors.NOT_ENOUGH_REPLICAS)
    future = world.send(b"a")
    world.call(world.producer.commit_transaction)
    assert future.done()
    assert world.cluster.committed_values("t") == [b"a"]


def test_abort(world: World) -> None:
    producer = world.producer
    producer.begin_transaction()
    sent = world.send(b"sent")
    world.settle(sent)
    waiting = world.send(b"waiting")
    world.call(producer.abort_transaction)
    assert isinstance(waiting.exception(0), TransactionAbortedError)
    assert world.cluster.committed_values("t") == []
    producer.begin_transaction()
    world.send(b"next")
    world.call(producer.commit_transaction)
    assert world.cluster.committed_values("t") == [b"next"]


def test_an_empty_transaction_needs_no_coordinator(world: World) -> None:
    before = len(world.cluster.handled)
    for end in (world.producer.commit_transaction, world.producer.abort_transaction):
        world.producer.begin_transaction()
        world.call(end)
    assert not [one for one in world.cluster.handled[before:] if one.header.api_key is ApiKey.END_TXN]


def test_offsets(world: World) -> None:
    producer = world.producer
    source = TopicPartition("in", 3)
    producer.begin_transaction()
    world.send(b"out")
    group = ConsumerGroupMetadata("g", 4, "member", "instance")
    world.call(lambda: producer.send_offsets_to_transaction({source: OffsetAndMetadata(7, "meta", 2)}, group))
    assert world.cluster.committed_offsets == {}
    world.call(producer.commit_transaction)
    assert world.cluster.committed_offsets == {("g", source): 7}
    (request,) = world.cluster.requests(ApiKey.TXN_OFFSET_COMMIT)
    assert (request.generation_id_or_member_epoch, request.member_id, request.group_instance_id) == (
        4,
        "member",
        "instance",
    )
    row = request.topics[0].partitions[0]
    assert (row.committed_metadata, row.committed_leader_epoch) == ("meta", 2)
    with_offsets = ApiKey.ADD_OFFSETS_TO_TXN in world.kinds()
    assert with_offsets is not world.manager.coordinators.is_transaction_v2_enabled
    producer.begin_transaction()
    world.call(lambda: producer.send_offsets_to_transaction({source: 9}, "g"))
    world.call(producer.abort_transaction)
    assert world.cluster.committed_offsets == {("g", source): 7}
    producer.send_offsets_to_transaction({}, "g")


def test_with_transaction(world: World) -> None:
    def good() -> None:
        with world.producer.transaction() as producer:
            producer.send("t", b"good", partition=0)

    def bad() -> None:
        with world.producer.transaction() as producer:
            producer.send("t", b"bad", partition=0)
            raise KeyError("application")

    world.call(good)
    with pytest.raises(KeyError):
        world.call(bad)
    world.call(good)
    assert world.cluster.committed_values("t") == [b"good", b"good"]


def test_another_one_takes_over(world: World) -> None:
    world.producer.begin_transaction()
    future = world.send(b"old")
    world.settle(future)
    successor = world.made()
    world.call(successor.init_transactions, successor)
    with pytest.raises(ProducerFencedError):
        world.call(world.producer.commit_transaction)
    assert world.manager.machine.has_fatal_error
    with pytest.raises(ProducerFencedError, match="fenced by another producer"):
        world.producer.begin_transaction()
    assert isinstance(world.send(b"x").exception(0), ProducerFencedError)
    successor.begin_transaction()
    successor.send("t", b"new", partition=0)
    world.call(successor.commit_transaction, successor)
    assert world.cluster.committed_values("t") == [b"new"], "what the crashed one left open was aborted"


def test_steps_out_of_order(world: World) -> None:
    fresh = world.made(client_id="fresh")
    with pytest.raises(IllegalStateError, match="UNINITIALIZED to state IN_TRANSACTION"):
        fresh.begin_transaction()
    with pytest.raises(IllegalStateError, match="there is no transaction"):
        world.send(b"x")
    with pytest.raises(IllegalStateError, match="transaction is not in progress"):
        world.producer.send_offsets_to_transaction({TopicPartition("in", 0): 1}, "g")
    with pytest.raises(IllegalStateError, match="READY to state COMMITTING_TRANSACTION"):
        world.producer.commit_transaction()
    world.producer.begin_transaction()
    with pytest.raises(IllegalStateError, match="IN_TRANSACTION to state IN_TRANSACTION"):
        world.producer.begin_transaction()
    assert not world.manager.machine.failed, "a mistake of the caller is no reason to give up"
    plain = world.cluster.producer()
    with pytest.raises(IllegalStateError, match=r"transactional\.id"):
        plain.init_transactions()


def test_a_record_that_fails_makes_the_transaction_abortable(world: World) -> None:
    producer = world.producer
    producer.begin_transaction()
    world.cluster.fail_next(ApiKey.PRODUCE, Errors.TOPIC_AUTHORIZATION_FAILED)
    future = world.send(b"a")
    world.settle(future)
    assert isinstance(future.exception(0), TopicAuthorizationError)
    with pytest.raises(TransactionError, match="error state"):
        producer.commit_transaction()
    with pytest.raises(TransactionError):
        world.send(b"b")
    world.call(producer.abort_transaction)
    producer.begin_transaction()
    world.send(b"c")
    world.call(producer.commit_transaction)
    assert world.cluster.committed_values("t") == [b"c"]


def test_a_record_that_is_not_accepted_does_so_too(world: World) -> None:
    producer = world.made(max_request_size=200)
    world.call(producer.init_transactions, producer)
    producer.begin_transaction()
    producer.send("t", b"x" * 500)
    with pytest.raises(TransactionError):
        producer.commit_transaction()
    world.call(producer.abort_transaction, producer)


def test_a_record_whose_time_is_over(world: World) -> None:
    producer = world.producer = world.made(request_timeout_ms=100, delivery_timeout_ms=300, retry_backoff_ms=0)
    world.call(producer.init_transactions)
    producer.begin_transaction()
    world.cluster.fate_of = lambda handled: Fate(lose_request=handled.header.api_key is ApiKey.PRODUCE)
    future = world.send(b"lost")
    world.settle(future)
    assert isinstance(future.exception(0), KafkaTimeoutError)
    world.cluster.fate_of = None
    error = world.manager.machine.last_error
    assert isinstance(error, TransactionAbortableError | TransactionError)
    world.call(producer.abort_transaction)
    producer.begin_transaction()
    world.send(b"next")
    world.call(producer.commit_transaction)
    assert world.cluster.committed_values("t") == [b"next"]


@pytest.mark.parametrize("api_key", [ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN, ApiKey.FIND_COORDINATOR])
@pytest.mark.parametrize("error", [Errors.NOT_COORDINATOR, Errors.COORDINATOR_LOAD_IN_PROGRESS])
def test_coordinators_move_and_load(api_key: ApiKey, error: Errors) -> None:
    world = World()
    producer = world.producer = world.made(client_id="second")
    world.cluster.fail_next(api_key, error, Errors.CONCURRENT_TRANSACTIONS)
    world.call(producer.init_transactions)
    producer.begin_transaction()
    world.send(b"a")
    world.call(producer.commit_transaction)
    assert world.cluster.committed_values("t") == [b"a"]
    assert len(world.cluster.requests(api_key)) >= 3


def test_the_markers_of_the_last_transaction_are_awaited_for_a_moment() -> None:
    world = World(1)
    world.cluster.fail_next(ApiKey.ADD_PARTITIONS_TO_TXN, *[Errors.CONCURRENT_TRANSACTIONS] * 3)
    world.producer.begin_transaction()
    before = world.cluster.clock.hi_res_milliseconds()
    world.settle(world.send(b"a"))
    assert 60 <= world.cluster.clock.hi_res_milliseconds() - before < 120, "3 x 20 ms, not 3 x retry.backoff.ms"


@pytest.mark.parametrize(
    ("error", "kind", "fatal"),
    [
        (Errors.TRANSACTION_ABORTABLE, TransactionAbortableError, False),
        (Errors.INVALID_PRODUCER_EPOCH, ProducerFencedError, True),
        (Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, TransactionalIdAuthorizationError, True),
        (Errors.UNKNOWN_SERVER_ERROR, TransactionError, True),
    ],
)
def test_commit_that_is_refused(error: Errors, kind: type[Exception], fatal: bool) -> None:
    world = World()
    world.producer.begin_transaction()
    world.settle(world.send(b"a"))
    world.cluster.fail_next(ApiKey.END_TXN, error)
    with pytest.raises(kind):
        world.call(world.producer.commit_transaction)
    assert world.manager.machine.has_fatal_error is fatal
    if not fatal:
        world.call(world.producer.abort_transaction)
        assert world.manager.machine.state is State.READY


def test_partitions_that_are_refused() -> None:
    world = World(1)
    world.producer.begin_transaction()
    world.cluster.fail_next(ApiKey.ADD_PARTITIONS_TO_TXN, Errors.TOPIC_AUTHORIZATION_FAILED)
    future = world.send(b"a")
    world.settle(future)
    assert isinstance(future.exception(0), TopicAuthorizationError)
    world.call(world.producer.abort_transaction)
    world.producer.begin_transaction()
    world.cluster.fail_next(ApiKey.ADD_PARTITIONS_TO_TXN, Errors.UNKNOWN_TOPIC_OR_PARTITION)
    world.settle(world.send(b"b"))
    assert world.manager.machine.state is State.IN_TRANSACTION, "that one passes"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Errors.GROUP_AUTHORIZATION_FAILED, GroupAuthorizationError),
        (Errors.ILLEGAL_GENERATION, CommitFailedError),
        (Errors.UNKNOWN_MEMBER_ID, CommitFailedError),
        (Errors.TRANSACTION_ABORTABLE, TransactionAbortableError),
        (Errors.PRODUCER_FENCED, ProducerFencedError),
    ],
)
def test_offsets_that_are_refused(error: Errors, kind: type[Exception]) -> None:
    world = World()
    world.producer.begin_transaction()
    world.cluster.fail_next(ApiKey.TXN_OFFSET_COMMIT, error)
    with pytest.raises(kind):
        world.call(lambda: world.producer.send_offsets_to_transaction({TopicPartition("in", 0): 1}, "g"))
    assert world.manager.machine.has_fatal_error is (error is Errors.PRODUCER_FENCED)


def test_offsets_of_an_aborted_transaction_are_not_committed_by_the_next(world: World) -> None:
    """A record fails while the offsets wait to be sent again, so they are never acknowledged."""
    producer = world.producer
    first, second = TopicPartition("in", 0), TopicPartition("in", 1)
    producer.begin_transaction()
    world.cluster.fail_next(ApiKey.TXN_OFFSET_COMMIT, Errors.COORDINATOR_LOAD_IN_PROGRESS)
    world.cluster.fail_next(ApiKey.PRODUCE, Errors.TOPIC_AUTHORIZATION_FAILED)
    world.send(b"refused")
    with pytest.raises(TopicAuthorizationError):
        world.call(lambda: producer.send_offsets_to_transaction({first: 10}, "g"))
    world.call(producer.abort_transaction)
    producer.begin_transaction()
    world.call(lambda: producer.send_offsets_to_transaction({second: 5}, "g"))
    world.call(producer.commit_transaction)
    assert world.cluster.committed_offsets == {("g", second): 5}


def test_offsets_that_cannot_be_encoded(world: World) -> None:
    producer = world.producer
    source = TopicPartition("in", 0)
    producer.begin_transaction()
    with pytest.raises(ProtocolError, match="committed_offset"):
        world.call(lambda: producer.send_offsets_to_transaction({source: 2**70}, "g"))
    world.call(producer.abort_transaction)
    producer.begin_transaction()
    world.call(lambda: producer.send_offsets_to_transaction({source: 5}, "g"))
    world.call(producer.commit_transaction)
    assert world.cluster.committed_offsets == {("g", source): 5}


def test_offsets_are_sent_again() -> None:
    world = World()
    world.producer.begin_transaction()
    world.cluster.fail_next(
        ApiKey.TXN_OFFSET_COMMIT, Errors.NOT_COORDINATOR, Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.REQUEST_TIMED_OUT
    )
    world.call(lambda: world.producer.send_offsets_to_transaction({TopicPartition("in", 0): 1}, "g"))
    world.call(world.producer.commit_transaction)
    assert world.cluster.committed_offsets == {("g", TopicPartition("in", 0)): 1}


def test_a_commit_that_takes_too_long_can_be_called_again() -> None:
    world = World(max_block_ms=500)
    world.producer.begin_transaction()
    world.settle(world.send(b"a"))
    world.cluster.fate_of = lambda handled: Fate(delay_ms=2_000 * (handled.header.api_key is ApiKey.END_TXN))
    with pytest.raises(KafkaTimeoutError, match="Timeout expired after 500ms while awaiting EndTxn"):
        world.call(world.producer.commit_transaction)
    with pytest.raises(IllegalStateError, match="must be retried"):
        world.producer.begin_transaction()
    with pytest.raises(IllegalStateError, match="must be retried"):
        world.producer.abort_transaction()
    cluster = world.cluster
    cluster.run_until(world.producer, lambda: world.manager.requests.in_flight_correlation_id is None)
    world.call(world.producer.commit_transaction)
    world.producer.begin_transaction()
    assert cluster.committed_values("t") == [b"a"]
    assert len(cluster.requests(ApiKey.END_TXN)) == 1


def test_a_lost_response_to_the_end(world: World) -> None:
    world.producer.begin_transaction()
    world.settle(world.send(b"a"))
    lost: list[int] = []

    def fate(handled: Any) -> Fate:
        if handled.header.api_key is ApiKey.END_TXN and not lost:
            lost.append(1)
            return Fate(lose_request=True)
        return Fate()

    world.cluster.fate_of = fate
    world.call(world.producer.commit_transaction)
    assert lost
    assert world.cluster.committed_values("t") == [b"a"]


def test_without_the_right_to_the_id() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(transactional_id="tx", linger_ms=0)
    cluster.fail_next(ApiKey.INIT_PRODUCER_ID, Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    with pytest.raises(TransactionalIdAuthorizationError):
        cluster.run_while(producer, producer.init_transactions)
    manager = producer.transaction_manager
    assert manager is not None
    cluster.run_until(producer, lambda: manager.machine.state is State.UNINITIALIZED)
    cluster.run_while(producer, producer.init_transactions)
    assert manager.machine.state is State.READY, "the same producer, once it may"


def test_the_cluster_moves_to_version_2() -> None:
    """In the middle of a transaction of version 1. The next one is of version 2, and starts with a new epoch."""
    world = World(1)
    world.producer.begin_transaction()
    world.settle(world.send(b"a"))
    epoch = world.manager.producer_id_and_epoch.epoch
    world.cluster.transaction_version = 2
    for node in (1, 2):
        world.cluster.break_connections(node)
    world.settle(world.send(b"b"))
    world.call(world.producer.commit_transaction)
    assert world.manager.coordinators.is_transaction_v2_enabled
    assert world.manager.producer_id_and_epoch.epoch == epoch + 1
    world.producer.begin_transaction()
    world.send(b"c")
    world.call(world.producer.commit_transaction)
    assert world.cluster.committed_values("t") == [b"a", b"b", b"c"]
    assert world.kinds()[-2:] == [ApiKey.PRODUCE, ApiKey.END_TXN]


def test_closing_aborts_an_open_transaction(world: World) -> None:
    world.producer.begin_transaction()
    world.settle(world.send(b"a"))
    world.producer.sender.initiate_close()
    world.producer.sender.run()
    (end,) = world.cluster.requests(ApiKey.END_TXN)
    assert not end.committed
    assert world.cluster.committed_values("t") == []


MAX_BLOCK_MS, DELIVERY_MS, SLACK_MS = 5_000, 8_000, 2_500
"""The slack is a request that is under way, and the backoff of a connection."""


@pytest.mark.parametrize("call", ["commit", "abort", "offsets", "close", "close after offsets", "record", "flush"])
def test_every_wait_ends_if_the_cluster_never_comes_back(world: World, call: str) -> None:
    """With an error that says so, after the time that its setting allows: max.block.ms, or delivery.timeout.ms for
    records. `close` has both, one after the other."""
    producer = world.producer = world.made(
        max_block_ms=MAX_BLOCK_MS, delivery_timeout_ms=DELIVERY_MS, request_timeout_ms=1_000
    )
    world.call(producer.init_transactions)
    producer.begin_transaction()
    world.settle(world.send(b"a"))
    record = world.send(b"b")
    for node in (1, 2):
        world.cluster.stop(node)
    started_ms = world.cluster.clock.hi_res_milliseconds()

    def waited_ms() -> int:
        return world.cluster.clock.hi_res_milliseconds() - started_ms

    offsets = {TopicPartition("t", 0): OffsetAndMetadata(1)}
    if call in {"commit", "abort", "offsets"}:
        waits = {
            "commit": producer.commit_transaction,
            "abort": producer.abort_transaction,
            "offsets": lambda: producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata("g")),
        }
        with pytest.raises(KafkaTimeoutError, match=r"Timeout expired after 5000ms while awaiting"):
            world.call(waits[call])
        assert MAX_BLOCK_MS <= waited_ms() <= MAX_BLOCK_MS + SLACK_MS
    elif call.startswith("close"):
        if call == "close after offsets":
            world.manager.send_offsets_to_transaction(offsets, ConsumerGroupMetadata("g"))
        producer.sender.initiate_close()
        producer.sender.run()
        assert waited_ms() <= DELIVERY_MS + MAX_BLOCK_MS + SLACK_MS
        assert record.done()
    else:
        # A step that cannot be sent must not keep records from expiring.
        world.manager.send_offsets_to_transaction(offsets, ConsumerGroupMetadata("g"))
        if call == "record":
            world.settle(record)
        else:
            world.call(producer.flush)
        assert isinstance(record.exception(0), KafkaTimeoutError)
        assert DELIVERY_MS <= waited_ms() <= DELIVERY_MS + SLACK_MS


def test_forced_closing_tells_whoever_waits() -> None:
    world = World()
    world.producer.begin_transaction()
    future = world.send(b"a")
    result = world.manager.begin_commit()
    world.producer.sender.force_close()
    world.producer.sender.run()
    assert "closed forcefully" in str(result.error)
    assert future.exception(0) is not None


def test_group_metadata_is_checked() -> None:
    with pytest.raises(ValueError, match=r"member\.id is unknown"):
        ConsumerGroupMetadata("g", generation_id=3)
    with pytest.raises(ValueError, match="negative offset"):
        OffsetAndMetadata(-1)
