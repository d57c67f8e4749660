"""A broker for the tests of this folder, and its log beside each failure."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator

import pytest

from clients.broker_process import BrokerProcess

_LOG_POSITION = pytest.StashKey[tuple[BrokerProcess, int]]()


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One for all tests of a worker. That it ends well, without an error in its log, is part of what is tested."""
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
    return re.sub(r"[^a-zA-Z0-9._-]+", "-", f"{request.module.__name__.rpartition('.')[2]}.{request.node.name}")[:200]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and _LOG_POSITION in item.stash:
        broker, position = item.stash[_LOG_POSITION]
        report.sections.append(("Log of the broker", broker.log(position)))
    return report
