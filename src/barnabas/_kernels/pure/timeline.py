"""The moments of a request and their metrics: the twin of `compiled.timeline`.

`barnabas.server.request` describes the moments.

**Locks.** Several threads may try to respond to a request at once; `claim_response` is atomic and lets one succeed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

NOT_SET = -1


class Timeline:
    """All fields of a request, with the operations that every request needs.

    `barnabas.server.request.Request` has those that only some need.
    """

    api_key: Any
    api_version: int
    correlation_id: int
    client_id: str | None
    body_start: int

    def __init__(
        self,
        processor_id: int,
        context: Any,
        header: tuple[Any, int, int, str | None, int],
        payload: memoryview,
        pool: Any,
        start_time_ns: int,
        times: Any,
    ) -> None:
        self.api_key, self.api_version, self.correlation_id, self.client_id, self.body_start = header
        self.processor_id = processor_id
        self.context = context
        self.connection_id: str = context.connection_id
        self.buffer: memoryview | None = payload
        self.size = len(payload)
        self._pool = pool
        self.times = times
        self._body: Any = None
        self.start_time_ns = start_time_ns
        self.request_dequeue_time_ns = NOT_SET
        self.api_local_complete_time_ns = NOT_SET
        self.response_complete_time_ns = NOT_SET
        self.response_dequeue_time_ns = NOT_SET
        self.callback_request_dequeue_time_ns = NOT_SET
        self.callback_request_complete_time_ns = NOT_SET
        self.api_throttle_time_ms = 0
        self.record_network_thread_time: Callable[[int], object] | None = None
        """Called for a request quota with the time that the network thread has spent on this request."""
        self._awaits_response = [True]
        """Emptied by the thread that claims the response. Popping the last element of a list is atomic, so only one
        of several threads succeeds, and it costs less than a lock."""

    @property
    def awaits_response(self) -> bool:
        """Whether no response has ended this request yet."""
        return bool(self._awaits_response)

    def claim_response(self) -> bool:
        """Whether the caller may send the one response that ends this request; true once."""
        try:
            self._awaits_response.pop()
        except IndexError:
            return False
        return True

    def finish(self, now_ns: int) -> bool:
        """Claims the complete response: sets T3, and ends everything still in progress.

        Returns False, and changes nothing, if it was claimed before.
        """
        if not self.claim_response():
            return False
        self.response_complete_time_ns = now_ns
        if self.api_local_complete_time_ns == NOT_SET:
            self.api_local_complete_time_ns = now_ns
        if self.callback_request_dequeue_time_ns != NOT_SET and self.callback_request_complete_time_ns == NOT_SET:
            self.callback_request_complete_time_ns = now_ns
        return True

    def handler_done(self, clock: Callable[[], int]) -> None:
        """Records that the handler has returned: without a response, the request now waits for others."""
        if self.api_local_complete_time_ns == NOT_SET:
            self.api_local_complete_time_ns = clock()
        self.release_buffer()

    def release_buffer(self) -> None:
        """Releases the memory. Views that a handler still holds stay valid; only the count of the pool goes down."""
        if self.buffer is not None:
            self.buffer = None
            if self._pool.bounded:
                self._pool.release(self.size)

    def complete(self, network_thread_time_ns: int, response: Any) -> None:
        """Ends the request: writes its timeline into the metrics."""
        if network_thread_time_ns and self.record_network_thread_time is not None:
            self.record_network_thread_time(network_thread_time_ns)
        self.times.record(self, response)

    def record_in(self, metrics: Any, now_ns: int) -> None:
        """Turns six moments, the last of which is now, into the seven durations of an API's metrics.

        A moment may be missing: a handler sets T2 after it has handed over the response, which may be sent by then. The
        missing part then counts as zero.
        """
        start = self.start_time_ns
        dequeued = self.request_dequeue_time_ns
        local = self.api_local_complete_time_ns
        completed = self.response_complete_time_ns
        taken = self.response_dequeue_time_ns
        if dequeued < 0 or local < 0 or local > completed or taken < completed:
            dequeued = max(dequeued, start)
            completed = now_ns if completed < 0 else max(completed, dequeued)
            local = completed if local < 0 else min(max(local, dequeued), completed)
            taken = max(taken, completed)
        if self.callback_request_dequeue_time_ns >= 0 and self.callback_request_complete_time_ns >= 0:
            # Work after a wait counts as local time, not as waiting: as if it had been done before.
            callback = self.callback_request_complete_time_ns - self.callback_request_dequeue_time_ns
            local = min(local + callback, completed)
        throttled = self.api_throttle_time_ms
        metrics.table.add_moments(start, dequeued, local, completed, taken, throttled, self.size, now_ns)
        (metrics.counts.get(self.api_version) or metrics.new_count(self.api_version)).add(1, now_ns)


class TimelineRecorder:
    """Writes the timelines of ended requests into the metrics of their APIs."""

    def __init__(
        self,
        clock: Callable[[], int],
        by_api: dict[Any, Any],
        new_metrics: Callable[[Any], Any],
        twice_counted: Any,
        second_metrics: Callable[[Any], Any],
    ) -> None:
        """``by_api`` holds the metrics of APIs; ``new_metrics`` adds and returns those of another one.

        A request of the API ``twice_counted`` counts a second time, in the metrics that ``second_metrics`` returns.
        """
        self._now = clock
        self._by_api = by_api
        self._new_metrics = new_metrics
        self._twice_counted = twice_counted
        self._second_metrics = second_metrics
        self.listener: Callable[[Any, Any, int], None] | None = None
        """Called with a request that has ended and its end time."""
        self.untold = 0
        """How many more requests to skip before calling the listener. It counts down while there is a listener,
        which sets it again when called; otherwise the listener is called for every request. Sampling therefore costs
        skipped requests only this subtraction."""

    def record(self, request: Any, response: Any) -> None:
        """Records a request that has ended: see :meth:`Timeline.record_in` for its durations."""
        now = self._now()
        api_key = request.api_key
        request.record_in(self._by_api.get(api_key) or self._new_metrics(api_key), now)
        if api_key is self._twice_counted:
            request.record_in(self._second_metrics(request), now)
        if self.listener is not None:
            self.untold -= 1
            if self.untold < 0:
                self.listener(request, response, now)
