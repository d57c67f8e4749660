"""The broker of `broker_fixtures` for the tests of this folder."""

from __future__ import annotations

from broker_fixtures import (
    bootstrap,
    broker,
    leaks_of_other_projects,
    pytest_runtest_makereport,
    shared_broker,
    topic,
)

__all__ = [
    "bootstrap",
    "broker",
    "leaks_of_other_projects",
    "pytest_runtest_makereport",
    "shared_broker",
    "topic",
]
