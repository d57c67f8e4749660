"""State of one thread that handles requests, including its current request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.server.request import Request


class RequestLocal:
    """Thread-confined state: it needs no lock and must not be passed to another thread.

    Each handler thread has one for its whole life. A processor that runs handlers inline has one, too.
    """

    __slots__ = ("_send_bulk", "_send_callback", "_thread", "closed", "inline", "request")

    def __init__(
        self,
        send_callback: Callable[[Callable[[RequestLocal], None], Request], None],
        send_bulk: Callable[[Sequence[Request]], None] | None = None,
    ) -> None:
        """Creates the calling thread's state. A network thread passes `send_bulk`, to hand over costly requests."""
        self._thread = threading.get_ident()
        self._send_callback = send_callback
        self._send_bulk = send_bulk
        self.inline = send_bulk is not None
        """Whether this is a network thread: a slow handler would delay all its connections."""
        self.request: Request | None = None
        """The request that is being handled."""
        self.closed = False

    @property
    def is_confined(self) -> bool:
        """Whether the calling thread owns this object."""
        return threading.get_ident() == self._thread

    def wrap_async_callback(self, callback: Callable[[RequestLocal, Any], None]) -> Callable[[Any], None]:
        """Makes a completion safe to call from any thread.

        Called by the handler that starts the asynchronous work. If the work completes on the same thread while the
        handler still handles the same request, the completion runs at once. Otherwise it goes through the callback
        queue and runs on another handler, with that handler's own :class:`RequestLocal`.
        """
        if self.request is None or not self.is_confined:
            raise RuntimeError("an asynchronous callback can only be wrapped by the thread that handles the request")
        request = self.request

        def complete(result: Any) -> None:
            if self.is_confined and self.request is request:
                callback(self, result)
            else:
                self._send_callback(lambda local: callback(local, result), request)

        return complete

    def hand_over(self) -> None:
        """Moves the current request to the bulk lane, where its handler is called again.

        For an inline handler that finds too much work for a network thread. It must not have changed anything yet,
        and must return at once.
        """
        if self.request is None or self._send_bulk is None:
            raise RuntimeError("only the request that a network thread handles can be handed over")
        request = self.request
        self.request = None
        self._send_bulk([request])

    def close(self) -> None:
        self.closed = True
