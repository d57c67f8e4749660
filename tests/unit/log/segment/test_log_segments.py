"""The table of segments."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.errors import KafkaStorageError
from barnabas.log.segment.log_segment import LogSegment
from barnabas.log.segment.log_segments import LogSegments
from segment_fixtures import append, batch_of, open_segment


class FakeSegment:
    """Just a base offset and a size."""

    def __init__(self, base_offset: int, size: int = 10) -> None:
        self.base_offset = base_offset
        self.size = size


def fake(base_offset: int) -> LogSegment:
    return cast("LogSegment", FakeSegment(base_offset))


def table(*base_offsets: int) -> LogSegments:
    return LogSegments([fake(offset) for offset in base_offsets])


def bases(segments: tuple[LogSegment, ...]) -> list[int]:
    return [segment.base_offset for segment in segments]


def base(segment: LogSegment | None) -> int | None:
    return None if segment is None else segment.base_offset


class TestNavigation:
    def test_segments_are_in_order_whatever_order_they_come_in(self) -> None:
        segments = table(20, 0, 10)
        assert segments.base_offsets == (0, 10, 20)
        assert bases(segments.values()) == [0, 10, 20]
        assert len(segments) == 3
        assert base(segments.first) == 0
        assert base(segments.last) == 20
        assert segments.active.base_offset == 20
        assert 10 in segments
        assert 11 not in segments
        assert segments.size_in_bytes == 30
        assert repr(segments) == "LogSegments(0, 10, 20)"

    @pytest.mark.parametrize(
        ("offset", "floor", "lower", "higher"),
        [(5, None, None, 10), (10, 10, None, 20), (15, 10, 10, 20), (20, 20, 10, None), (99, 20, 20, None)],
    )
    def test_neighbours(self, offset: int, floor: int | None, lower: int | None, higher: int | None) -> None:
        segments = table(10, 20)
        assert base(segments.floor(offset)) == floor
        assert base(segments.lower(offset)) == lower
        assert base(segments.higher(offset)) == higher

    @pytest.mark.parametrize(
        ("start", "end", "expected"),
        [
            (0, 5, []),
            (0, 11, [10]),
            (10, 20, [10]),
            (15, 21, [10, 20]),
            (20, 31, [20, 30]),
            (35, 99, [30]),
            (20, 20, []),
        ],
    )
    def test_between(self, start: int, end: int, expected: list[int]) -> None:
        assert bases(table(10, 20, 30).between(start, end)) == expected

    def test_between_has_to_make_sense(self) -> None:
        with pytest.raises(ValueError, match="before its start"):
            table(10).between(5, 4)

    def test_non_active(self) -> None:
        segments = table(10, 20, 30)
        assert bases(segments.non_active_from(0)) == [10, 20]
        assert bases(segments.non_active_from(25)) == [20]
        assert bases(segments.non_active_from(31)) == []
        assert bases(segments.higher_segments(10)) == [20, 30]

    def test_those_after_a_segment_that_is_still_there(self) -> None:
        segments = table(10, 20, 30)
        first, second, third = segments
        assert segments.following(first) == (second, third)
        assert segments.following(third) == ()
        (other,) = table(20)
        segments.replace((10, 20), (other,))
        assert segments.following(other) == (third,)
        assert segments.following(first) is segments.following(second) is None
        segments.clear()
        assert segments.following(third) is None

    def test_an_empty_table(self) -> None:
        segments = LogSegments()
        assert segments.first is None
        assert segments.last is None
        assert segments.floor(0) is None
        assert segments.between(0, 10) == ()
        with pytest.raises(ValueError, match="no active one"):
            _ = segments.active

    @given(st.sets(st.integers(0, 50)), st.integers(-1, 51))
    def test_floor_and_higher_like_a_search_through_all(self, offsets: set[int], target: int) -> None:
        segments = table(*offsets)
        assert base(segments.floor(target)) == max((one for one in offsets if one <= target), default=None)
        assert base(segments.lower(target)) == max((one for one in offsets if one < target), default=None)
        assert base(segments.higher(target)) == min((one for one in offsets if one > target), default=None)


class TestChanges:
    def test_add_replaces_the_one_at_the_same_offset(self) -> None:
        segments = table(0, 10)
        other = fake(10)
        segments.add(other)
        assert segments.get(10) is other
        assert len(segments) == 2

    def test_remove_and_clear(self) -> None:
        segments = table(0, 10)
        segments.remove(0)
        segments.remove(7)
        assert segments.base_offsets == (10,)
        segments.clear()
        assert len(segments) == 0

    def test_a_reader_keeps_what_it_has_seen(self) -> None:
        segments = table(0, 10, 20)
        seen = []
        for segment in segments:
            seen.append(segment.base_offset)
            segments.clear()
        assert seen == [0, 10, 20]

    def test_replace_is_one_step(self) -> None:
        """There is no moment without the segments in the middle."""
        segments = table(0, 10, 20, 30)
        tables = []

        class Watched(LogSegments):
            __slots__ = ()

            def __setattr__(self, name: str, value: object) -> None:
                if name == "_table":
                    tables.append(value)
                super().__setattr__(name, value)

        watched = Watched(segments)
        tables.clear()
        watched.replace((0, 10, 20), [fake(0)])
        assert watched.base_offsets == (0, 30)
        assert len(tables) == 1


class TestFiles:
    def test_close_closes_all_and_raises_the_first_error(self, tmp_path: Path) -> None:
        segments = LogSegments([open_segment(tmp_path, offset) for offset in (0, 10, 20)])
        for segment in segments:
            append(segment, batch_of(segment.base_offset))
        for broken in segments.values()[:2]:
            broken.records.path.unlink()
            broken.time_index_path.unlink()
            broken.time_index_path.mkdir()
        with pytest.raises(KafkaStorageError, match=r"00000\.timeindex"):
            segments.close()
        assert not any(segment.records.is_open for segment in segments)

    def test_close_handlers(self, tmp_path: Path) -> None:
        segments = LogSegments([open_segment(tmp_path, offset) for offset in (0, 10)])
        segments.close_handlers()
        assert not any(segment.records.is_open for segment in segments)

    def test_update_parent_dir(self, tmp_path: Path) -> None:
        old = tmp_path / "old"
        old.mkdir()
        segments = LogSegments([open_segment(old, 0)])
        old.rename(tmp_path / "new")
        segments.update_parent_dir(tmp_path / "new")
        assert segments.active.records.path.exists()
        append(segments.active, batch_of(0))
        segments.close()
