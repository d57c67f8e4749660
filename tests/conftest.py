"""Fixtures that the whole test suite shares."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from barnabas.common.log_safety import reset_limits
from oracles.java import JavaOracle, OracleUnavailableError

# How long an example takes says more of what else the machine does than of the code; what has to be quick has a test
# that counts.
settings.register_profile("barnabas", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("barnabas")

_OF_OTHERS = ("clients", "spark", "system")
"""Tests of whole processes: brokers that are killed, Spark, other projects' clients."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test of processes that fails is run once more, and the summary says so (RERUN).

    Other projects' clients have races of their own, and wait in real time on a machine that does other things. What is
    broken here fails twice. Tests of our own code by itself get no second try, and ``--reruns 0`` takes it from all.
    """
    if config.getoption("reruns") is not None:
        return
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and item.path.relative_to(here).parts[0] in _OF_OTHERS:
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.fixture(autouse=True)
def unlimited_log_lines() -> None:
    """A test sees its own log lines, although the tests before it have had as many as the limit allows."""
    reset_limits()


@pytest.fixture(scope="session")
def java_oracle() -> Iterator[JavaOracle]:
    """Apache Kafka's Java classes in a child process, one for each test worker.

    A machine without Java skips the tests that ask for it; a CI run must not lose them that way, so there it fails.
    """
    try:
        oracle = JavaOracle()
    except OracleUnavailableError as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(f"the Java oracle is not available: {reason}")
        pytest.skip(f"the Java oracle is not available: {reason}")
    with oracle:
        yield oracle


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Says how much of the protocol was compared with other implementations, and how much was fuzzed."""
    counted: Counter[str] = Counter()
    for report in terminalreporter.stats.get("passed", ()):
        counted.update({name: value for name, value in report.user_properties if isinstance(value, int)})
    for name, text in (
        ("message_versions", "message versions, each written and read again"),
        ("message_versions_java", "of them byte for byte and field by field equal to the Java client's"),
        ("message_versions_kafka_python", "of them byte for byte equal to kafka-python's"),
        ("fuzz_cases", "fuzzed cases"),
    ):
        if counted[name]:
            terminalreporter.write_line(f"{counted[name]:,} {text}")
