"""Fixtures that the whole test suite shares."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from oracles.java import JavaOracle, OracleUnavailableError


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
