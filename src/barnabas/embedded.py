"""A broker inside this process, for tests and notebooks.

    from barnabas import EmbeddedBroker

    with EmbeddedBroker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

It is the broker that ``barnabas start`` runs, with real sockets and real files, and any client can talk to it. Its data
are in a temporary directory, which goes when the broker does, unless one is given. What is to go so soon need not be
done so thoroughly, and that makes it quick: nothing in there is synced to the disk, and the topics in which groups and
transactions are kept have one partition instead of fifty.

There may be several at once, in any thread. An error that would end the process of a broker does not end this one:
:attr:`EmbeddedBroker.failed` says so then, and the log why.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.kafka_raft_server import KafkaRaftServer
from barnabas.broker.storage_formatter import format_if_empty
from barnabas.log.scratch_directories import declare_scratch, forget_scratch

logger = logging.getLogger(__name__)

TEMPORARY: Final[Mapping[str, str]] = {
    # Fifty partitions each are for many brokers to share. Made by the first group, and closed again with the broker,
    # they are several times the work of everything else that a broker for one test does.
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
"""Settings of brokers whose data are temporary. One that keeps its data may be run by ``barnabas start`` some day, and
the number of these partitions must not change then."""


class EmbeddedBroker:
    """One node, broker and controller, on a free port of this machine."""

    def __init__(
        self,
        data_dir: str | Path | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        overrides: Mapping[str, object] | None = None,
    ) -> None:
        """``overrides`` are settings under Kafka's keys, such as ``{"num.partitions": 3}``."""
        self._given_dir = None if data_dir is None else Path(data_dir).absolute()
        self._host = host
        self._port = port
        given = {key: _text(value) for key, value in (overrides or {}).items()}
        self._overrides = given if data_dir is not None else {**TEMPORARY, **given}
        self._server: KafkaRaftServer | None = None
        self._data_dir: Path | None = None
        self._failed = False

    def start(self) -> Self:
        """Returns when clients can connect."""
        if self._server is not None:
            raise RuntimeError("the broker is running already")
        self._failed = False
        self._data_dir = self._given_dir or _scratch_dir()
        try:
            config = KafkaConfig.for_zero_configuration(
                self._data_dir, host=self._host, port=self._port, overrides=self._overrides
            )
            format_if_empty(config)
            server = KafkaRaftServer(config, exit_procedure=self._fail)
            server.startup()
        except BaseException:
            self._remove_data()
            raise
        self._server = server
        return self

    def stop(self) -> None:
        """Ends the broker; what it has written is gone, too, unless it was given a place."""
        server, self._server = self._server, None
        if server is not None:
            try:
                server.shutdown()
            finally:
                self._remove_data()

    def _fail(self, status: int) -> None:
        """Called where a broker of its own would exit: this process belongs to somebody else."""
        self._failed = True
        logger.critical("The embedded broker cannot go on; a broker by itself would exit with status %d now", status)

    def _remove_data(self) -> None:
        if self._given_dir is None and self._data_dir is not None:
            forget_scratch(self._data_dir)
            shutil.rmtree(self._data_dir, ignore_errors=True)
        self._data_dir = None

    @property
    def failed(self) -> bool:
        """Whether something went wrong in the broker that it cannot go on after; also when it is stopped by now."""
        return self._failed

    @property
    def server(self) -> KafkaRaftServer:
        """What is running."""
        if self._server is None:
            raise RuntimeError("the broker is not running: use it as a context manager, or call start()")
        return self._server

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, ``host:port``."""
        return self.server.bootstrap_servers

    @property
    def data_dir(self) -> Path:
        if self._data_dir is None:
            raise RuntimeError("the broker is not running")
        return self._data_dir

    @property
    def cluster_id(self) -> str:
        return self.server.cluster_id

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"EmbeddedBroker({self._server.bootstrap_servers if self._server else 'not running'})"


def _scratch_dir() -> Path:
    """A directory for data that nobody wants to see again: nothing in it is synced, which is half of the time."""
    directory = Path(tempfile.mkdtemp(prefix="barnabas-")).absolute()
    declare_scratch(directory)
    return directory


def _text(value: object) -> str:
    """A setting as a properties file has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)
