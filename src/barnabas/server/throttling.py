"""The interface of quotas to request handling: compute a throttle time and throttle a client.

The quota managers implement it and know the quotas. Without quota managers, nothing is throttled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Protocol

from barnabas.server.request import Request


class ThrottleCallback(Protocol):
    """Mutes and unmutes the channel of a throttled client."""

    def start_throttling(self) -> None: ...

    def end_throttling(self) -> None: ...


class Throttler(Protocol):
    """A kind of quota that can throttle a client."""

    def throttle(self, request: Request, callback: ThrottleCallback, throttle_time_ms: int) -> None:
        """Starts throttling now and ends it after the throttle time."""
        ...


class RequestQuota(Throttler, Protocol):
    """The share of thread time that a client may use (``request_percentage``)."""

    @property
    def is_enabled(self) -> bool:
        """Whether any such quota exists. If not, the caller need not read the clock."""
        ...

    def maybe_record_and_get_throttle_time_ms(self, request: Request, now_ms: int) -> int:
        """Charges the request's time so far; returns the client's throttle time."""
        ...

    def maybe_record_exempt(self, request: Request) -> None:
        """Counts the time of a request that is never throttled."""
        ...


class ClientQuota(Throttler, Protocol):
    """The bytes per second that a client may send or receive (``producer_byte_rate``, ``consumer_byte_rate``)."""

    @property
    def is_enabled(self) -> bool:
        """Whether any such quota exists. If not, the caller need not compute the size of a response."""
        ...

    def maybe_record_and_get_throttle_time_ms(self, request: Request, value: float, now_ms: int) -> int:
        """Charges ``value`` bytes to the client; returns its throttle time."""
        ...

    def unrecord(self, request: Request, value: float, now_ms: int) -> None:
        """Reverses the charge for a response that is not sent."""
        ...

    def first_wait_ms(self, request: Request) -> int:
        """Returns how long the first request of a connection has to wait while its quota entity is throttled.

        Without this, a client could evade the throttling of a muted connection by opening a new one.
        """
        ...

    def hold(self, request: Request, wait_ms: int, resume: Callable[[], object]) -> bool:
        """Calls `resume` after `wait_ms`. Returns False, and never calls it, if too many bytes wait already."""
        ...

    def max_value_in_window(self, request: Request) -> float:
        """Returns the most bytes that an idle client can receive at once without being throttled.

        A larger response would always be throttled, and the client would never get anything.
        """
        ...


class ControllerMutationQuota(Protocol):
    """The number of metadata mutations that a request may still make; see KIP-599."""

    @property
    def throttle_time_ms(self) -> int: ...

    @property
    def is_exceeded(self) -> bool: ...

    def record(self, permits: float) -> None:
        """Charges the permits; raises `ThrottlingQuotaExceededError` if there are not enough."""
        ...


class QuotaManagers(Protocol):
    """The quotas that the request path checks."""

    @property
    def produce(self) -> ClientQuota: ...

    @property
    def fetch(self) -> ClientQuota: ...

    @property
    def request(self) -> RequestQuota: ...

    @property
    def controller_mutation(self) -> Throttler: ...


class Unlimited:
    """Stands in for a request or controller mutation quota that never throttles."""

    is_enabled: Final = False
    throttle_time_ms: Final = 0
    is_exceeded: Final = False

    def maybe_record_and_get_throttle_time_ms(self, request: Request, now_ms: int) -> int:  # noqa: ARG002 - interface
        return 0

    def maybe_record_exempt(self, request: Request) -> None: ...

    def record(self, permits: float) -> None: ...

    def throttle(self, request: Request, callback: ThrottleCallback, throttle_time_ms: int) -> None:  # noqa: ARG002
        callback.start_throttling()
        callback.end_throttling()


UNLIMITED: Final = Unlimited()


class UnlimitedBandwidth:
    """Stands in for a byte rate quota that never throttles."""

    is_enabled: Final = False

    def maybe_record_and_get_throttle_time_ms(self, request: Request, value: float, now_ms: int) -> int:  # noqa: ARG002
        return 0

    def unrecord(self, request: Request, value: float, now_ms: int) -> None: ...

    def first_wait_ms(self, request: Request) -> int:  # noqa: ARG002 - interface
        return 0

    def hold(self, request: Request, wait_ms: int, resume: Callable[[], object]) -> bool:  # noqa: ARG002
        resume()
        return True

    def max_value_in_window(self, request: Request) -> float:  # noqa: ARG002 - interface
        return math.inf

    def throttle(self, request: Request, callback: ThrottleCallback, throttle_time_ms: int) -> None:
        UNLIMITED.throttle(request, callback, throttle_time_ms)


UNLIMITED_BANDWIDTH: Final = UnlimitedBandwidth()


class NoQuotas:
    """The quotas of a node without quota managers."""

    __slots__ = ()

    produce: Final[ClientQuota] = UNLIMITED_BANDWIDTH
    fetch: Final[ClientQuota] = UNLIMITED_BANDWIDTH
    request: Final[RequestQuota] = UNLIMITED
    controller_mutation: Final[Throttler] = UNLIMITED


NO_QUOTAS: Final = NoQuotas()


class ThrottledConnection:
    """The connection of a throttled client. It takes the place of the request in responses that mute and unmute it.

    The request would stay in memory with its records until the throttling ends, which may take days. A client that
    opens a connection for each request would leave all of them behind.
    """

    __slots__ = ("connection_id", "context", "processor_id")

    def __init__(self, request: Request) -> None:
        self.connection_id = request.connection_id
        self.context = request.context
        self.processor_id = request.processor_id

    def __repr__(self) -> str:
        return f"ThrottledConnection({self.connection_id})"


class ChannelThrottle:
    """Mutes the connection of a request through the request channel."""

    __slots__ = ("_connection", "_end", "_start")

    def __init__(
        self,
        request: Request,
        start: Callable[[ThrottledConnection], None],
        end: Callable[[ThrottledConnection], None],
    ) -> None:
        self._connection = ThrottledConnection(request)
        self._start = start
        self._end = end

    def start_throttling(self) -> None:
        self._start(self._connection)

    def end_throttling(self) -> None:
        self._end(self._connection)
