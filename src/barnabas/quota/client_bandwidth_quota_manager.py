"""How many bytes per second a client may send or get (Q04, Q06)."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Final

from barnabas.quota.client_quota_manager import ClientQuotaManager, principal_of
from barnabas.server.request import Request

MAX_WAIT_MS: Final = 15_000
"""The longest that the first request of a connection waits: half of the time that clients wait for a response by
default. With many clients in one entity the throttle time may be longer than that, and honest clients must not time
out."""
MAX_HELD_BYTES: Final = 64 << 20
"""The most that such requests may take in memory together."""
_NS_PER_MS: Final = 1_000_000
_SWEEP: Final = 1_024


class ClientBandwidthQuotaManager(ClientQuotaManager):
    """The quotas of Produce and Fetch: requests are charged by their bytes.

    **A fetch is charged before it is answered.** A consumer that is over its quota gets an empty answer, so what it was
    charged must be taken back (`unrecord`): the windows add up what comes in, so recording the negative does it. And
    nothing larger is read than the windows can hold (`max_value_in_window`). Else a consumer with a small quota that
    asks for a lot would be over it with every single answer, and would be given the empty one forever.

    **A new connection is no way around a produce quota.** A produce request is charged when it has been appended, and
    its connection is muted after that. A client that opens a connection for each request would never be muted. So the
    moment is kept until which an entity is throttled, and the first request of a connection waits for it
    (`first_wait_ms`, `hold`). Later requests of the connection need not wait: it has been muted itself. So nobody waits
    twice, and an entity gets what its quota allows, on however many connections::

        connection 1   |append, charge, respond: throttled for 2 s|closed
        connection 2        |.......waits for the rest of the 2 s......|append, charge, respond: 2 s|

    With many connections at once, all that wait are appended in one burst, each is charged, and the moment moves by the
    time that the whole burst takes at the rate of the quota.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._throttled_until_ns: dict[Hashable, int] = {}
        """Of the entities that are throttled, or were not long ago. Guarded by `_lock`, as is the number below."""
        self._held_bytes = 0

    def maybe_record_and_get_throttle_time_ms(self, request: Request, value: float, now_ms: int) -> int:
        """Charges so many bytes to the client, if anybody has such a quota; how long it is to be held back."""
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
        """How long a request has to wait that is the first of its connection, while its entity is throttled."""
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
        """Calls `resume` after that time, on the reaper's thread; false if too many bytes wait already."""
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
        """Takes back what was charged for an answer that is not sent after all."""
        if not self.is_enabled:
            return
        sensor = self.sensors_of(principal_of(request), request.client_id).quota_sensor
        sensor.record(-value, now_ms, check_quotas=False)

    def max_value_in_window(self, request: Request) -> float:
        """The most that the client can get at once without being held back, if it has had nothing lately.

        The windows that a rate is taken over at least, without the current one, times the limit.
        """
        if not self.is_enabled:
            return math.inf
        sensors = self.sensors_of(principal_of(request), request.client_id)
        limit = self._known_limit(sensors.key)
        if limit is None:
            return math.inf
        return limit * (self.windows.samples - 1) * self.windows.window_seconds


class _Held:
    """A request that waits. Its connection is muted already, as that of any request under way."""

    __slots__ = ("_resume",)

    def __init__(self, resume: Callable[[], object]) -> None:
        self._resume = resume

    def start_throttling(self) -> None: ...

    def end_throttling(self) -> None:
        self._resume()
