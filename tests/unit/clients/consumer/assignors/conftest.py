"""Fixtures of the assignors' tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from oracles.assignors import AssignorOracle
from oracles.java import OracleUnavailableError


@pytest.fixture(scope="session")
def assignor_oracle() -> Iterator[AssignorOracle]:
    """Kafka's own assignors in a child process."""
    try:
        oracle = AssignorOracle()
    except OracleUnavailableError as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(f"the Java oracle is not available: {reason}")
        pytest.skip(f"the Java oracle is not available: {reason}")
    with oracle:
        yield oracle
