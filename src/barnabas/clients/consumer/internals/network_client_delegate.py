"""Sends the requests of request managers."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from barnabas.clients.consumer.internals.background_events import BackgroundEventQueue, ErrorEvent
from barnabas.clients.consumer.internals.consumer_metadata import ConsumerMetadata
from barnabas.clients.consumer.internals.durations import Durations
from barnabas.clients.consumer.internals.request_managers import FOREVER, UnsentRequest
from barnabas.common.clock import Clock
from barnabas.common.errors import (
    BarnabasError,
    InvalidTopicError,
    ProtocolError,
    TopicAuthorizationError,
    UnsupportedVersionError,
)
from barnabas.network.client.client_request import ClientResponse
from barnabas.network.client.network_client import NetworkClient
from barnabas.network.client.node import Node

log = logging.getLogger(__name__)

_LONGEST_POLL_MS: Final = 30_000


class _Waiting:
    """A request whose node is not ready yet."""

    __slots__ = ("deadline_ms", "request", "since_ms")

    def __init__(self, request: UnsentRequest, since_ms: int, deadline_ms: int) -> None:
        self.request = request
        self.since_ms = since_ms
        self.deadline_ms = deadline_ms


class NetworkClientDelegate:
    """Queues requests of the request managers until their node is ready.

    A request waits while its connection is being made, while its node has the maximum number of requests in flight, and
    while a metadata request is due, which goes first. It fails on timeout or when the connection fails: the manager
    sees a disconnect, and decides about a retry.

    Topic metadata errors go to the application, once for each response that has them.
    """

    def __init__(
        self,
        client: NetworkClient,
        metadata: ConsumerMetadata,
        background_events: BackgroundEventQueue,
        *,
        request_timeout_ms: int,
        retry_backoff_ms: int,
        clock: Clock,
    ) -> None:
        self.client = client
        self._metadata = metadata
        self._background_events = background_events
        self._request_timeout_ms = request_timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._clock = clock
        self._unsent: list[_Waiting] = []
        self.waited = Durations()
        """How long requests were queued."""
        self._seen_metadata_version = 0
        self._woken = False
        """Set by any thread before it wakes the network client, so it is visible after that."""

    def add(self, requests: Iterable[UnsentRequest], now: int) -> None:
        for request in requests:
            timeout_ms = self._request_timeout_ms if request.timeout_ms is None else request.timeout_ms
            self._unsent.append(_Waiting(request, now, now + max(timeout_ms, 0)))

    def poll(self, timeout_ms: int, now: int) -> None:
        """Sends requests, polls the network, and passes responses to the managers.

        A response of several megabytes arrives in many pieces. Managers have nothing to do before the last one, so this
        polls until a response is complete, or `wakeup` is called.
        """
        if self._unsent:
            timeout_ms = min(timeout_ms, self._try_send(now))
        deadline_ms = now + min(timeout_ms, _LONGEST_POLL_MS)
        client, metadata, version = self.client, self._metadata, self._seen_metadata_version
        while True:
            ended = client.poll(max(deadline_ms - now, 0), now)
            if ended or self._unsent or self._woken or metadata.update_version != version:
                break
            now = self._clock.hi_res_milliseconds()
            if now >= deadline_ms:
                break
        self._woken = False
        self._propagate_metadata_errors()
        if self._unsent:
            self._try_send(self._clock.hi_res_milliseconds())

    def _try_send(self, now: int) -> int:
        """Sends the queued requests that can be sent; returns how long to wait before trying again."""
        client = self.client
        waiting, self._unsent = self._unsent, []
        wait_ms = FOREVER
        for entry in waiting:
            request = entry.request
            if now >= entry.deadline_ms:
                self._give_up(request, now, timed_out=True)
                wait_ms = 0  # its manager may have another request now
                continue
            node = request.node
            if node is None:
                node = client.least_loaded_node(now).node
                if node is None:
                    self._unsent.append(entry)
                    wait_ms = min(wait_ms, self._retry_backoff_ms)
                    continue
            if client.ready(node, now):
                self.waited.add(now - entry.since_ms)
                self._send(request, node, entry.deadline_ms - now, now)
            elif request.node is not None and client.connection_failed(node):
                self._give_up(request, now, timed_out=False)
                wait_ms = 0
            else:
                self._unsent.append(entry)
                wait_ms = min(wait_ms, max(client.poll_delay_ms(node, now), 1), entry.deadline_ms - now)
        return wait_ms

    def _send(self, request: UnsentRequest, node: Node, timeout_ms: int, now: int) -> None:
        made = self.client.new_client_request(
            node.id_string,
            request.body,
            now,
            request_timeout_ms=timeout_ms,
            callback=request.on_complete,
            allowed_versions=request.allowed_versions,
        )
        try:
            self.client.send(made, now)
        except ProtocolError as error:
            # A value of the application does not fit, in any version. The requests behind this one are still sent.
            mismatch = UnsupportedVersionError(str(error))
            self._complete(request, ClientResponse(made, made.allowed_versions.highest, now, version_mismatch=mismatch))

    def _give_up(self, request: UnsentRequest, now: int, *, timed_out: bool) -> None:
        node = request.node
        made = self.client.new_client_request(
            "" if node is None else node.id_string, request.body, now, allowed_versions=request.allowed_versions
        )
        reason = "nobody could be asked in time" if node is None else self.client.last_error(node.id_string)
        error = None if node is None else self.client.authentication_error(node)
        response = ClientResponse(
            made,
            made.allowed_versions.highest,
            now,
            disconnected=True,
            timed_out=timed_out,
            authentication_error=error,
            reason=reason,
        )
        if error is not None:
            self._background_events.put(ErrorEvent(error))
        self._complete(request, response)

    @staticmethod
    def _complete(request: UnsentRequest, response: ClientResponse) -> None:
        """Completes a request that was not sent."""
        try:
            request.on_complete(response)
        except Exception:
            log.exception("The completion of %r failed", request)

    def drop_requests_to_any_node(self, now: int) -> None:
        """Gives up queued requests that any node could respond to, because the consumer is closing.

        Nobody needs their responses any more, and without a reachable node they would delay the close.
        """
        waiting, self._unsent = self._unsent, []
        for entry in waiting:
            if entry.request.node is None:
                self._give_up(entry.request, now, timed_out=False)
            else:
                self._unsent.append(entry)

    def _propagate_metadata_errors(self) -> None:
        metadata = self._metadata
        try:
            metadata.maybe_raise_fatal_error()
        except BarnabasError as error:
            self._background_events.put(ErrorEvent(error))
        version = metadata.update_version
        if version == self._seen_metadata_version:
            return
        self._seen_metadata_version = version
        snapshot = metadata.snapshot
        wanted = frozenset(metadata.topic_names())
        if unauthorized := sorted(snapshot.unauthorized_topics & wanted):
            self._background_events.put(
                ErrorEvent(TopicAuthorizationError(f"Not authorized to access topics: {unauthorized}"))
            )
        if invalid := sorted(snapshot.invalid_topics & wanted):
            self._background_events.put(ErrorEvent(InvalidTopicError(f"Invalid topics: {invalid}")))

    # -- for managers

    def is_unavailable(self, node: Node, now: int) -> bool:
        """Whether a node's connection was lost recently and its reconnect backoff is not over."""
        return self.client.connection_failed(node) and self.client.connection_delay(node, now) > 0

    @property
    def unsent_count(self) -> int:
        return len(self._unsent)

    def has_unsent_requests(self) -> bool:
        return bool(self._unsent)

    def has_in_flight_requests(self) -> bool:
        return self.client.has_in_flight_requests()

    def wakeup(self) -> None:
        """Ends the current poll. Thread-safe."""
        self._woken = True
        self.client.wakeup()

    def close(self) -> None:
        self.client.close()

    def __repr__(self) -> str:
        return f"NetworkClientDelegate({len(self._unsent)} unsent, {self.client!r})"
