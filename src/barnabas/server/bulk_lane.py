"""The bulk lane: runs expensive requests one at a time, with bounded memory."""

from __future__ import annotations

import weakref
from collections import deque
from typing import Final

from barnabas.network.server.response import SendResponse
from barnabas.server.request import Request

BULK_QUEUE_BYTES: Final = 64 << 20
"""How many bytes of requests may wait in the bulk lane."""
BULK_RESPONSE_BYTES: Final = 32 << 20
"""How many bytes of bulk responses may be unsent before the next bulk request has to wait."""
STALLED_MS: Final = 5_000
"""How long a client may leave a bulk response unread while other requests wait for its memory."""


class BulkResponse(SendResponse):
    """The response to a bulk request. The lane holds a weak reference to it: whether it is sent, dropped or closed
    with its connection, its memory is free when the last reference is gone."""

    __slots__ = ("__weakref__", "memory", "since_ns")

    since_ns: int
    memory: int
    """The bytes that it takes. Records are sent from files and take none."""


class BulkLane:
    """Tracks queued bulk requests, the running ones, and the memory of their responses.

    A request with a hundred thousand entries, or with records that decompress to megabytes, may keep a handler busy
    for a second. With the global interpreter lock, each such thread slows down all others, so only `width` handlers
    run bulk requests at a time. Ordinary requests never wait behind them.

    Memory is bounded twice. Queued requests take at most ``BULK_QUEUE_BYTES``; the connection of a request that does
    not fit is closed. Unsent responses take about ``BULK_RESPONSE_BYTES``: while they take more, the next request is
    not started. A client that does not read must not block the others for ever, so after ``STALLED_MS`` the connection
    with the oldest unsent response is closed. A response that takes less memory than the average is spared: a consumer
    of hundreds of partitions may need longer to receive its records, which take no memory here.

    All methods are called with the channel's lock held.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self.waiting: deque[Request] = deque()
        """The queued requests. It may be tested for emptiness without the lock."""
        self._waiting_bytes = 0
        self.running: set[Request] = set()
        """The requests that handlers are running. It may be tested for emptiness without the lock."""
        self.without_response: set[Request] = set()
        """The requests that were started and have no response yet, some of which wait for something else by now."""
        self._unsent: list[weakref.ref[BulkResponse]] = []

    def __len__(self) -> int:
        return len(self.waiting)

    def put(self, request: Request) -> bool:
        """Queues a request; returns False if there is no room for it."""
        if self.waiting and self._waiting_bytes + request.size > BULK_QUEUE_BYTES:
            return False
        self.waiting.append(request)
        self._waiting_bytes += request.size
        return True

    @property
    def is_ready(self) -> bool:
        """Whether a request can be started now."""
        return bool(self.waiting) and len(self.running) < self._width and self._unsent_bytes() < BULK_RESPONSE_BYTES

    def start(self) -> Request:
        request = self.waiting.popleft()
        self._waiting_bytes -= request.size
        self.running.add(request)
        self.without_response.add(request)
        return request

    def done(self, request: Request) -> None:
        self.running.discard(request)

    def respond(self, response: BulkResponse) -> None:
        """Counts the memory of a response until it is freed."""
        self._unsent.append(weakref.ref(response))

    def _unsent_bytes(self) -> int:
        self._unsent = [reference for reference in self._unsent if reference() is not None]
        return sum(response.memory for reference in self._unsent if (response := reference()) is not None)

    def stalled(self, now_ns: int) -> Request | None:
        """Returns the request whose unread response has blocked others for too long, if there is one."""
        if not self.waiting or (total := self._unsent_bytes()) < BULK_RESPONSE_BYTES:
            return None
        average = total // len(self._unsent)
        for index, reference in enumerate(self._unsent):
            response = reference()
            if response is not None and response.memory >= average:
                if now_ns - response.since_ns < STALLED_MS * 1_000_000:
                    return None
                del self._unsent[index]
                request: Request = response.request
                return request
        return None
