"""Controller requests whose completion is handled on an event queue's thread."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.common.events.event_queue import KafkaEventQueue, QueuedCall
from barnabas.network.client.client_request import ClientResponse


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
