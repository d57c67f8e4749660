"""Runs a broker inside this process, for tests and notebooks.

    from barnabas import EmbeddedBroker

    with EmbeddedBroker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

It is the same broker that ``barnabas start`` runs, with real sockets and files, for any client. Unless a data directory
is given, its data are in a temporary directory, which is deleted when the broker stops. For speed, temporary data are
not synced to disk, and the internal topics of groups and transactions have one partition instead of fifty.

``EmbeddedBroker(security="SASL_SSL")`` is secured: it has a certificate of an authority made for it and SCRAM users.
:attr:`EmbeddedBroker.client_settings` has what a client needs to connect.

Several brokers may run at once, in any thread. A fatal error, which would end the process of a broker, does not end
this one: it sets :attr:`EmbeddedBroker.failed`, and the log has the reason.
"""

from __future__ import annotations

import gc
import logging
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.node.kafka_raft_server import KafkaRaftServer
from barnabas.broker.node.storage_formatter import format_if_empty
from barnabas.log.dirs.scratch_directories import declare_scratch, forget_scratch

if TYPE_CHECKING:
    from barnabas.broker.node.local_security import LocalSecurity

logger = logging.getLogger(__name__)

TEMPORARY: Final[Mapping[str, str]] = {
    # Fifty partitions each are meant for many brokers. Creating them for the first group and closing them with the
    # broker costs several times as much as everything else that a broker does for one test.
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
"""Settings of brokers with temporary data. Permanent data may be used with ``barnabas start`` later, and the number of
these partitions must not change then."""


class EmbeddedBroker:
    """Runs one node, broker and controller, on a free port of this machine."""

    def __init__(
        self,
        data_dir: str | Path | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        overrides: Mapping[str, object] | None = None,
        security: str = "PLAINTEXT",
        users: Mapping[str, str] | None = None,
    ) -> None:
        """``overrides`` are settings under Kafka's keys, such as ``{"num.partitions": 3}``.

        ``security`` is a security protocol of Kafka. With SASL there are ``users``, names and passwords for
        SCRAM-SHA-256 that are created with new data; the default is one, ``admin``, with a random password. TLS needs
        ``barnabas[security]``, which makes the certificates.
        """
        self._given_dir = None if data_dir is None else Path(data_dir).absolute()
        self._host = host
        self._port = port
        given = {key: _text(value) for key, value in (overrides or {}).items()}
        self._overrides = given if data_dir is not None else {**TEMPORARY, **given}
        self._security: LocalSecurity | None = None
        if security != "PLAINTEXT":
            with _collections_postponed():
                from barnabas.broker.node.local_security import LocalSecurity  # most brokers are open

                self._security = LocalSecurity.create(security, users, host)
        self._server: KafkaRaftServer | None = None
        self._data_dir: Path | None = None
        self._failed = False

    def start(self) -> Self:
        """Starts the broker; returns when clients can connect."""
        if self._server is not None:
            raise RuntimeError("the broker is running already")
        self._failed = False
        self._data_dir = self._given_dir or _scratch_dir()
        security = self._security
        secured = {} if security is None else security.broker_settings(self._host, self._port)
        try:
            config = KafkaConfig.for_zero_configuration(
                self._data_dir, host=self._host, port=self._port, overrides={**secured, **self._overrides}
            )
            with _collections_postponed():
                format_if_empty(config, add_scram=() if security is None else security.initial_users)
                server = KafkaRaftServer(config, exit_procedure=self._fail)
                server.startup()
        except BaseException:
            self._remove_data()
            raise
        self._server = server
        return self

    def stop(self) -> None:
        """Stops the broker, and deletes its data unless a data directory was given."""
        server, self._server = self._server, None
        if server is not None:
            try:
                server.shutdown()
            finally:
                self._remove_data()

    def _fail(self, status: int) -> None:
        """Replaces the exit of the process after a fatal error: this process belongs to the caller."""
        self._failed = True
        logger.critical("The embedded broker had a fatal error; a standalone broker would exit with status %d", status)

    def _remove_data(self) -> None:
        if self._given_dir is None and self._data_dir is not None:
            forget_scratch(self._data_dir)
            shutil.rmtree(self._data_dir, ignore_errors=True)
        self._data_dir = None

    @property
    def failed(self) -> bool:
        """Whether a fatal error occurred in the broker; also valid after it has stopped."""
        return self._failed

    @property
    def server(self) -> KafkaRaftServer:
        """The running node."""
        if self._server is None:
            raise RuntimeError("the broker is not running: use it as a context manager, or call start()")
        return self._server

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, ``host:port``."""
        return self.server.bootstrap_servers

    @property
    def client_settings(self) -> dict[str, str]:
        """The settings of a client, under Kafka's keys: address, security protocol, trusted authority, user."""
        found = {"bootstrap.servers": self.bootstrap_servers}
        return found if self._security is None else found | self._security.client_settings

    @property
    def data_dir(self) -> Path:
        """The directory that has the broker's data."""
        if self._data_dir is None:
            raise RuntimeError("the broker is not running")
        return self._data_dir

    @property
    def cluster_id(self) -> str:
        """The id of the cluster, which new data get at their first start."""
        return self.server.cluster_id

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"EmbeddedBroker({self._server.bootstrap_servers if self._server else 'not running'})"


@contextmanager
def _collections_postponed() -> Iterator[None]:
    """Runs no garbage collection of its own accord: a start makes many objects, and nearly all of them stay.

    A full collection would take longer than most of the other steps of a start: 20 ms, and more in a large process.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _scratch_dir() -> Path:
    """Makes a directory for temporary data: nothing in it is synced, which saves half of the time."""
    directory = Path(tempfile.mkdtemp(prefix="barnabas-")).absolute()
    declare_scratch(directory)
    return directory


def _text(value: object) -> str:
    """Converts a setting to its text in a properties file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)
