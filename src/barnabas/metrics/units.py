"""Units of time, for rates: per second, per minute, per nanosecond."""

from __future__ import annotations

from enum import Enum


class TimeUnit(Enum):
    """A unit of time of a rate or a duration.

    Conversions are in Kafka's order, so that rates are equal to the last bit:

    >>> TimeUnit.SECONDS.from_milliseconds(1_500)
    1.5
    """

    nanoseconds: int
    """Its length in nanoseconds."""
    _factor: float
    _divisor: float

    def __init__(self, nanoseconds: int) -> None:
        self.nanoseconds = nanoseconds
        # One of the two is 1, which does not change a float; this saves a branch in every rate.
        self._factor = max(1_000_000 / nanoseconds, 1.0)
        self._divisor = max(nanoseconds / 1_000_000, 1.0)

    NANOSECONDS = 1
    MICROSECONDS = 1_000
    MILLISECONDS = 1_000_000
    SECONDS = 1_000_000_000
    MINUTES = 60 * 1_000_000_000
    HOURS = 60 * 60 * 1_000_000_000
    DAYS = 24 * 60 * 60 * 1_000_000_000

    def from_milliseconds(self, milliseconds: int) -> float:
        """Converts milliseconds to this unit."""
        return milliseconds * self._factor / self._divisor
