"""Sends telemetry over a network client."""

from __future__ import annotations

from barnabas.clients.common.telemetry.client_telemetry_reporter import ClientTelemetryReporter
from barnabas.network.client.client_request import ClientResponse
from barnabas.network.client.inflight import FOREVER
from barnabas.network.client.node import Node
from barnabas.network.client.telemetry_hook import TelemetryClient


class TelemetrySender:
    """Sends the requests of a `ClientTelemetryReporter` whenever its network client polls.

    Any broker accepts them. It keeps using the same one, which caches the client's subscription.
    """

    def __init__(self, reporter: ClientTelemetryReporter) -> None:
        self._reporter = reporter
        self._sticky: Node | None = None

    def maybe_update(self, client: TelemetryClient, now: int) -> int:
        """Sends the request that is due; returns how long there is nothing to do."""
        reporter = self._reporter
        timeout_ms = client.default_request_timeout_ms
        delay_ms = reporter.time_to_next_update(timeout_ms, now)
        if delay_ms > 0:
            return delay_ms
        node = self._sticky or client.least_loaded_node(now).node
        if node is None or not client.ready(node, now):
            self._sticky = None
            if reporter.has_last_push:
                reporter.close()  # no node is ready, and closing does not wait for connections
                return FOREVER
            if node is None:
                return max(client.reconnect_backoff_ms, 1)
            # Forever while a connection is being made or is busy: its next event ends the poll.
            return max(client.poll_delay_ms(node, now), 1)
        self._sticky = node
        body = reporter.create_request()
        if body is None:
            return FOREVER
        client.send(client.new_client_request(node.id_string, body, now, callback=self._completed), now)
        return timeout_ms

    def _completed(self, response: ClientResponse) -> None:
        if response.body is not None:
            self._reporter.handle_response(response.body)
        else:
            self._sticky = None
            self._reporter.handle_failed_request(response.version_mismatch or response.authentication_error)

    def close(self) -> None:
        self._reporter.close()
