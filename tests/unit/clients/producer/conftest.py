"""Fixtures of the producer's tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from oracles.java import OracleUnavailableError
from oracles.producer import ProducerOracle


@pytest.fixture(scope="session")
def producer_oracle() -> Iterator[ProducerOracle]:
    """Kafka's own producer classes in a child process."""
    try:
        oracle = ProducerOracle()
    except OracleUnavailableError as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(f"the Java oracle is not available: {reason}")
        pytest.skip(f"the Java oracle is not available: {reason}")
    with oracle:
        yield oracle
