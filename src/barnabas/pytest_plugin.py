"""A pytest plug-in with brokers as fixtures. Installing the package activates it.

    def test_orders(barnabas_broker):
        producer = confluent_kafka.Producer({"bootstrap.servers": barnabas_broker.bootstrap_servers})

=========================== ===============================================================================
``barnabas_broker``         an empty broker for one test
``barnabas_session_broker`` a broker for all tests of a run, which must not use the same topics and groups
``barnabas_secured_broker`` an empty broker with TLS and SCRAM; ``client_settings`` has what a client needs
``barnabas_overrides``      the settings of all; redefine it, with any scope up to session, to change them
=========================== ===============================================================================

A fatal error in a broker, which would end the process of a standalone broker, fails its test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from barnabas.embedded import EmbeddedBroker


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Turns off pytest's assertion rewriting for this package; pytest calls this hook first.

    pytest rewrites the assertions of all modules of a package with a plug-in, but this package contains no tests.
    Rewriting takes time, and it can crash: a broker imports modules on demand on its own threads, and Python up to
    3.11.8 and 3.12.2 fails when two threads parse source at the same time.
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
    """A running, empty broker."""
    yield from _running(barnabas_overrides)


@pytest.fixture(scope="session")
def barnabas_session_broker(barnabas_overrides: Mapping[str, object]) -> Iterator[EmbeddedBroker]:
    """A running broker that all tests share."""
    yield from _running(barnabas_overrides)


@pytest.fixture
def barnabas_secured_broker(barnabas_overrides: Mapping[str, object]) -> Iterator[EmbeddedBroker]:
    """A running, empty broker with TLS and a SCRAM user; needs ``barnabas[security]``."""
    yield from _running(barnabas_overrides, "SASL_SSL")


def _running(overrides: Mapping[str, object], security: str = "PLAINTEXT") -> Iterator[EmbeddedBroker]:
    from barnabas.embedded import EmbeddedBroker  # pytest loads plug-ins even if they are unused

    with EmbeddedBroker(overrides=overrides, security=security) as broker:
        yield broker
    if broker.failed:
        pytest.fail("the broker has failed; its log says why", pytrace=False)
