"""A broker with two log directories, the Java client and Kafka's command line tools, one of each for a test worker.

As with the other clients, what the tests say holds for Apache Kafka. With ``KAFKA_BOOTSTRAP_SERVERS``,
``KAFKA_BOOTSTRAP_CONTROLLERS`` and ``KAFKA_LOG_DIRS`` (two, with a comma) they run against a node of it that is on this
machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from clients.broker_process import BrokerProcess
from oracles.java import OracleUnavailableError
from oracles.java_client import JavaClient
from oracles.kafka_tools import KafkaTools


@contextmanager
def java_or_skip() -> Iterator[None]:
    """A machine without Java skips what is in here; a CI run must not lose it that way, so there it fails."""
    try:
        yield
    except OracleUnavailableError as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(f"Apache Kafka cannot be run here: {reason}")
        pytest.skip(f"Apache Kafka cannot be run here: {reason}")


@pytest.fixture(scope="session")
def client() -> Iterator[JavaClient]:
    with java_or_skip():
        made = JavaClient()
    with made:
        yield made


@pytest.fixture(scope="session")
def tools() -> Iterator[KafkaTools]:
    with java_or_skip():
        made = KafkaTools()
    with made:
        yield made


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Takes the place of the one that the other clients are tried against."""
    directory = tmp_path_factory.mktemp("broker")
    if address := os.environ.get("KAFKA_BOOTSTRAP_SERVERS"):
        yield BrokerProcess.elsewhere(directory, address)
        return
    with BrokerProcess(directory, {"log.dirs": f"{directory / 'one'},{directory / 'two'}"}) as broker:
        yield broker


@pytest.fixture
def bootstrap_controller(broker: BrokerProcess) -> str:
    if address := os.environ.get("KAFKA_BOOTSTRAP_CONTROLLERS"):
        return address
    found = re.search(r"Listening on CONTROLLER://(\S+)", broker.log())
    assert found
    return found[1]


@pytest.fixture
def log_dirs(broker: BrokerProcess) -> tuple[str, str]:
    if given := os.environ.get("KAFKA_LOG_DIRS"):
        one, two = given.split(",")
        return one, two
    return str(broker.data_dir.with_name("one")), str(broker.data_dir.with_name("two"))
