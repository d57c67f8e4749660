"""The map of keys to their last offsets."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.log.cleaner.cleaner_offset_map import BYTES_PER_ENTRY, OffsetMap, _code

KEYS = st.one_of(
    st.binary(max_size=18),
    st.integers(0, 20).map(lambda size: b"\0" * size),
    st.binary(min_size=100, max_size=102),
)


@given(st.lists(st.tuples(KEYS, st.integers(0, 2**63 - 1)), max_size=300), st.lists(KEYS, max_size=20))
@settings(deadline=None)
def test_it_is_a_dict(entries: list[tuple[bytes, int]], others: list[bytes]) -> None:
    found = OffsetMap(1000 * BYTES_PER_ENTRY)
    expected: dict[bytes, int] = {}
    for key, offset in entries:
        found.put(memoryview(key), offset)
        expected[key] = offset
        assert found.latest_offset == offset
    assert len(found) == len(expected)
    for key in (*expected, *others):
        assert found.get(key) == found.get(memoryview(key)) == expected.get(key, -1)


def test_many_keys_take_up_what_they_are_said_to() -> None:
    found = OffsetMap(1 << 24)
    for number in range(30_000):
        found.put(b"customer-%010d" % number, number)
        if number in (4095, 4096, 29_999):
            used = sys.getsizeof(found._buckets) + sum(sys.getsizeof(bucket) for bucket in found._buckets)
            assert used <= BYTES_PER_ENTRY * len(found)
    assert len(found._buckets) > 256
    assert all(found.get(b"customer-%010d" % number) == number for number in range(30_000))
    assert found.utilization == 30_000 / (2**24 // BYTES_PER_ENTRY)
    found.clear()
    assert (len(found), found.latest_offset, found.get(b"customer-0000000001")) == (0, -1, -1)
    assert len(found._buckets) == 1


def test_the_same_bytes_across_two_entries_are_no_entry() -> None:
    """An offset begins with zeros, and so may the code of a key."""
    found = OffsetMap(1 << 16)
    # The last 8 bytes of this entry and the first 8 of the next are the code of the key that is looked for.
    found.put(b"first", 1)
    hidden = b"\0" * 7 + b"\1"
    found.put(b"\0" * 7 + b"\x08", 6)
    assert found._buckets[0].find(_code(hidden)) == 16
    assert found.get(hidden) == -1
    found.put(hidden, 77)
    assert found.get(hidden) == 77
    assert (found.get(b"first"), found.get(b"\0" * 7 + b"\x08"), len(found)) == (1, 6, 3)


def test_a_full_map_takes_no_new_key_but_known_ones() -> None:
    found = OffsetMap(2 * BYTES_PER_ENTRY)
    found.put(b"a", 1)
    found.put(b"b", 2)
    with pytest.raises(ValueError, match="full"):
        found.put(b"c", 3)
    found.put(b"a", 4)
    assert (found.get(b"a"), found.get(b"b"), found.get(b"c"), len(found)) == (4, 2, -1, 2)
    assert found.latest_offset == 4
    assert found.utilization == 1.0
    assert OffsetMap(0).utilization == 1.0
