"""Sessions of one key: records with less than a gap between them, whatever order they arrive in.

    gap 30 min      10:00   10:10 ....... 10:50   10:55 ....... watermark 11:30
    sessions        [ 2 records ]         [ 2 records ]
    closed at            10:40                 11:25

The *watermark* is the time before which no record is expected any more. A record before it is late. A session is closed
once the watermark has reached its last record plus the gap: no record that is not late can extend it, so the closed
sessions are exactly those of the records that were not late, in whatever order and batches they came.

This module knows neither Spark nor a clock: records and watermarks in, closed sessions out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self


class Position(NamedTuple):
    """When and where a record is. Positions are ordered by time; offset and partition break ties."""

    time_us: int
    topic: str
    partition: int
    offset: int


class AggregateFunction(NamedTuple):
    """How values of a column become one, in any order."""

    begin: Callable[[Any, Position], Any]
    """Makes the aggregate of one value."""
    combine: Callable[[Any, Any], Any]
    """Makes one aggregate of two."""
    result: Callable[[Any], Any]
    """Returns the value that an aggregate has in the table."""


def _alone(value: Any, _position: Position) -> Any:
    return value


def _placed(value: Any, position: Position) -> Any:
    return [*position, value]


def _same(aggregate: Any) -> Any:
    return aggregate


def _value(aggregate: Any) -> Any:
    return aggregate[-1]


def _position(aggregate: Any) -> Any:
    return aggregate[:-1]


FUNCTIONS: Final[Mapping[str, AggregateFunction]] = {
    "sum": AggregateFunction(_alone, lambda one, other: one + other, _same),
    "min": AggregateFunction(_alone, min, _same),
    "max": AggregateFunction(_alone, max, _same),
    "first": AggregateFunction(_placed, lambda one, other: min(one, other, key=_position), _value),
    "last": AggregateFunction(_placed, lambda one, other: max(one, other, key=_position), _value),
}


@dataclass(frozen=True, slots=True)
class Session:
    """One session: how many records, the first and the last of them, and an aggregate for each function."""

    count: int
    first: Position
    last: Position
    aggregates: tuple[Any, ...] = ()
    """None for a column of which no record has a value."""


class KeySessions:
    """The open sessions of one key, in the order of their times."""

    def __init__(self, gap_us: int, functions: Sequence[str] = (), opened: Iterable[Session] = ()) -> None:
        """``functions`` are names in `FUNCTIONS`, one for each value of a record."""
        if gap_us <= 0:
            raise ValueError(f"the gap of sessions must be positive: {gap_us} us")
        self._gap_us = gap_us
        self._functions = tuple(FUNCTIONS[name] for name in functions)
        self._opened = list(opened)

    def __len__(self) -> int:
        return len(self._opened)

    @property
    def next_close_us(self) -> int | None:
        """The watermark at which the next session is to be closed; None if no session is open."""
        return self._opened[0].last.time_us + self._gap_us if self._opened else None

    def add(self, position: Position, values: Sequence[Any] = ()) -> None:
        """Adds a record that is not late. It begins a session, extends one, or makes one session of several."""
        aggregates = tuple(
            None if _is_missing(value) else function.begin(value, position)
            for function, value in zip(self._functions, values, strict=True)
        )
        session = Session(1, position, position, aggregates)
        apart: list[Session] = []
        for one in self._opened:
            if self._are_together(one, session):
                session = self._merged(one, session)
            else:
                apart.append(one)
        apart.append(session)
        self._opened = sorted(apart, key=_start)

    def close(self, watermark_us: int) -> list[Session]:
        """Removes the sessions that no record can extend any more, and returns them."""
        closed = [one for one in self._opened if one.last.time_us + self._gap_us <= watermark_us]
        del self._opened[: len(closed)]  # they are the first, for sessions do not overlap
        return closed

    def results(self, session: Session) -> list[Any]:
        """Returns the values of a session's aggregates."""
        return [
            None if aggregate is None else function.result(aggregate)
            for function, aggregate in zip(self._functions, session.aggregates, strict=True)
        ]

    def _are_together(self, one: Session, other: Session) -> bool:
        return (
            one.first.time_us - other.last.time_us < self._gap_us
            and other.first.time_us - one.last.time_us < self._gap_us
        )

    def _merged(self, one: Session, other: Session) -> Session:
        aggregates = tuple(
            right if left is None else left if right is None else function.combine(left, right)
            for function, left, right in zip(self._functions, one.aggregates, other.aggregates, strict=True)
        )
        return Session(one.count + other.count, min(one.first, other.first), max(one.last, other.last), aggregates)

    def to_json(self) -> str:
        """Returns the open sessions as text, for a state store."""
        return json.dumps([[one.count, one.first, one.last, one.aggregates] for one in self._opened])

    @classmethod
    def from_json(cls, gap_us: int, functions: Sequence[str], text: str) -> Self:
        opened = [
            Session(count, Position(*first), Position(*last), tuple(aggregates))
            for count, first, last, aggregates in json.loads(text)
        ]
        return cls(gap_us, functions, opened)


def _start(session: Session) -> Position:
    return session.first


def _is_missing(value: Any) -> bool:
    """Tells whether a value counts as none: null, or a float that is no number."""
    return value is None or (isinstance(value, float) and math.isnan(value))
