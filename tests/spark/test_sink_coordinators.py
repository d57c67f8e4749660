"""The sink's tasks and driver against real coordinators, ours and Apache Kafka's, without Spark around them (S04)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from barnabas.spark.sink_columns import SinkColumns
from barnabas.spark.sink_messages import Outcome, TaskWritten
from barnabas.spark.sink_options import SinkOptions
from barnabas.spark.transaction_client import TransactionClient
from barnabas.spark.transaction_driver import TransactionDriver
from barnabas.spark.transaction_names import transactional_id
from barnabas.spark.transaction_task import JobAbortedError, TaskIdentity, TransactionalTask
from clients.broker_process import BrokerProcess
from oracles.java import OracleUnavailableError
from oracles.kafka_server import KafkaServer, ensure_available
from spark.conftest import unavailable
from spark.sink_streams import committed_values, wait_for_no_transactions, wait_for_values
from spark.topics import Topics

pytestmark = pytest.mark.mechanism("S04")


@pytest.fixture(params=["barnabas", pytest.param("kafka", marks=[pytest.mark.nightly, pytest.mark.java])])
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "barnabas":
        with BrokerProcess(tmp_path) as broker:
            yield broker.bootstrap_servers
        return
    try:
        ensure_available()
    except OracleUnavailableError as error:
        unavailable(str(error))
    server = KafkaServer(tmp_path, transaction_state_log_replication_factor="1", transaction_state_log_min_isr="1")
    server.format()
    server.start()
    try:
        yield server.bootstrap_servers
    finally:
        server.stop()


def test_decided_and_completed_at_last(servers: str, topic: str) -> None:
    """Every step that a driver can be cut off between, and what the next one makes of it."""
    Topics(servers).create(topic, 2)
    options = SinkOptions.of({"kafka.bootstrap.servers": servers, "topic": topic}, is_stream=True)
    job = f"barnabas-spark-{uuid.uuid4()}"

    runs = 0

    def write(batch: int) -> list[TaskWritten]:
        return [
            TransactionalTask(options, SinkColumns(topic, ("value",)), TaskIdentity(job, str(runs), task, batch)).write(
                iter([pa.record_batch({"value": [f"{batch}/{task}"]})])
            )
            for task in range(2)
        ]

    def outcomes(messages: list[TaskWritten]) -> set[Outcome]:
        return {one.outcome for one in messages}

    with TransactionClient(options.settings) as client:
        driver = TransactionDriver(job, client)
        # Nobody decides: the next attempt gets rid of what the first has left.
        write(0)
        messages = write(0)
        assert committed_values(servers, topic) == []
        driver.commit(messages, 0)
        driver.commit(messages, 0)  # no error, and nothing more
        driver.abort(messages, 0, 2)
        # Which is the end of a run: what it has still going comes too late.
        with pytest.raises(JobAbortedError):
            write(1)
        runs += 1
        # The first of two transactions is ended, and the driver dies.
        messages = write(1)
        assert outcomes(messages) == {Outcome.WRITTEN}
        dying = _Dying(job, client)
        with pytest.raises(InterruptedError):
            dying.commit(messages, 1)
        driver.abort(messages, 1, 2)
        runs += 1
        first = {transactional_id(job, 0): messages[0].transaction}
        assert client.end_transactions({name: one for name, one in first.items() if one}, commit=True) == frozenset()
        messages = write(1)
        assert outcomes(messages) == {Outcome.DECIDED}
        driver.commit(messages, 1)
        # All is ended, and the batch is repeated all the same; then an older one.
        assert outcomes(write(1)) == {Outcome.DECIDED}
        assert outcomes(write(0)) == {Outcome.DECIDED}
        # Decided, and aborted before it was ended: that task writes again, the other one does not.
        messages = write(2)
        with pytest.raises(InterruptedError):
            dying.commit(messages, 2)
        assert messages[1].transaction is not None
        lost = {transactional_id(job, 1): messages[1].transaction}
        assert client.end_transactions(lost, commit=False) == frozenset()
        assert client.end_transactions(lost, commit=True) == frozenset(lost)
        messages = write(2)
        assert [one.outcome for one in messages] == [Outcome.DECIDED, Outcome.WRITTEN]
        driver.commit(messages, 2)
    wait_for_no_transactions(servers)
    expected = [f"{batch}/{task}" for batch in range(3) for task in range(2)]
    assert wait_for_values(servers, topic, expected) == expected


class _Dying(TransactionDriver):
    """Dies when it has decided."""

    def complete(self, decision: object) -> None:
        raise InterruptedError
