"""What belongs to one handler thread while it handles requests, and the request it is at."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.server.request import Request


class RequestLocal:
    """Confined to its thread: what is in here needs no lock, and must not leave.

    A handler thread has one for its whole life; a processor that runs handlers itself has one, too.
    """

    __slots__ = ("_send_bulk", "_send_callback", "_thread", "closed", "inline", "request")

    def __init__(
        self,
        send_callback: Callable[[Callable[[RequestLocal], None], Request], None],
        send_bulk: Callable[[Sequence[Request]], None] | None = None,
    ) -> None:
        """`send_bulk` is for the local of a network thread: where it hands requests over to that cost too much."""
        self._thread = threading.get_ident()
        self._send_callback = send_callback
        self._send_bulk = send_bulk
        self.inline = send_bulk is not None
        """Whether this is a network thread, which all connections wait for."""
        self.request: Request | None = None
        """The request that is being handled."""
        self.closed = False

    @property
    def is_confined(self) -> bool:
        """Whether the thread that asks is the one this belongs to."""
        return threading.get_ident() == self._thread

    def wrap_async_callback(self, callback: Callable[[RequestLocal, Any], None]) -> Callable[[Any], None]:
        """Makes a completion safe to be called from any thread.

        Called by the handler that starts the asynchronous work. If that work completes on the same thread while the
        handler is still at the same request, the completion runs at once. Otherwise it goes through the callback queue
        and runs on whichever handler takes it, with that handler's own :class:`RequestLocal`.
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
        """Moves the request that is being handled to the bulk lane, where its handler is called anew.

        For a handler that runs inline and finds that the work is more than a network thread may do. It must not have
        changed anything yet, and must return at once.
        """
        if self.request is None or self._send_bulk is None:
            raise RuntimeError("only the request that a network thread handles can be handed over")
        request = self.request
        self.request = None
        self._send_bulk([request])

    def close(self) -> None:
        self.closed = True
