"""What runs in Spark's workers for sessions: state and timers around `session_windows`.

The state of a key is its open sessions. One timer per key is due when the next of them is to be closed. A record that
extends a session leaves the timer where it is: it is due too early then, closes nothing, and is set again. That is one
exchange with Spark for a session, and not two for each batch that has a record of the key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from barnabas.spark.pipelines.dead_letter import LATE
from barnabas.spark.pipelines.session_windows import KeySessions, Position, Session

STATE: Final = "sessions"
STATE_SCHEMA: Final = "opened string, timer_ms bigint"
INTEGERS: Final = range(-(2**63), 2**63)
_US_PER_MS: Final = 1_000


class SessionProcessor(StatefulProcessor):
    """Makes sessions of the rows of a key.

    Rows have ``time_us``, ``topic``, ``partition``, ``offset``, ``problem``, ``raw_key``, ``raw_value``, and a column
    for each aggregate. What comes out has one of ``session`` and ``rejected``.
    """

    def __init__(self, gap_us: int, functions: Sequence[str], columns: Sequence[str]) -> None:
        """``columns`` are the names of the aggregates, in the rows and in the output."""
        self._gap_us = gap_us
        self._functions = tuple(functions)
        self._columns = tuple(columns)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._state = handle.getValueState(STATE, STATE_SCHEMA)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803 - Spark's names
        watermark_us = timerValues.getCurrentWatermarkInMs() * _US_PER_MS
        sessions, timer_ms = self._load()
        had_sessions = bool(sessions)
        # Spark calls back for timers after the rows. A session that is due does not wait for that: a record of these
        # rows must not extend it.
        closed = sessions.close(watermark_us)
        for row in rows:
            if row.problem is not None:
                yield self._rejected(row, row.problem)
            elif row.time_us < watermark_us:
                behind_ms = (watermark_us - row.time_us) // _US_PER_MS
                yield self._rejected(row, f"{LATE}: {behind_ms} ms behind the watermark")
            else:
                position = Position(row.time_us, row.topic, row.partition, row.offset)
                sessions.add(position, [row[name] for name in self._columns])
        for one in closed:
            yield self._closed(key, sessions, one)
        if sessions or had_sessions:
            self._store(sessions, timer_ms)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803 - Spark's names
        sessions, timer_ms = self._load()
        for one in sessions.close(timerValues.getCurrentWatermarkInMs() * _US_PER_MS):
            yield self._closed(key, sessions, one)
        is_current = timer_ms == expiredTimerInfo.getExpiryTimeInMs()
        self._store(sessions, None if is_current else timer_ms)

    def close(self) -> None:
        """Nothing is open between two calls."""

    def _load(self) -> tuple[KeySessions, int | None]:
        found = self._state.get()
        if found is None:
            return KeySessions(self._gap_us, self._functions), None
        return KeySessions.from_json(self._gap_us, self._functions, found[0]), found[1]

    def _store(self, sessions: KeySessions, timer_ms: int | None) -> None:
        """Keeps the open sessions, with a timer that is due when the first of them is to be closed, or before."""
        close_us = sessions.next_close_us
        if close_us is None:
            self._state.clear()
            return
        close_ms = -(-close_us // _US_PER_MS)
        if timer_ms is None or close_ms < timer_ms:
            self._handle.registerTimer(close_ms)
            timer_ms = close_ms
        self._state.update((sessions.to_json(), timer_ms))

    def _closed(self, key: Any, sessions: KeySessions, one: Session) -> Row:
        results = [_fitting(value) for value in sessions.results(one)]
        session = Row("key", "start_us", "end_us", "records", "first_record", "last_record", *self._columns)(
            key[0], one.first.time_us, one.last.time_us, one.count, _place(one.first), _place(one.last), *results
        )
        return Row(session=session, rejected=None)

    @staticmethod
    def _rejected(row: Row, reason: str) -> Row:
        rejected = Row(
            topic=row.topic,
            partition=row.partition,
            offset=row.offset,
            time_us=row.time_us,
            reason=reason,
            key=row.raw_key,
            value=row.raw_value,
        )
        return Row(session=None, rejected=rejected)


def _place(position: Position) -> Row:
    return Row(topic=position.topic, partition=position.partition, offset=position.offset)


def _fitting(value: Any) -> Any:
    """A sum of integers that 64 bits do not hold is null, as no record of it is to blame."""
    return None if isinstance(value, int) and value not in INTEGERS else value
