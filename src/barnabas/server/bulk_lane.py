"""The bulk lane: requests that cost much, one at a time, within bounds on their memory."""

from __future__ import annotations

import weakref
from collections import deque
from typing import Final

from barnabas.network.response import SendResponse
from barnabas.server.request import Request

BULK_QUEUE_BYTES: Final = 64 << 20
"""How many bytes of requests may wait in the bulk lane."""
BULK_RESPONSE_BYTES: Final = 32 << 20
"""How many bytes of responses of bulk requests may be unsent before the next bulk request is started."""
STALLED_MS: Final = 5_000
"""How long a client may leave the response to a bulk request unread while others wait for its memory."""


class BulkResponse(SendResponse):
    """The response to a bulk request. The lane watches it by a weak reference: sent, dropped or closed with its
    connection, however it ends, its memory is free when nobody refers to it any more."""

    __slots__ = ("__weakref__", "since_ns")

    since_ns: int


class BulkLane:
    """The queue of bulk requests, how many handlers are at them, and what their responses take up.

    A request with a hundred thousand entries, or with records that decompress to megabytes, may keep a handler busy
    for a second. With the global interpreter lock, each thread at such work slows all others down, so only `width`
    handlers do it at a time. Ordinary requests never wait behind it.

    Memory is bounded twice. Requests that wait have at most ``BULK_QUEUE_BYTES``; the connection of one that does not
    fit is closed. Responses that are not sent yet have about ``BULK_RESPONSE_BYTES``: as long as they have more, the
    next request is not started. A client that does not read must not keep the others waiting for ever, so after
    ``STALLED_MS`` the connection with the oldest of these responses is closed.

    All methods are called with the channel's lock held.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._waiting: deque[Request] = deque()
        self._waiting_bytes = 0
        self.running: set[Request] = set()
        """What handlers are at now; others may look whether there is anything in it without the lock."""
        self._unsent: list[weakref.ref[BulkResponse]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, request: Request) -> bool:
        """Queues a request; false if there is no room for it."""
        if self._waiting and self._waiting_bytes + request.size > BULK_QUEUE_BYTES:
            return False
        self._waiting.append(request)
        self._waiting_bytes += request.size
        return True

    @property
    def is_ready(self) -> bool:
        """Whether a request can be started now."""
        return bool(self._waiting) and len(self.running) < self._width and self._unsent_bytes() < BULK_RESPONSE_BYTES

    def start(self) -> Request:
        request = self._waiting.popleft()
        self._waiting_bytes -= request.size
        self.running.add(request)
        return request

    def done(self, request: Request) -> None:
        self.running.discard(request)

    def respond(self, response: BulkResponse) -> None:
        """Counts the memory of a response until it is gone."""
        self._unsent.append(weakref.ref(response))

    def _unsent_bytes(self) -> int:
        self._unsent = [reference for reference in self._unsent if reference() is not None]
        return sum(response.size for reference in self._unsent if (response := reference()) is not None)

    def stalled(self, now_ns: int) -> Request | None:
        """The request whose unread response has kept others waiting for too long, if there is one."""
        if not self._waiting or self._unsent_bytes() < BULK_RESPONSE_BYTES:
            return None
        oldest = self._unsent[0]()
        if oldest is None or now_ns - oldest.since_ns < STALLED_MS * 1_000_000:
            return None
        del self._unsent[0]
        request: Request = oldest.request
        return request
