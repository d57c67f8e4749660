"""A broker for the tests of a folder, and its log beside each failure: a conftest.py imports these names.

The tests that use them say how Kafka behaves, so they hold for Apache Kafka as well. With ``KAFKA_BOOTSTRAP_SERVERS``
set, they run against the single-node cluster at that address, and a test that fails there is a wrong test.
"""

from __future__ import annotations

import gc
import os
import re
import uuid
import warnings
from collections.abc import Generator, Iterator

import pytest

from clients.broker_process import BrokerProcess

_LOG_POSITION = pytest.StashKey[tuple[BrokerProcess, int]]()


@pytest.fixture(scope="module", autouse=True)
def leaks_of_other_projects() -> Iterator[None]:
    """Sockets that other projects' clients, or Spark's gateway, forget to close are found here, and not in whatever
    test comes next."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One for all tests of a worker. That it ends well, without an error in its log, is part of what is tested."""
    if address := os.environ.get("KAFKA_BOOTSTRAP_SERVERS"):
        yield BrokerProcess.elsewhere(tmp_path_factory.mktemp("broker"), address)
        return
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def broker(shared_broker: BrokerProcess, request: pytest.FixtureRequest) -> BrokerProcess:
    """The shared broker; what it logs from here on belongs to this test."""
    request.node.stash[_LOG_POSITION] = (shared_broker, shared_broker.log_size())
    return shared_broker


@pytest.fixture
def bootstrap(broker: BrokerProcess) -> str:
    return broker.bootstrap_servers


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test has; nothing of that name exists."""
    words = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name).strip("-")
    return f"{words[:100]}-{uuid.uuid4().hex[:8]}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and _LOG_POSITION in item.stash:
        broker, position = item.stash[_LOG_POSITION]
        report.sections.append(("Log of the broker", broker.log(position)))
    return report
