"""Quotas on the bytes per second of a client's Produce and Fetch requests (Q04, Q06)."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Final

from barnabas.quota.client_quota_manager import ClientQuotaManager, principal_of
from barnabas.server.request import Request

MAX_WAIT_MS: Final = 15_000
"""The maximum time that the first request of a connection waits: half of the clients' default request timeout. With
many clients in one entity the throttle time may be longer than that, and well-behaved clients must not time out."""
MAX_HELD_BYTES: Final = 64 << 20
"""The maximum memory for all requests that wait."""
_NS_PER_MS: Final = 1_000_000
_SWEEP: Final = 1_024


class ClientBandwidthQuotaManager(ClientQuotaManager):
    """Charges Produce and Fetch requests by their bytes.

    **A fetch is charged before its response is sent.** A consumer over its quota gets an empty response, so the charge
    must be reversed (`unrecord`): windows add up samples, so a negative sample does it. A fetch also reads no more than
    the windows can hold (`max_value_in_window`). Otherwise a consumer with a small quota that requests many bytes would
    exceed it with every response, and would get empty responses forever.

    **A new connection does not evade a produce quota.** A produce request is charged after the append, and then its
    connection is muted. A client that opens a connection per request would never be muted. So the manager keeps the
    time until which an entity is throttled, and the first request of a connection waits for it (`first_wait_ms`,
    `hold`). Later requests of the connection do not wait, because the connection itself is muted. So no request waits
    twice, and an entity gets what its quota allows, on any number of connections::

        connection 1   |append, charge, respond: throttled for 2 s|closed
        connection 2        |.......waits for the rest of the 2 s......|append, charge, respond: 2 s|

    With many connections at once, all waiting requests are appended in one burst. Each is charged, and the end of the
    throttling moves by the time that the whole burst takes at the rate of the quota.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._throttled_until_ns: dict[Hashable, int] = {}
        """By entity, for those that are or were recently throttled. Guarded by `_lock`, as is the number below."""
        self._held_bytes = 0

    def maybe_record_and_get_throttle_time_ms(self, request: Request, value: float, now_ms: int) -> int:
        """Charges bytes to the client if any such quota exists; returns the throttle time."""
        if not self.is_enabled:
            return 0
        principal, client_id = principal_of(request), request.client_id
        throttle_time_ms = self.record_and_get_throttle_time_ms(principal, client_id, value, now_ms)
        if throttle_time_ms > 0:
            self._throttled(self.sensors_of(principal, client_id).key, throttle_time_ms)
        return throttle_time_ms

    def _throttled(self, key: Hashable, throttle_time_ms: int) -> None:
        now_ns = self._clock.nanoseconds()
        with self._lock:
            until = self._throttled_until_ns
            if len(until) >= _SWEEP and key not in until:
                until = self._throttled_until_ns = {one: end for one, end in until.items() if end > now_ns}
            until[key] = max(until.get(key, 0), now_ns + throttle_time_ms * _NS_PER_MS)

    def first_wait_ms(self, request: Request) -> int:
        """Returns how long the first request of a connection must wait because its entity is throttled."""
        if not self._throttled_until_ns:
            return 0
        sensors = self.sensors_of(principal_of(request), request.client_id)
        until_ns = self._throttled_until_ns.get(sensors.key)
        if until_ns is None or self._known_limit(sensors.key) is None:
            return 0
        left_ms = -((self._clock.nanoseconds() - until_ns) // _NS_PER_MS)  # rounded up
        if left_ms <= 0:
            with self._lock:
                if self._throttled_until_ns.get(sensors.key) == until_ns:
                    del self._throttled_until_ns[sensors.key]
            return 0
        return min(left_ms, MAX_WAIT_MS)

    def hold(self, request: Request, wait_ms: int, resume: Callable[[], object]) -> bool:
        """Calls `resume` after that time on the reaper's thread; returns False if too many bytes are waiting."""
        size = request.size
        with self._lock:
            if self._held_bytes and self._held_bytes + size > MAX_HELD_BYTES:
                return False
            self._held_bytes += size
        self.sensors_of(principal_of(request), request.client_id).throttle_time_sensor.record(wait_ms)
        self._delay(wait_ms, _Held(partial(self._release, size, resume)))
        return True

    def _release(self, size: int, resume: Callable[[], object]) -> None:
        with self._lock:
            self._held_bytes -= size
        resume()

    def unrecord(self, request: Request, value: float, now_ms: int) -> None:
        """Reverses the charge for a response that is not sent."""
        if not self.is_enabled:
            return
        sensor = self.sensors_of(principal_of(request), request.client_id).quota_sensor
        sensor.record(-value, now_ms, check_quotas=False)

    def max_value_in_window(self, request: Request) -> float:
        """Returns the most that an idle client can get at once without being throttled.

        That is the minimum number of full windows of a rate, without the current one, times the limit.
        """
        if not self.is_enabled:
            return math.inf
        sensors = self.sensors_of(principal_of(request), request.client_id)
        limit = self._known_limit(sensors.key)
        if limit is None:
            return math.inf
        return limit * (self.windows.samples - 1) * self.windows.window_seconds


class _Held:
    """A waiting request. Its connection is already muted, as for any request in progress."""

    __slots__ = ("_resume",)

    def __init__(self, resume: Callable[[], object]) -> None:
        self._resume = resume

    def start_throttling(self) -> None: ...

    def end_throttling(self) -> None:
        self._resume()
