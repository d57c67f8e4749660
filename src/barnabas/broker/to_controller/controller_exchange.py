"""Controller requests whose completion is handled on an event queue's thread."""

from __future__ import annotations

import logging
from collections.abc import Callable

from barnabas.common.events.event_queue import EventQueueClosedError, KafkaEventQueue
from barnabas.network.client.client_request import ClientResponse

log = logging.getLogger(__name__)


class QueuedCall:
    """A function as an event; ``name`` identifies it in the log if it fails."""

    __slots__ = ("_action", "_name")

    def __init__(self, name: str, action: Callable[[], object]) -> None:
        self._name = name
        self._action = action

    def run(self) -> None:
        self._action()

    def handle_exception(self, error: Exception) -> None:
        if not isinstance(error, EventQueueClosedError):
            log.error("%s failed", self._name, exc_info=error)

    def __repr__(self) -> str:
        return f"QueuedCall({self._name})"


class ControllerExchange:
    """One request in flight. Its completion is an event; ``end`` gets the response, or None after a timeout.

    ``first`` puts the event at the front of the queue, so that the response is not delayed by other events.
    """

    __slots__ = ("_add", "_end", "_name")

    def __init__(
        self,
        queue: KafkaEventQueue,
        name: str,
        end: Callable[[ClientResponse | None], object],
        *,
        first: bool = False,
    ) -> None:
        self._add: Callable[[QueuedCall], None] = queue.prepend if first else queue.append
        self._name = name
        self._end = end

    def on_complete(self, response: ClientResponse) -> None:
        self._add(QueuedCall(self._name, lambda: self._end(response)))

    def on_timeout(self) -> None:
        self._add(QueuedCall(self._name, lambda: self._end(None)))
