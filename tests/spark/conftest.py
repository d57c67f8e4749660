"""One Spark session for all tests of a process, and a broker beside it.

A session takes seconds to start, and its first query seconds more, so it is shared: a test leaves no query running, and
no setting changed. The stock connector's jars are on its class path where ``make setup`` has fetched them.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from broker_fixtures import (
    bootstrap,
    broker,
    leaks_of_other_projects,
    pytest_runtest_makereport,
    shared_broker,
    topic,
)
from spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "bootstrap",
    "broker",
    "leaks_of_other_projects",
    "pytest_runtest_makereport",
    "shared_broker",
    "topic",
]

SPARK_JARS = Path(__file__).resolve().parents[2] / "target" / "spark-jars"


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
        # A test's queries are too short for the optimizing compiler, which took two fifths of all processor time.
        .config(
            "spark.driver.extraJavaOptions",
            f"-Dderby.system.home={directory} -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        )
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


@pytest.fixture
def connect_port() -> Iterator[None]:
    """Keeps tests of other processes from starting a Connect server: a local one always takes port 15002."""
    import fcntl

    with (Path(tempfile.gettempdir()) / "barnabas-tests-connect.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def topics(bootstrap: str) -> Topics:
    return Topics(bootstrap)
