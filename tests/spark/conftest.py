"""One Spark session for all tests of a process, and a broker beside it.

A session takes seconds to start, and its first query seconds more, so it is shared: a test leaves no query running, and
no setting changed. The stock connector's jars are on its class path where ``make setup`` has fetched them.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import sys
import uuid
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clients.broker_process import BrokerProcess
from spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_JARS = Path(__file__).resolve().parents[2] / "target" / "spark-jars"
_LOG_POSITION = pytest.StashKey[tuple[BrokerProcess, int]]()


def unavailable(reason: str) -> None:
    """A machine without Java skips these tests; a CI run must not lose them that way, so there it fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def stock_connector_jars() -> list[Path]:
    return sorted(SPARK_JARS.glob("*.jar"))


def pytest_itemcollected(item: pytest.Item) -> None:
    """What Spark's own Python code does, and we cannot help."""
    for text in (
        "ignore:unclosed.*socket:ResourceWarning",
        "ignore:subprocess .* is still running:ResourceWarning",
        "ignore:distutils Version classes are deprecated:DeprecationWarning",
    ):
        item.add_marker(pytest.mark.filterwarnings(text))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        unavailable("Spark needs Java 17 or later")
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    directory = tmp_path_factory.mktemp("spark")
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("barnabas tests")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={directory} -XX:+UseSerialGC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.local.dir", str(directory / "local"))
        # A task that fails in a test is meant to fail.
        .config("spark.task.maxFailures", "1")
        .config("spark.log.level", "OFF")
        .config("spark.jars", ",".join(map(str, stock_connector_jars())))
    )
    session = builder.getOrCreate()
    yield session
    session.stop()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module", autouse=True)
def _no_garbage_for_others() -> Iterator[None]:
    """Sockets of Spark's gateway are left to the garbage collector, whose warnings would fail whichever test comes
    next."""
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
def topics(bootstrap: str) -> Topics:
    return Topics(bootstrap)


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
