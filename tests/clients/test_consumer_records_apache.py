"""Our consumer reads from Apache Kafka's broker: the tests of `test_consumer_records`, all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from clients.broker_process import BrokerProcess
from clients.test_consumer_records import *  # noqa: F403 - these are the tests
from oracles.java import OracleUnavailableError
from oracles.kafka_server import KafkaServer, ensure_available

pytestmark = pytest.mark.java


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    try:
        ensure_available()
    except OracleUnavailableError as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(f"Apache Kafka is not available: {reason}")
        pytest.skip(f"Apache Kafka is not available: {reason}")
    server = KafkaServer(
        tmp_path_factory.mktemp("apache"),
        transaction_state_log_replication_factor="1",
        transaction_state_log_min_isr="1",
        offsets_topic_num_partitions="3",
        transaction_state_log_num_partitions="3",
    )
    server.format()
    with server:
        yield BrokerProcess.elsewhere(tmp_path_factory.mktemp("broker"), server.bootstrap_servers)
