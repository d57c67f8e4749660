"""The answer to most fetches of consumers, written in one go.

Where nothing is wrong with any partition, an answer is a few numbers for each, and its records, which are not looked
at. They are packed right into the pieces of a frame. By way of a message, with a struct for each partition, the answer
to a consumer that waits for records takes as long as finding them. Everything else goes that way, and what is sent is
the same, to the byte.

This is the twin of `_fetch_answer`, which makes no object but the pieces.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from barnabas.common.errors import Errors
from barnabas.replica.fetch_session import TopicIdPartition
from barnabas.replica.results import NO_REPLICA, FetchPartitionData

_TOPIC_IDS: Final = 13
_HEAD: Final = struct.Struct(">iixihi")
"""Size of the frame, correlation id, no tags in the header, throttle time, error, session id."""
_PARTITION: Final = struct.Struct(">ihqqqBi")
"""Number, error, high watermark, last stable offset, log start offset, aborted transactions, preferred replica."""
_NONE: Final = Errors.NONE


def fetch_answer(
    version: int, correlation_id: int, session_id: int, results: Sequence[tuple[TopicIdPartition, FetchPartitionData]]
) -> list[Any] | None:
    """The frame for these partitions, in this order, in version 12 or later; None if it has to be made in another way.

    The pieces are bytes, and in between the records of partitions that have any.
    """
    pieces: list[Any] = []
    buffer = bytearray(_HEAD.size)
    topics = _topics(results)
    _put_uvarint(buffer, len(topics) + 1)
    records_size = 0
    for (topic_id, name), entries in topics:
        if version >= _TOPIC_IDS:
            buffer += topic_id
        else:
            text = (name or "").encode()
            _put_uvarint(buffer, len(text) + 1)
            buffer += text
        _put_uvarint(buffer, len(entries) + 1)
        for number, data in entries:
            error, high_watermark, start, records, diverging, last_stable, aborted, preferred, _ = data
            if error is not _NONE or diverging is not None or preferred != NO_REPLICA or aborted:
                return None
            has_list = aborted is not None
            try:
                buffer += _PARTITION.pack(number, 0, high_watermark, last_stable, start, has_list, NO_REPLICA)
            except struct.error:
                return None  # a number that is none of theirs: the other way knows what to say
            size = len(records)
            _put_uvarint(buffer, size + 1)
            if size:
                records_size += size
                pieces += (bytes(buffer), records)
                buffer = bytearray()
            buffer += b"\0"  # no tags of the partition
        buffer += b"\0"
    buffer += b"\0"
    pieces.append(bytes(buffer))
    total = records_size + sum(map(len, pieces[::2]))
    first = pieces[0]
    pieces[0] = _HEAD.pack(total - 4, correlation_id, 0, 0, session_id) + first[_HEAD.size :]
    return pieces


def _topics(
    results: Sequence[tuple[TopicIdPartition, FetchPartitionData]],
) -> list[tuple[tuple[bytes, str | None], list[tuple[int, FetchPartitionData]]]]:
    """Neighbours of the same topic share an entry."""
    topics: list[tuple[tuple[bytes, str | None], list[tuple[int, FetchPartitionData]]]] = []
    for (topic_id, name, number), data in results:
        if not topics or topics[-1][0] != (topic_id, name):
            topics.append(((topic_id, name), []))
        topics[-1][1].append((number, data))
    return topics


def _put_uvarint(buffer: bytearray, value: int) -> None:
    while value > 0x7F:
        buffer.append(value & 0x7F | 0x80)
        value >>= 7
    buffer.append(value)
