"""Connects the sockets of a node role to its handlers; a broker has one instance, and a controller has one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.handlers.broker_api_versions import BrokerApiVersionManager
from barnabas.broker.node.listener_security import ListenerSecurity, Users
from barnabas.common.clock import Clock
from barnabas.common.shutdownable_thread import ExitProcedure
from barnabas.controller.controller_api_versions import ControllerApiVersionManager
from barnabas.metrics.registry import Metrics
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry
from barnabas.network.reactor.channel_factory import ChannelFactory
from barnabas.network.server.endpoint import Endpoint
from barnabas.network.server.socket_server import SocketServer
from barnabas.quota.quota_factory import QuotaManagers
from barnabas.server.data_plane import DataPlane, HandOff
from barnabas.server.dispatch import ApiDispatcher, RequestRunner
from barnabas.server.handler_pool import HandlerIdleTime, KafkaRequestHandlerPool
from barnabas.server.request_channel import RequestChannel
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_metrics import RequestTimes

NAME_PREFIX = "data-plane"
_BLOCKED = "AcceptorBlockedPercent"


def startup_seconds(config: KafkaConfig) -> float | None:
    """Returns ``server.max.startup.time.ms`` in seconds; None if it is too large for a wait."""
    seconds = config.server_max_startup_time_ms / 1000
    return seconds if seconds < threading.TIMEOUT_MAX else None


class RequestServing:
    """Owns the request channel, the handler threads and the socket server.

    Handlers respond through the channel, so it is made first. The dispatcher is made from the handlers, the sockets are
    opened for the dispatcher, and requests are accepted last::

        serving = RequestServing(config, ...)  # channel, helper: handlers can be made
        serving.open(apis, versions, endpoints)  # ports are open and known; no request is served
        serving.enable(authorizer_futures)  # listeners start
        serving.stop()
        serving.close()
    """

    def __init__(
        self,
        config: KafkaConfig,
        clock: Clock,
        times: RequestTimes,
        registry: MetricsRegistry,
        metrics: Metrics,
        exit_procedure: ExitProcedure,
        *,
        role: str,
        quotas: QuotaManagers,
        idle_time: HandlerIdleTime,
        short_apis: frozenset[Any] = frozenset(),
    ) -> None:
        """``idle_time`` belongs to the node: the handlers of all its roles report to it."""
        self._config = config
        self._clock = clock
        self._registry = registry
        self._metrics = metrics
        self._role = role
        self._quotas = quotas
        self._idle_time = idle_time
        self._acceptors = KafkaMetricsGroup(registry, "kafka.network", "Acceptor")
        parallel = HandOff.default() is HandOff.QUEUE
        self.channel = RequestChannel(
            config.queued_max_requests,
            clock,
            times,
            short_apis=short_apis,
            parallel=parallel,
            bulk_width=max(config.num_io_threads // 2, 1) if parallel else 1,
        )
        self.helper = RequestHandlerHelper(self.channel, clock, quotas, exit_procedure)
        self.security: ListenerSecurity | None = None
        self.socket_server: SocketServer | None = None
        self._pool: KafkaRequestHandlerPool | None = None

    def open(
        self,
        apis: ApiDispatcher,
        versions: BrokerApiVersionManager | ControllerApiVersionManager,
        endpoints: Sequence[Endpoint],
        users: Users,
        disconnect_listeners: Sequence[Any] = (),
        channel_factories: Mapping[str, ChannelFactory] | None = None,
    ) -> SocketServer:
        """Opens the ports; raises OSError if one is in use.

        A listener that is not in ``channel_factories`` gets the factory of its security protocol.
        """
        given = channel_factories or {}
        self.security = ListenerSecurity(self._config, versions, users, self._clock)
        factories = self.security.factories([one for one in endpoints if one.listener_name not in given])
        placement = self._config.hand_off.default_placement()
        runner = RequestRunner(apis, self.channel, self._clock, placement)
        plane = DataPlane(self.channel, runner, versions, self._clock, self._config.hand_off)
        server = SocketServer(
            self._config.node_id,
            endpoints,
            self._config.socket_server(for_clients=self._role == "broker"),
            plane,
            self._metrics,
            self._clock,
            channel_factories={**factories, **given},
            disconnect_listeners=disconnect_listeners,
            acceptor_blocked=self._acceptor_blocked,
        )
        self.socket_server = server
        self._quotas.request.when_enabled(server.record_time_per_connection)
        self._add_gauges(server)
        idle = self._idle_time.of(self._role)
        self._pool = KafkaRequestHandlerPool(
            runner, self._config.num_io_threads, self._clock, idle=idle, name_prefix=NAME_PREFIX
        )
        return server

    def enable(self, authorizer_futures: Mapping[str, Future[Any]] | None = None) -> Future[None]:
        assert self.socket_server is not None
        return self.socket_server.enable_request_processing(authorizer_futures)

    def add_listeners(self, config: KafkaConfig, endpoints: Sequence[Endpoint]) -> None:
        """Opens more listeners; raises OSError if a port is in use."""
        assert self.socket_server is not None
        assert self.security is not None
        factories = self.security.factories(endpoints)
        try:
            self.socket_server.add_listeners(
                endpoints, config.socket_server(for_clients=self._role == "broker"), factories
            )
        except OSError:
            self.security.forget(one.listener_name for one in endpoints if not self.is_open(one.listener_name))
            raise

    def remove_listeners(self, names: Sequence[str]) -> None:
        """Closes listeners and their connections."""
        assert self.socket_server is not None
        assert self.security is not None
        self.socket_server.remove_listeners(names)
        self.security.forget(names)
        for name in names:
            self._acceptors.remove_metric(_BLOCKED, {"listener": name})

    def is_open(self, listener: str) -> bool:
        return self.socket_server is not None and listener in self.socket_server.acceptors

    def resize_handlers(self, count: int) -> None:
        """Changes the number of handler threads, ``num.io.threads``."""
        if self._pool is not None:
            self._pool.resize_thread_pool(count)

    def stop(self) -> None:
        """Stops accepting requests; pending ones are still handled."""
        if self.socket_server is not None:
            self.socket_server.stop_processing_requests()

    def close(self) -> None:
        """Stops handlers and sockets, and waits for them."""
        self.stop()
        if self._pool is not None:
            self._pool.shutdown()
        self.channel.close()
        if self.socket_server is not None:
            self.socket_server.shutdown()
        if self.security is not None:
            self.security.close()

    # -- metrics

    def _acceptor_blocked(self, listener: str) -> Callable[[int], None]:
        return self._acceptors.new_idle_meter(_BLOCKED, "blocked time", tags={"listener": listener}).mark

    def _add_gauges(self, server: SocketServer) -> None:
        if self._role != "broker":
            return
        channel = KafkaMetricsGroup(self._registry, "kafka.network", "RequestChannel")
        channel.new_gauge("RequestQueueSize", lambda: self.channel.request_queue_size)
        channel.new_gauge("ResponseQueueSize", lambda: self.channel.response_queue_size)
        sockets = KafkaMetricsGroup(self._registry, "kafka.network", "SocketServer")
        sockets.new_gauge("MemoryPoolAvailable", lambda: server.memory_pool.available)
        sockets.new_gauge(
            "ExpiredConnectionsKilledCount", lambda: sum(one.expired_connections_killed for one in server.processors)
        )
        sockets.new_gauge("MemoryPoolUsed", lambda: server.memory_pool.size - server.memory_pool.available)
