"""Timers and retry backoff."""

from __future__ import annotations

from random import Random

from barnabas.clients.common.client_config import RETRY_BACKOFF_EXP_BASE, RETRY_BACKOFF_JITTER
from barnabas.network.client.exponential_backoff import ExponentialBackoff


class Timer:
    """A deadline that can be moved. It does not fire: callers check it."""

    __slots__ = ("_deadline_ms", "interval_ms")

    def __init__(self, interval_ms: int, now: int) -> None:
        self.interval_ms = interval_ms
        self._deadline_ms = now + interval_ms

    def reset(self, now: int, interval_ms: int | None = None) -> None:
        """Restarts the timer, once with another interval if one is given."""
        self._deadline_ms = now + (self.interval_ms if interval_ms is None else interval_ms)

    def is_expired(self, now: int) -> bool:
        return now >= self._deadline_ms

    def expired_by_ms(self, now: int) -> int:
        return max(now - self._deadline_ms, 0)

    def remaining_ms(self, now: int) -> int:
        return max(self._deadline_ms - now, 0)


class RequestState:
    """Allows one request at a time, with exponential backoff after failures."""

    __slots__ = ("_attempts", "_backoff", "_backoff_ms", "_last_received_ms", "in_flight")

    def __init__(self, retry_backoff_ms: int, retry_backoff_max_ms: int, random: Random) -> None:
        self._backoff = ExponentialBackoff(
            retry_backoff_ms, RETRY_BACKOFF_EXP_BASE, retry_backoff_max_ms, RETRY_BACKOFF_JITTER, random
        )
        self.in_flight = False
        self._attempts = 0
        self._backoff_ms = 0
        self._last_received_ms = 0

    def can_send(self, now: int) -> bool:
        return not self.in_flight and self.remaining_backoff_ms(now) == 0

    def remaining_backoff_ms(self, now: int) -> int:
        return max(self._last_received_ms + self._backoff_ms - now, 0)

    @property
    def attempts(self) -> int:
        """The number of consecutive failures."""
        return self._attempts

    def sent(self) -> None:
        self.in_flight = True

    def succeeded(self, now: int) -> None:
        self.in_flight = False
        self._last_received_ms = now
        self._attempts = 0
        self._backoff_ms = 0

    def failed(self, now: int) -> None:
        self.in_flight = False
        self._last_received_ms = now
        self._backoff_ms = self._backoff.backoff(self._attempts)
        self._attempts += 1

    def reset(self) -> None:
        """Clears the failures and the backoff."""
        self.in_flight = False
        self._attempts = 0
        self._backoff_ms = 0
