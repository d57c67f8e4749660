"""Quotas on the time of the broker's threads that a client uses (Q07).

A client can load a broker without moving many bytes, for example by requesting the metadata of all topics repeatedly.
So its requests are also charged by the time that they take, in percent of one thread. A handler that works a whole
second for a client within one second counts 100; with eight handlers and three network threads, 1,100 are available.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.common.clock import Clock
from barnabas.metrics.names import MetricName
from barnabas.metrics.registry import Metrics
from barnabas.metrics.sensor import QuotaViolationError
from barnabas.metrics.stats import Rate
from barnabas.metrics.throttle import bounded_throttle_time
from barnabas.quota.client_quota_manager import ClientQuotaManager, principal_of
from barnabas.quota.config import QuotaWindows
from barnabas.quota.quota_type import QuotaType
from barnabas.server.request import NOT_SET, Request

if TYPE_CHECKING:
    from barnabas.quota.client_quota_callback import ClientQuotaCallback

NANOSECONDS_TO_PERCENTAGE_PER_SECOND: Final = 100.0 / 1_000_000_000
EXEMPT_SENSOR_NAME: Final = f"exempt-{QuotaType.REQUEST}"


class ClientRequestQuotaManager(ClientQuotaManager):
    """The request quota.

    The time of the handler is known when the response is created, and is charged then. The time of the network thread
    is known later, when the response has been sent. It is charged without checking the quota, and counts for the next
    request.

    Requests between nodes of the cluster are never throttled. They are charged to a sensor of their own,
    ``exempt-Request``, so that the sum of all is the actual use of the threads. That sensor does not expire.

    A client is throttled for at most one window. Most requests are short, so a longer throttle time would cause bursts:
    the client is silent for a long time, and then sends everything that it has collected.
    """

    def __init__(
        self,
        windows: QuotaWindows,
        metrics: Metrics,
        clock: Clock,
        *,
        thread_name_prefix: str = "",
        callback: ClientQuotaCallback | None = None,
    ) -> None:
        super().__init__(
            windows, metrics, QuotaType.REQUEST, clock, thread_name_prefix=thread_name_prefix, callback=callback
        )
        self.max_throttle_ms = windows.window_seconds * 1_000
        name = metrics.metric_name(
            "exempt-request-time", str(QuotaType.REQUEST), description="Time of requests without a quota, in percent"
        )
        self.exempt_sensor = self._sensor(EXEMPT_SENSOR_NAME, lambda sensor: sensor.add(name, Rate()), None)

    def maybe_record_and_get_throttle_time_ms(self, request: Request, now_ms: int) -> int:
        """Charges the time of the request so far, if such quotas exist."""
        if not self.is_enabled:
            return 0
        principal, client_id = principal_of(request), request.client_id
        request.record_network_thread_time = partial(self._record_network_time, principal, client_id)
        value = self._thread_time_ns(request) * NANOSECONDS_TO_PERCENTAGE_PER_SECOND
        return self.record_and_get_throttle_time_ms(principal, client_id, value, now_ms)

    def maybe_record_exempt(self, request: Request) -> None:
        """Counts the time of a request that is never throttled."""
        if not self.is_enabled:
            return
        request.record_network_thread_time = self._record_exempt
        self._record_exempt(self._thread_time_ns(request))

    def _record_network_time(self, principal: object, client_id: str | None, nanoseconds: int) -> None:
        self.record_no_throttle(
            principal,  # type: ignore[arg-type]
            client_id,
            nanoseconds * NANOSECONDS_TO_PERCENTAGE_PER_SECOND,
        )

    def _record_exempt(self, nanoseconds: int) -> None:
        self.exempt_sensor.record(nanoseconds * NANOSECONDS_TO_PERCENTAGE_PER_SECOND)

    def _thread_time_ns(self, request: Request) -> int:
        """Returns how long a handler worked on a request: until now, or until it began to wait."""
        if request.api_local_complete_time_ns == NOT_SET:
            request.api_local_complete_time_ns = self._clock.nanoseconds()
        return max(request.api_local_complete_time_ns - request.request_dequeue_time_ns, 0)

    def _throttle_time(self, violation: QuotaViolationError, now_ms: int) -> int:
        return bounded_throttle_time(violation, self.max_throttle_ms, now_ms)

    def quota_metric_name(self, tags: Mapping[str, str]) -> MetricName:
        return self._metrics.metric_name(
            "request-time", str(self.quota_type), tags, "Time of these clients' requests, in percent of a thread"
        )
