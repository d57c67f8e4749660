"""The `NetworkClient` of a client, made from the settings that all of them have."""

from __future__ import annotations

from random import Random
from typing import Any

from barnabas.clients.common.default_metadata_updater import DefaultMetadataUpdater
from barnabas.clients.common.metadata import Metadata
from barnabas.clients.common.telemetry.client_telemetry_reporter import ClientTelemetryReporter
from barnabas.clients.common.telemetry.telemetry_sender import TelemetrySender
from barnabas.common.clock import Clock
from barnabas.common.config_def import ConfigValues
from barnabas.metrics.registry import Metrics
from barnabas.network.channel_factory import channel_factory_for
from barnabas.network.client import NetworkClient
from barnabas.network.client_config import NetworkClientConfig
from barnabas.network.host_resolver import HostResolver
from barnabas.network.local_socket import SEND_BUFFER_BYTES
from barnabas.network.selectable import Selectable
from barnabas.network.selector import Selector
from barnabas.network.selector_metrics import SelectorMetrics


def make_network_client(
    values: ConfigValues,
    metadata: Metadata,
    selector: Selectable | None,
    *,
    client_id: str,
    max_in_flight: int,
    request_timeout_ms: int,
    receive_buffer_bytes: int,
    send_buffer_bytes: int | None = None,
    clock: Clock,
    random: Random,
    resolver: HostResolver,
    api_versions: Any = None,
    throttle_time: Any = None,
    telemetry: ClientTelemetryReporter | None = None,
    metrics: Metrics | None = None,
    metric_group_prefix: str = "",
) -> NetworkClient:
    """Metadata are kept up to date by the client itself, which also tells them why nobody answers.

    Without ``send_buffer_bytes``, the setting says how large the sockets' buffers are.
    """
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
            channel_factory=channel_factory_for(values.get_str("security.protocol")),
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
            local_socket_enable=values.get_bool("local.socket.enable"),
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
        metrics=None if metrics is None else SelectorMetrics(metrics, metric_group_prefix, selector.stats),
    )
    updater.reason_of = client.last_error
    return client
