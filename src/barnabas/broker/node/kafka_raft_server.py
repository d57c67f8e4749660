"""Runs a node: a broker, a controller, or both in one process."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError
from pathlib import Path

from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.node.broker_server import BrokerServer
from barnabas.broker.node.broker_state import BrokerState
from barnabas.broker.node.controller_server import ControllerServer
from barnabas.broker.node.shared_server import SharedServer
from barnabas.broker.node.stop_steps import run_steps
from barnabas.common import log_safety
from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.dataclass import replace
from barnabas.common.errors import BarnabasError
from barnabas.common.shutdownable_thread import ExitProcedure, exit_process
from barnabas.log.dirs.durable_file import make_data_dir
from barnabas.log.dirs.log_dirs import readable_by_others
from barnabas.log.dirs.meta_properties import (
    META_PROPERTIES_FILE,
    MetaProperties,
    random_directory_id,
    refuse_data_without_identity,
)
from barnabas.log.dirs.meta_properties_ensemble import MetaPropertiesEnsemble
from barnabas.log.manager.log_startup import RecoveryListener
from barnabas.log.storage_errors import disk_access
from barnabas.network.reactor.channel_factory import ChannelFactory

logger = logging.getLogger(__name__)


class StartupError(BarnabasError):
    """The node cannot start; the message says why and what to do."""


class KafkaRaftServer:
    """Starts and stops the roles of a node in the right order.

    The controller starts first, because the broker has to register with one, and stops last. If startup fails half
    way, the parts that were started are stopped.
    """

    def __init__(
        self,
        config: KafkaConfig,
        *,
        clock: Clock = SYSTEM_CLOCK,
        exit_procedure: ExitProcedure = exit_process,
        on_loaded: Callable[[], None] = lambda: None,
        on_recovery: RecoveryListener | None = None,
        channel_factories: Mapping[str, ChannelFactory] | None = None,
    ) -> None:
        """``exit_procedure`` is called after a fatal error; by default it ends the process.

        ``on_loaded`` is called, on any thread, when a serving broker has loaded its deferred parts.
        ``on_recovery`` is called every few seconds while logs are recovered after a crash.
        ``channel_factories`` replaces, by listener name, the channel factory of the listener's security protocol.
        """
        if config.is_broker and not config.is_controller:
            raise StartupError(
                "process.roles=broker takes the metadata log from a controller on another node, and fetching it is not "
                "supported yet; use process.roles=broker,controller"
            )
        log_safety.install()
        self.config = config
        self.failed = False
        """Whether a fatal error occurred. Only useful with an exit procedure that does not end the process."""
        self._clock = clock
        self._end_process = exit_procedure
        self._on_loaded = on_loaded
        self._on_recovery = on_recovery
        self._channel_factories = channel_factories
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        """Serializes concurrent calls of shutdown()."""
        self._shared: SharedServer | None = None
        self._to_close: SharedServer | None = None
        self.controller: ControllerServer | None = None
        self.broker: BrokerServer | None = None
        self._http: object | None = None
        self._closing: list[Callable[[], None]] = []

    # -- start

    def startup(self) -> None:
        """Starts the node; returns when it serves requests."""
        config = self.config
        ensemble = initialize_log_dirs(config)
        assert ensemble.cluster_id is not None
        directory_id = ensemble.properties[config.metadata_log_dir].directory_id
        assert directory_id is not None
        try:
            shared = self._shared = self._to_close = SharedServer(
                config, ensemble.cluster_id, directory_id, self._clock, self._fail, self._channel_factories
            )
            if config.is_broker:
                # Locks the directories before the metadata log in one of them is opened.
                self.broker = BrokerServer(config, shared, self._on_recovery)
            if config.is_controller:
                self.controller = ControllerServer(config, shared)
                self.controller.startup()
            if self.broker is not None:
                self.broker.startup()
                if self.controller is not None:
                    self.broker.report_quotas_of(self.controller.quotas)
                self.broker.load_in_background(
                    [] if self.controller is None else self.controller.loading(), self._on_loaded
                )
            self._start_http()
            self._start_otlp()
        except BaseException as error:
            self._stop()
            if self.failed and isinstance(error, CancelledError):
                raise StartupError("the node failed while it was starting; its log says why") from None
            raise

    def _start_http(self) -> None:
        listener = self.config.http_listener
        if listener is None:
            return
        from barnabas.broker.node.exported_metrics import ExportedMetrics
        from barnabas.broker.node.http_endpoint import HttpEndpoint  # most brokers have no HTTP endpoint
        from barnabas.broker.node.node_quotas import quota_report
        from barnabas.metrics.prometheus import render

        shared = self._shared
        assert shared is not None
        documents = {}
        quotas = [one.quotas for one in (self.broker, self.controller) if one is not None and one.quotas is not None]
        if quotas:
            documents["/quotas"] = quota_report(quotas, shared.metrics, self._clock, self.config.node_id)
        metrics = ExportedMetrics(self.config, shared, self.broker, self.controller)
        http = HttpEndpoint(
            listener.host,
            listener.port,
            lambda: render(metrics.collect()),
            self.health,
            documents,
            hosts=self._http_hosts(),
            clock=self._clock,
        )
        self._http = http
        self._closing.append(http.close)

    def _start_otlp(self) -> None:
        if self.config.value("barnabas.otlp.endpoint") is None:
            return
        from barnabas.broker.node.node_otlp import start_otlp  # most brokers export nothing

        self._closing.append(start_otlp(self.config, self.shared, self.broker, self.controller))

    def _http_hosts(self) -> list[str]:
        """Returns the names of this machine: its host name, the advertised hosts, and the configured names."""
        config = self.config
        advertised = (*config.advertised_listeners, *config.advertised_controller_listeners)
        return [socket.gethostname(), *(endpoint.host for endpoint in advertised), *config.http_hosts]

    # -- identity and state

    @property
    def cluster_id(self) -> str:
        assert self._shared is not None
        return self._shared.cluster_id

    @property
    def shared(self) -> SharedServer:
        assert self._shared is not None
        return self._shared

    @property
    def bootstrap_servers(self) -> str:
        """The address that clients connect to: the first advertised listener."""
        if self.broker is None or not self.broker.advertised:
            raise StartupError("the node has no broker that runs")
        first = self.broker.advertised[0]
        host = f"[{first.host}]" if ":" in first.host else first.host
        return f"{host}:{first.port}"

    @property
    def http_address(self) -> str | None:
        return getattr(self._http, "address", None)

    @property
    def has_large_requests(self) -> bool:
        """Whether the broker has requests in flight that consist of very many objects."""
        serving = None if self.broker is None else self.broker.serving
        return serving is not None and serving.channel.has_bulk

    def health(self) -> dict[str, object]:
        """Returns the content of ``/health``."""
        state = BrokerState.NOT_RUNNING if self.broker is None else self.broker.state
        is_active = self.controller is not None and self.controller.is_active
        up = state is BrokerState.RUNNING if self.broker is not None else self.controller is not None
        return {
            "status": "up" if up else "down",
            "node": self.config.node_id,
            "cluster": self.cluster_id,
            "broker": state.name,
            "active_controller": is_active,
        }

    # -- stop

    def _fail(self, status: int) -> None:
        """Handles a fatal error. Runs on any thread of the node, so it does not stop the node itself."""
        self.failed = True
        self._end_process(status)
        if self.broker is not None:
            self.broker.abandon_startup()
        self._stopped.set()

    def await_shutdown(self, stop: threading.Event | None = None) -> None:
        """Blocks until the node is asked to stop."""
        (self._stopped if stop is None else stop).wait()

    def shutdown(self) -> None:
        """Stops the node and returns when it has stopped. Idempotent."""
        with self._lock:
            self._stop()
        self._stopped.set()

    def _stop(self) -> None:
        steps = [*reversed(self._closing)]
        self._closing = []
        broker, self.broker = self.broker, None
        controller, self.controller = self.controller, None
        shared, self._to_close = self._to_close, None
        if broker is not None:
            steps.append(broker.shutdown)
        if controller is not None:
            steps.append(controller.shutdown)
        if shared is not None:
            steps.append(shared.close)
        run_steps(steps)


def initialize_log_dirs(config: KafkaConfig) -> MetaPropertiesEnsemble:
    """Reads the identity of the log directories; raises `StartupError` if they are not formatted.

    A directory that was added to the node gets the identity of the others. A directory without a directory id, from an
    earlier version, gets one.
    """
    directories = dict.fromkeys((*config.log_dirs, config.metadata_log_dir))
    ensemble = MetaPropertiesEnsemble.load(directories, config.metadata_log_dir)
    for path in ensemble.empty_dirs:
        refuse_data_without_identity(path)
    if not ensemble.properties and not ensemble.failed_dirs:
        raise StartupError(
            f"{', '.join(map(str, directories))} is not formatted; run `barnabas format` with the same configuration, "
            "or start with --format"
        )
    if not ensemble.properties:
        raise StartupError("; ".join(map(str, ensemble.failed_dirs.values())))
    ensemble.verify(expected_node_id=config.node_id, require_at_least_one_valid=True, require_metadata_log_dir=True)
    for path, found in ensemble.properties.items():
        if found.cluster_id is None or found.node_id is None:
            missing = "cluster.id" if found.cluster_id is None else "broker.id"
            raise StartupError(
                f"{path / META_PROPERTIES_FILE} does not say {missing}: restore the file from a backup, or add the line"
            )
    for path in directories:
        identity = ensemble.properties.get(path)
        if path in ensemble.failed_dirs or (identity is not None and identity.directory_id is not None):
            continue
        if identity is None:
            if path == config.metadata_log_dir:
                raise StartupError(
                    f"the directory of the metadata log, {path}, is not formatted although others of this node are; "
                    "if its disk is not mounted, mount it"
                )
            logger.info("%s is new to this node and is formatted like the others", path)
            with disk_access("create", path):
                make_data_dir(path)
            identity = MetaProperties(cluster_id=ensemble.cluster_id, node_id=config.node_id)
        replace(identity, directory_id=random_directory_id()).write(path)
    _warn_of_readable_data(directories)
    return MetaPropertiesEnsemble.load(directories, config.metadata_log_dir)


def _warn_of_readable_data(log_dirs: Iterable[Path]) -> None:
    """Warns the operator of directories that other users can read; those of earlier versions keep their modes."""
    found = {path: readable for path in log_dirs if (readable := readable_by_others(path)) is not None}
    if found:
        logger.warning(
            "Other users of this machine can read data of this node, such as %s; to keep them out: chmod -R o-rwx %s",
            next(iter(found.values())),
            " ".join(map(str, found)),
        )
