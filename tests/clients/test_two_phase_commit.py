"""Transactions that another system decides about (KIP-939), across ``kill -9`` of the broker and of the producer.

The version of InitProducerId that has it is unstable: it takes two settings of the broker, and the client asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.waiting import until
from benchmarks.wire_client import WireClient
from confluent_kafka import Consumer, KafkaError, TopicPartition

from barnabas.clients.producer import KafkaProducer, PreparedTxnState
from barnabas.clients.producer.errors import IllegalStateError
from barnabas.common.errors import (
    BarnabasError,
    Errors,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionalIdAuthorizationError,
    UnsupportedVersionError,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from clients.broker_process import BrokerProcess

pytestmark = pytest.mark.mechanism("P14")

UNSTABLE = {"unstable.api.versions.enable": "true", "transaction.two.phase.commit.enable": "true"}
COMING_UP = {Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.COORDINATOR_NOT_AVAILABLE, Errors.NOT_COORDINATOR}


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """It is killed now and then."""
    with BrokerProcess(tmp_path_factory.mktemp("broker"), UNSTABLE) as running:
        yield running


def producer_of(bootstrap: str, name: str, **settings: Any) -> KafkaProducer:
    return KafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id=name,
        **{"transaction_two_phase_commit_enable": True, "max_block_ms": 30_000, **settings},
    )


def prepare(bootstrap: str, topic: str) -> PreparedTxnState:
    """A producer that prepares a transaction, and is gone."""
    with producer_of(bootstrap, topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"prepared")
        return producer.prepare_transaction()


def committed(bootstrap: str, topic: str) -> list[bytes]:
    """What readers of committed records see, up to the first transaction that is open."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values: list[bytes] = []
        while True:
            message = consumer.poll(20)
            assert message is not None, "the end was not reached"
            error = message.error()
            if error is None:
                values.append(message.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:
                return values
    finally:
        consumer.close()


@pytest.mark.parametrize("decided", [True, False])
def test_a_prepared_transaction_outlives_producer_and_broker(
    broker: BrokerProcess, topic: str, *, decided: bool
) -> None:
    note = str(prepare(broker.bootstrap_servers, topic))
    broker.kill()
    broker.start()
    bootstrap = broker.bootstrap_servers
    assert committed(bootstrap, topic) == []
    with producer_of(bootstrap, topic) as producer:
        producer.init_transactions(keep_prepared_txn=True)
        with pytest.raises(IllegalStateError):
            producer.begin_transaction()
        with pytest.raises(IllegalStateError):
            producer.send(topic, b"late")
        # What the other system knows of is this transaction, or an earlier one.
        known = PreparedTxnState.parse(note) if decided else PreparedTxnState(77, 0)
        producer.complete_transaction(known)
        producer.complete_transaction(known)  # there is nothing left to complete
        with producer.transaction():
            producer.send(topic, b"next")
    assert committed(bootstrap, topic) == ([b"prepared", b"next"] if decided else [b"next"])


def test_it_may_take_several_attempts(broker: BrokerProcess, topic: str) -> None:
    state = prepare(broker.bootstrap_servers, topic)
    for _ in range(2):
        with producer_of(broker.bootstrap_servers, topic) as attempt:
            attempt.init_transactions(keep_prepared_txn=True)
    broker.kill()
    broker.start()
    with (
        producer_of(broker.bootstrap_servers, topic) as fenced,
        producer_of(broker.bootstrap_servers, topic) as last,
    ):
        fenced.init_transactions(keep_prepared_txn=True)
        last.init_transactions(keep_prepared_txn=True)
        with pytest.raises(ProducerFencedError):
            fenced.commit_transaction()
        last.complete_transaction(state)
    assert committed(broker.bootstrap_servers, topic) == [b"prepared"]


def test_without_keeping_it_is_aborted(bootstrap: str, topic: str) -> None:
    state = prepare(bootstrap, topic)
    with producer_of(bootstrap, topic) as producer:
        producer.init_transactions()
        producer.complete_transaction(state)
        with producer.transaction():
            producer.send(topic, b"next")
    assert committed(bootstrap, topic) == [b"next"]


def test_both_phases_in_one_producer(bootstrap: str, topic: str) -> None:
    with producer_of(bootstrap, topic) as producer:
        producer.init_transactions()
        for number in range(3):
            producer.begin_transaction()
            with pytest.raises(IllegalStateError):
                producer.complete_transaction(PreparedTxnState())
            producer.send(topic, b"%d" % number)
            state = producer.prepare_transaction()
            with pytest.raises(IllegalStateError):
                producer.send(topic, b"late")
            producer.complete_transaction(state if number != 1 else PreparedTxnState())
    assert committed(bootstrap, topic) == [b"0", b"2"]


def test_preparing_takes_two_phase_commit(bootstrap: str, topic: str) -> None:
    with producer_of(bootstrap, topic, transaction_two_phase_commit_enable=False) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(InvalidTxnStateError):
            producer.prepare_transaction()
        producer.abort_transaction()


@pytest.mark.parametrize(
    ("overrides", "error"),
    [
        ({}, UnsupportedVersionError),
        ({"unstable.api.versions.enable": "true"}, TransactionalIdAuthorizationError),
    ],
)
def test_brokers_that_do_not_have_it(
    overrides: dict[str, str], error: type[BarnabasError], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with (
        BrokerProcess(tmp_path_factory.mktemp("broker"), overrides) as plain,
        producer_of(plain.bootstrap_servers, "any") as producer,
        pytest.raises(error),
    ):
        producer.init_transactions()


def test_on_the_wire(broker: BrokerProcess, topic: str) -> None:
    """The identity of the transaction stays, and that of the producer goes on; the latter ends it."""
    state = prepare(broker.bootstrap_servers, topic)
    request = InitProducerIdRequest(
        transactional_id=topic, transaction_timeout_ms=1000, keep_prepared_txn=True, enable2_pc=True
    )
    for epoch in (1, 2):
        with WireClient(broker.bootstrap_servers) as client:
            answer = client.ask(request, 6, InitProducerIdResponse)
        assert answer.error_code == Errors.NONE
        assert (answer.producer_id, answer.producer_epoch) == (state.producer_id, state.epoch + epoch)
        assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == state
    broker.kill()
    broker.start()
    end = EndTxnRequest(transactional_id=topic, producer_id=state.producer_id, committed=True)
    with WireClient(broker.bootstrap_servers) as client:
        # The broker answers before it has read its transactions again, and says so; clients ask once more.
        end.producer_epoch = state.epoch
        refusals: list[int] = []

        def refused() -> bool:
            refusals.append(client.ask(end, 5, EndTxnResponse).error_code)
            return refusals[-1] not in COMING_UP

        until(refused, what=lambda: refusals)
        assert refusals[-1] == Errors.PRODUCER_FENCED
        end.producer_epoch = state.epoch + 2
        ended = client.ask(end, 5, EndTxnResponse)
    assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (0, state.producer_id, state.epoch + 3)
    assert committed(broker.bootstrap_servers, topic) == [b"prepared"]
