"""Quotas as request handling sees them: how long, and hold this client for that long.

What is behind it, and who has which quota, is the business of the quota managers. Without any, nothing is ever
throttled.
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
    """A kind of quota that can hold a client back."""

    def throttle(self, request: Request, callback: ThrottleCallback, throttle_time_ms: int) -> None:
        """Starts throttling now and ends it after that time."""
        ...


class RequestQuota(Throttler, Protocol):
    """The share of the threads' time that a client may have (``request_percentage``)."""

    @property
    def is_enabled(self) -> bool:
        """Whether anybody has such a quota at all. If not, nobody needs to ask what time it is."""
        ...

    def maybe_record_and_get_throttle_time_ms(self, request: Request, now_ms: int) -> int:
        """Charges the request's time so far; how long the client is to be held back."""
        ...

    def maybe_record_exempt(self, request: Request) -> None:
        """Counts the time of a request that is never throttled."""
        ...


class ClientQuota(Throttler, Protocol):
    """How many bytes per second a client may send or get (``producer_byte_rate``, ``consumer_byte_rate``)."""

    @property
    def is_enabled(self) -> bool:
        """Whether anybody has such a quota at all. If not, nobody needs to work out how large an answer would be."""
        ...

    def maybe_record_and_get_throttle_time_ms(self, request: Request, value: float, now_ms: int) -> int:
        """Charges so many bytes to the client; how long it is to be held back."""
        ...

    def unrecord(self, request: Request, value: float, now_ms: int) -> None:
        """Takes back what was charged for an answer that is not sent after all."""
        ...

    def first_wait_ms(self, request: Request) -> int:
        """How long a request has to wait that is the first of its connection, while its quota entity is throttled.

        Without it, a client could come back on a new connection instead of waiting on the muted one.
        """
        ...

    def hold(self, request: Request, wait_ms: int, resume: Callable[[], object]) -> bool:
        """Calls `resume` after that time; false, and it is never called, if too many bytes wait already."""
        ...

    def max_value_in_window(self, request: Request) -> float:
        """The most that the client can get at once without being held back, if it has had nothing lately.

        Whoever sent it more would hold it back for certain, every time, and it would never get anything.
        """
        ...


class ControllerMutationQuota(Protocol):
    """What a request may still change in the cluster; see KIP-599."""

    @property
    def throttle_time_ms(self) -> int: ...

    @property
    def is_exceeded(self) -> bool: ...

    def record(self, permits: float) -> None:
        """Raises `ThrottlingQuotaExceededError` if there are not as many."""
        ...


class QuotaManagers(Protocol):
    """The quotas that the request path asks."""

    @property
    def produce(self) -> ClientQuota: ...

    @property
    def fetch(self) -> ClientQuota: ...

    @property
    def request(self) -> RequestQuota: ...

    @property
    def controller_mutation(self) -> Throttler: ...


class Unlimited:
    """No quota at all."""

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
    """No limit on bytes."""

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
    """What a node without quota managers uses."""

    __slots__ = ()

    produce: Final[ClientQuota] = UNLIMITED_BANDWIDTH
    fetch: Final[ClientQuota] = UNLIMITED_BANDWIDTH
    request: Final[RequestQuota] = UNLIMITED
    controller_mutation: Final[Throttler] = UNLIMITED


NO_QUOTAS: Final = NoQuotas()


class ChannelThrottle:
    """Mutes the channel that a request came over, through the request channel."""

    __slots__ = ("_end", "_request", "_start")

    def __init__(self, request: Request, start: Callable[[Request], None], end: Callable[[Request], None]) -> None:
        self._request = request
        self._start = start
        self._end = end

    def start_throttling(self) -> None:
        self._start(self._request)

    def end_throttling(self) -> None:
        self._end(self._request)
