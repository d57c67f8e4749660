"""A pytest plug-in: brokers as fixtures. It is there as soon as the package is installed.

    def test_orders(barnabas_broker):
        producer = confluent_kafka.Producer({"bootstrap.servers": barnabas_broker.bootstrap_servers})

=========================== ===============================================================================
``barnabas_broker``         a broker for one test, with nothing in it
``barnabas_session_broker`` one for all tests of a run, which have to keep out of each other's way
``barnabas_overrides``      the settings of both; redefine it, with any scope up to session, to change them
=========================== ===============================================================================

A broker that fails, in a way that would end its process if it had one of its own, fails the test that it is for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from barnabas.embedded import EmbeddedBroker


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """The first that is called. pytest rewrites the assertions of all modules of a package with a plug-in, and so of
    this whole one: but there is no test in it.

    It would not only take time. A broker imports what it needs when it needs it, on threads of its own; and Python up
    to 3.11.8 and 3.12.2 does not bear that two of them, or one of them and the test, parse something at once.
    """
    hook = pluginmanager.rewrite_hook
    marked, cache = getattr(hook, "_must_rewrite", None), getattr(hook, "_marked_for_rewrite_cache", None)
    if isinstance(marked, set) and isinstance(cache, dict):
        marked.discard(__name__.partition(".")[0])
        cache.clear()


@pytest.fixture(scope="session")
def barnabas_overrides() -> Mapping[str, object]:
    """Settings under Kafka's keys."""
    return {}


@pytest.fixture
def barnabas_broker(barnabas_overrides: Mapping[str, object]) -> Iterator[EmbeddedBroker]:
    """A running broker with nothing in it."""
    yield from _running(barnabas_overrides)


@pytest.fixture(scope="session")
def barnabas_session_broker(barnabas_overrides: Mapping[str, object]) -> Iterator[EmbeddedBroker]:
    """A running broker that all tests share."""
    yield from _running(barnabas_overrides)


def _running(overrides: Mapping[str, object]) -> Iterator[EmbeddedBroker]:
    from barnabas.embedded import EmbeddedBroker  # pytest loads plug-ins that nobody uses

    with EmbeddedBroker(overrides=overrides) as broker:
        yield broker
    if broker.failed:
        pytest.fail("the broker has failed; its log says why", pytrace=False)
