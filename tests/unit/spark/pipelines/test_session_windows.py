"""Sessions of one key: whatever order and batches records come in, the sessions are those of the sorted records."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.spark.pipelines.session_windows import KeySessions, Position, Session

pytestmark = pytest.mark.mechanism("S08")

GAP_US = 10
FUNCTIONS = ("sum", "min", "max", "first", "last")
Event = tuple[Position, float | None]
values = st.none() | st.integers(-5, 5).map(float) | st.just(float("nan"))


def at(time_us: int, offset: int = 0) -> Position:
    return Position(time_us, "clicks", 0, offset)


def model(events: list[Event]) -> list[tuple[Any, ...]]:
    """Sorts all records, and cuts where there is a gap."""
    groups: list[list[Event]] = []
    for event in sorted(events, key=lambda one: one[0]):
        if groups and event[0].time_us - groups[-1][-1][0].time_us < GAP_US:
            groups[-1].append(event)
        else:
            groups.append([event])
    rows = []
    for group in groups:
        found = [value for _, value in group if value is not None and not math.isnan(value)]
        aggregates = [sum(found), min(found), max(found), found[0], found[-1]] if found else [None] * 5
        rows.append((len(group), group[0][0], group[-1][0], aggregates))
    return rows


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 120), values), max_size=8), max_size=6),
    st.lists(st.integers(0, 40), min_size=6, max_size=6),
)
def test_closed_sessions_are_those_of_the_records_that_were_not_late(
    batches: list[list[tuple[int, float | None]]], steps: list[int]
) -> None:
    """Between batches the watermark goes on and the state goes through its text, as in a state store."""
    sessions = KeySessions(GAP_US, FUNCTIONS)
    accepted: list[Event] = []
    closed: list[tuple[Any, ...]] = []
    watermark = 0
    for batch, step in zip(batches, steps, strict=False):
        watermark += step
        due = sessions.next_close_us
        found = sessions.close(watermark)
        assert bool(found) == (due is not None and due <= watermark)
        closed += [(one.count, one.first, one.last, sessions.results(one)) for one in found]
        for time_us, value in batch:
            if time_us >= watermark:
                event = (at(time_us, len(accepted)), value)
                accepted.append(event)
                sessions.add(event[0], [value] * len(FUNCTIONS))
        sessions = KeySessions.from_json(GAP_US, FUNCTIONS, sessions.to_json())
    closed += [(one.count, one.first, one.last, sessions.results(one)) for one in sessions.close(1_000)]
    assert closed == model(accepted)
    assert not sessions


def test_a_record_between_two_sessions_makes_one_of_them() -> None:
    sessions = KeySessions(GAP_US, ["last"])
    sessions.add(at(100, 0), ["a"])
    sessions.add(at(118, 1), ["b"])
    assert len(sessions) == 2
    sessions.add(at(109, 2), [None])
    assert sessions.close(127) == []
    (one,) = sessions.close(128)
    assert (one.count, one.first, one.last, sessions.results(one)) == (3, at(100, 0), at(118, 1), ["b"])
    assert sessions.next_close_us is None


def test_records_a_gap_apart_are_two_sessions() -> None:
    sessions = KeySessions(GAP_US)
    sessions.add(at(0))
    sessions.add(at(GAP_US))
    assert sessions.close(2 * GAP_US) == [Session(1, at(0), at(0)), Session(1, at(GAP_US), at(GAP_US))]


def test_a_gap_is_positive() -> None:
    with pytest.raises(ValueError, match="the gap of sessions must be positive: 0 us"):
        KeySessions(0)
