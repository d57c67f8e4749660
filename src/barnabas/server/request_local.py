"""What belongs to one handler thread while it handles requests, and the request it is at."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.server.request import Request
    from barnabas.server.request_channel import RequestChannel


class RequestLocal:
    """Confined to its thread: what is in here needs no lock, and must not leave.

    A handler thread has one for its whole life; a processor that runs handlers itself has one, too.
    """

    __slots__ = ("_thread", "closed")

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self.closed = False

    def check_confined(self) -> None:
        if threading.get_ident() != self._thread:
            raise RuntimeError("a RequestLocal was taken to another thread")

    def close(self) -> None:
        self.closed = True


class _Current(threading.local):
    request: Request | None = None
    channel: RequestChannel | None = None
    local: RequestLocal | None = None


current = _Current()
"""The request that this thread is handling, if it is a handler."""


def wrap_async_callback(
    callback: Callable[[RequestLocal, Any], None], request_local: RequestLocal
) -> Callable[[Any], None]:
    """Makes a completion safe to be called from any thread.

    Called by the handler that started the asynchronous work. If that work completes on the same thread while the
    handler is still at the same request, the completion runs at once. Otherwise it is sent through the callback queue
    and runs on whichever handler takes it, with that handler's own :class:`RequestLocal`.
    """
    request, channel = current.request, current.channel
    if request is None or channel is None:
        raise RuntimeError("an asynchronous callback can only be wrapped while a request is being handled")
    origin = threading.get_ident()

    def complete(result: Any) -> None:
        if threading.get_ident() == origin and current.request is request:
            callback(request_local, result)
            return
        from barnabas.server.request_channel import CallbackRequest  # noqa: PLC0415 - it imports this module's users

        channel.send_callback_request(CallbackRequest(lambda local: callback(local, result), request))

    return complete
