"""Keeps metadata up to date through the network client."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from barnabas.clients.common.metadata import Metadata, MetadataRequestAndVersion
from barnabas.common.errors import ApiError, AuthenticationError, Errors, InvalidTopicError, ProtocolError
from barnabas.network.client.client_request import ClientRequest
from barnabas.network.client.metadata_updater import MetadataClient, MetadataUpdater
from barnabas.network.client.node import Node
from barnabas.protocol.message import Response
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse

log = logging.getLogger(__name__)


class DefaultMetadataUpdater(MetadataUpdater):
    """Sends metadata requests to the least loaded node when due, one at a time.

    **Rebootstrap** (KIP-899, KIP-1102): when no known node is reachable, when none has responded for
    ``metadata.recovery.rebootstrap.trigger.ms``, or when a broker requires it, the client starts again from the
    bootstrap servers. Otherwise a client that was offline while every broker got a new address would never find
    them.
    """

    def __init__(
        self,
        metadata: Metadata,
        *,
        can_rebootstrap: bool = True,
        rebootstrap_trigger_ms: int = 300_000,
        check_cluster: bool = True,
    ) -> None:
        self._metadata = metadata
        self._can_rebootstrap = can_rebootstrap
        self._trigger_ms = rebootstrap_trigger_ms
        self._check_cluster = check_cluster
        self._in_progress: MetadataRequestAndVersion | None = None
        self._no_response_since_ms: int | None = None
        """Since when a metadata response is due."""
        self._rebootstrap_requested = False
        self.reason_of: Callable[[str], str | None] = lambda _node_id: None
        """Returns why the connection to a node was lost; set by the network client, which is created later."""

    @property
    def cluster_id(self) -> str | None:
        return self._metadata.snapshot.cluster_id if self._check_cluster else None

    @property
    def can_rebootstrap(self) -> bool:
        return self._can_rebootstrap

    def fetch_nodes(self) -> Sequence[Node]:
        return list(self._metadata.snapshot.nodes.values())

    def is_update_due(self, now: int) -> bool:
        return self._in_progress is None and self._metadata.time_to_next_update(now) == 0

    def maybe_update(self, client: MetadataClient, now: int) -> int:
        if self._in_progress is not None:
            return client.default_request_timeout_ms
        delay_ms = self._metadata.time_to_next_update(now)
        if delay_ms > 0:
            return delay_ms
        if self._no_response_since_ms is None:
            self._no_response_since_ms = now
        least_loaded = client.least_loaded_node(now)
        beyond_reach = not least_loaded.has_node_available_or_connection_ready
        if beyond_reach and self._can_rebootstrap and not self._metadata.snapshot.is_bootstrap:
            self._rebootstrap_requested = True
            return 0
        node = least_loaded.node
        if node is None:
            log.debug("No node is available for a metadata request")
            return max(client.reconnect_backoff_ms, 1)
        try:
            delay_ms = client.send_metadata_request(node, lambda: self._take_request(now), now)
        except ProtocolError as error:  # the name of a topic cannot be encoded
            self.handle_failed_request(now, InvalidTopicError(f"Invalid topics: {error}"))
            delay_ms = self._metadata.time_to_next_update(now)
        # Never 0, though a backoff may be: the poll would spin.
        return max(delay_ms, 1)

    def _take_request(self, now: int) -> MetadataRequest:
        self._in_progress = self._metadata.new_metadata_request(now)
        return self._in_progress.request

    def handle_server_disconnect(
        self, now: int, node_id: str, authentication_error: AuthenticationError | None
    ) -> None:
        node = self._metadata.snapshot.nodes.get(int(node_id)) if node_id.lstrip("-").isdigit() else None
        reason = self.reason_of(node_id)
        if node is not None and reason is not None:
            self._metadata.note_connection_problem(f"{node.host}:{node.port}", reason)
        if self.is_update_due(now):
            self._metadata.failed_update(now)  # so that the next attempt backs off
        if authentication_error is not None:
            self._metadata.fatal_error(authentication_error)
        self._metadata.request_update()  # the cluster may have changed

    def handle_failed_request(self, now: int, error: ApiError | None) -> None:
        if error is not None:
            self._metadata.fatal_error(error)
        self._metadata.failed_update(now)
        self._in_progress = None

    def handle_completed_metadata_response(self, request: ClientRequest, now: int, response: Response) -> None:  # noqa: ARG002 - there is just one
        assert isinstance(response, MetadataResponse)
        asked, self._in_progress = self._in_progress, None
        if asked is None:
            return  # rebootstrapped meanwhile
        if response.error_code == Errors.REBOOTSTRAP_REQUIRED and self._can_rebootstrap:
            self._rebootstrap_requested = True
            self._metadata.failed_update(now)
        elif not response.brokers:
            log.debug("Ignoring a metadata response without brokers")
            self._metadata.failed_update(now)
        else:
            for topic in response.topics:
                if topic.error_code:
                    log.debug("Metadata of topic %s: %s", topic.name, Errors.for_code(topic.error_code).name)
            self._no_response_since_ms = None
            self._metadata.update(asked.request_version, response, asked.is_partial_update, now)

    def needs_rebootstrap(self, now: int) -> bool:
        if self._metadata.snapshot.is_bootstrap:
            return False
        since_ms = self._no_response_since_ms
        return self._rebootstrap_requested or (since_ms is not None and now - since_ms > self._trigger_ms)

    def rebootstrap(self, now: int) -> None:
        self._rebootstrap_requested = False
        self._in_progress = None
        self._no_response_since_ms = now
        self._metadata.rebootstrap()

    def close(self) -> None:
        self._metadata.close()
