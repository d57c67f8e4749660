"""Creates a client's `NetworkClient` from the common settings."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from barnabas.clients.common.client_security import client_channel_factory, may_use_local_socket
from barnabas.clients.common.default_metadata_updater import DefaultMetadataUpdater
from barnabas.clients.common.metadata import Metadata
from barnabas.clients.common.telemetry.client_telemetry_reporter import ClientTelemetryReporter
from barnabas.clients.common.telemetry.telemetry_sender import TelemetrySender
from barnabas.common.clock import Clock
from barnabas.common.config_def import ConfigValues
from barnabas.metrics.registry import Metrics
from barnabas.network.client.client_config import NetworkClientConfig
from barnabas.network.client.host_resolver import HostResolver
from barnabas.network.client.network_client import NetworkClient
from barnabas.network.client.selector_metrics import SelectorMetrics
from barnabas.network.reactor.selectable import Selectable
from barnabas.network.reactor.selector import Selector
from barnabas.network.transport.local.offer import SEND_BUFFER_BYTES


class NetworkSettings(NamedTuple):
    """The settings whose names or defaults differ by client."""

    client_id: str
    max_in_flight: int
    request_timeout_ms: int
    receive_buffer_bytes: int
    send_buffer_bytes: int | None = None
    """None: ``send.buffer.bytes``."""


class NetworkEnvironment(NamedTuple):
    """The parts that tests replace."""

    clock: Clock
    random: Random
    resolver: HostResolver
    selector: Selectable | None = None


class NetworkInstruments(NamedTuple):
    """Where a client records its metrics."""

    metrics: Metrics | None = None
    group_prefix: str = ""
    telemetry: ClientTelemetryReporter | None = None
    throttle_time: Any = None


def make_network_client(
    values: ConfigValues,
    metadata: Metadata,
    settings: NetworkSettings,
    environment: NetworkEnvironment,
    instruments: NetworkInstruments,
    api_versions: Any = None,
) -> NetworkClient:
    """Creates a client that keeps ``metadata`` up to date, and reports to it why brokers do not respond."""
    clock, random, resolver, selector = environment
    client_id, max_in_flight, request_timeout_ms, receive_buffer_bytes, send_buffer_bytes = settings
    metrics, group_prefix, telemetry, throttle_time = instruments
    updater = DefaultMetadataUpdater(
        metadata,
        can_rebootstrap=values.get_str("metadata.recovery.strategy").upper() == "REBOOTSTRAP",
        rebootstrap_trigger_ms=values.get_int("metadata.recovery.rebootstrap.trigger.ms"),
        check_cluster=values.get_bool("metadata.cluster.check.enable"),
    )
    if selector is None:
        selector = Selector(
            clock=clock,
            connections_max_idle_ms=values.get_int("connections.max.idle.ms"),
            channel_factory=client_channel_factory(values),
        )
    client = NetworkClient(
        selector,
        updater,
        NetworkClientConfig(
            client_id=client_id,
            max_in_flight_requests_per_connection=max_in_flight,
            request_timeout_ms=request_timeout_ms,
            reconnect_backoff_ms=values.get_int("reconnect.backoff.ms"),
            reconnect_backoff_max_ms=values.get_int("reconnect.backoff.max.ms"),
            socket_connection_setup_timeout_ms=values.get_int("socket.connection.setup.timeout.ms"),
            socket_connection_setup_timeout_max_ms=values.get_int("socket.connection.setup.timeout.max.ms"),
            send_buffer_bytes=(values.get_int("send.buffer.bytes") if send_buffer_bytes is None else send_buffer_bytes),
            receive_buffer_bytes=receive_buffer_bytes,
            local_socket_enable=may_use_local_socket(values),
            local_send_buffer_bytes=(
                values.get_int("send.buffer.bytes") if values.is_set("send.buffer.bytes") else SEND_BUFFER_BYTES
            ),
        ),
        clock=clock,
        random=random,
        resolver=resolver,
        api_versions=api_versions,
        throttle_time_sensor=throttle_time,
        telemetry=None if telemetry is None else TelemetrySender(telemetry),
        metrics=None if metrics is None else SelectorMetrics(metrics, group_prefix, selector.stats),
    )
    updater.reason_of = client.last_error
    return client
