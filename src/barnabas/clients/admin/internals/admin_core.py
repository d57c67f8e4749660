"""The common core of the blocking and the asyncio admin client: settings, network, thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from random import Random
from typing import Any, Final, TypeVar

from barnabas.clients.admin.admin_config import AdminClientConfig
from barnabas.clients.admin.internals.admin_client_runnable import AdminClientRunnable
from barnabas.clients.admin.internals.operation import Operation
from barnabas.clients.admin.internals.steps import Promise
from barnabas.clients.common.bootstrap import bootstrap_nodes
from barnabas.clients.common.client_config import RETRY_BACKOFF_EXP_BASE, RETRY_BACKOFF_JITTER
from barnabas.clients.common.client_metrics import make_metrics
from barnabas.clients.common.errors import IllegalStateError
from barnabas.clients.common.metadata import Metadata
from barnabas.clients.common.network_client import (
    NetworkEnvironment,
    NetworkInstruments,
    NetworkSettings,
    make_network_client,
)
from barnabas.clients.common.telemetry.client_telemetry_reporter import ClientTelemetryReporter
from barnabas.common.clock import Clock
from barnabas.common.identifiers import Uuid
from barnabas.network.client.exponential_backoff import ExponentialBackoff
from barnabas.network.client.host_resolver import HostResolver
from barnabas.network.reactor.selectable import Selectable

T = TypeVar("T")

METRIC_GROUP_PREFIX: Final = "admin-client"
THREAD_PREFIX: Final = "kafka-admin-client-thread"
_IN_FLIGHT: Final = 2**31 - 1
"""Unlimited: requests to a broker do not wait for each other, only for its order of responses."""


class AdminCore:
    """An admin client without its operations."""

    def __init__(
        self,
        config: Mapping[str, object] | None,
        settings: Mapping[str, object],
        *,
        clock: Clock,
        resolver: HostResolver,
        selector: Selectable | None,
        random: Random | None,
        start_thread: bool,
        fail_fast: bool,
    ) -> None:
        self.config = AdminClientConfig.of(config, **settings)
        cfg, values = self.config, self.config.values
        random = Random() if random is None else random  # noqa: S311 - spreads load, keeps no secret
        resolve = resolver if not values.get_int("bootstrap.resolve.timeout.ms") and not fail_fast else None
        metadata = Metadata(cfg.retry_backoff_ms, cfg.retry_backoff_max_ms, cfg.metadata_max_age_ms, random=random)
        metadata.bootstrap(bootstrap_nodes(cfg.bootstrap_servers, resolve))
        self.metrics = make_metrics(values, cfg.client_id, clock)
        self.telemetry: ClientTelemetryReporter | None = None
        if values.get_bool("enable.metrics.push"):
            self.telemetry = ClientTelemetryReporter("admin client", self.metrics, {}, clock, random)
        client = make_network_client(
            values,
            metadata,
            NetworkSettings(cfg.client_id, _IN_FLIGHT, cfg.request_timeout_ms, values.get_int("receive.buffer.bytes")),
            NetworkEnvironment(clock, random, resolver, selector),
            NetworkInstruments(self.metrics, METRIC_GROUP_PREFIX, self.telemetry),
        )
        self.runnable = AdminClientRunnable(
            client, metadata, clock, cfg.request_timeout_ms, telemetry=self.telemetry, fail_fast=fail_fast
        )
        self._backoff = ExponentialBackoff(
            cfg.retry_backoff_ms, RETRY_BACKOFF_EXP_BASE, cfg.retry_backoff_max_ms, RETRY_BACKOFF_JITTER, random
        )
        self._thread = threading.Thread(
            target=self.runnable.run, name=f"{THREAD_PREFIX} | {cfg.client_id}", daemon=True
        )
        if start_thread:
            self._thread.start()

    def submit(self, run: Callable[[Operation], Coroutine[Promise[Any], None, T]], timeout_ms: int | None) -> Future[T]:
        """Starts an operation; its timeout begins now."""
        limit_ms = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        operation = Operation(self.runnable, limit_ms, self.config.retries, self._backoff)
        return self.runnable.submit(lambda: run(operation))

    def close(self, timeout_ms: int | None) -> None:
        """Ends the thread after the running operations have ended, or after the timeout."""
        limit_ms = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        if self.telemetry is not None and limit_ms > 0:
            self.telemetry.initiate_close()
        self.runnable.initiate_close(limit_ms)
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()
        self.metrics.close()

    def client_instance_id(self, timeout: float) -> Uuid:
        if self.telemetry is None:
            raise IllegalStateError("Telemetry is not enabled. Set config `enable.metrics.push` to `true`.")
        return self.telemetry.client_instance_id(timeout)
