"""The answer that a broker sends most often, written in one go.

Most produce requests are for one topic, and go well. Their answers differ in five numbers for each partition, so they
are packed right into a frame. By way of a message, with a struct for each partition and a list of pieces, the answer
takes longer than all that a produce request takes besides the append itself. Everything else goes that way, and what
is sent is the same, to the byte.

This is the twin of `_produce_answer`, which makes no object but the frame.
"""

from __future__ import annotations

import struct
from typing import Final

from barnabas.common.errors import Errors
from barnabas.replica.fetch_session import TopicIdPartition
from barnabas.replica.results import ProduceResult

_TOPIC_IDS: Final = 13

_NAMED: Final = struct.Struct(">iiBBB")
"""Size of the frame, correlation id, no tags in the header, one topic, length of its name."""
_IDENTIFIED: Final = struct.Struct(">iiBB")
"""The same for a topic with an id."""
_PARTITION: Final = struct.Struct(">ihqqqBBB")
"""One partition: number, error, base offset, append time, log start offset, no record errors, no message, no tags."""
_END: Final = bytes(6)
"""No tags of the topic, throttle time, no tags of the answer."""
_COUNTS: Final = [bytes([count + 1]) for count in range(127)]
"""Numbers of partitions that take one byte."""

_LONGEST_NAME: Final = 126
"""In bytes: the length of a longer one would take two bytes itself."""

_NONE: Final = Errors.NONE
_pack_partition = _PARTITION.pack


def one_topic_answer(version: int, correlation_id: int, results: dict[TopicIdPartition, ProduceResult]) -> bytes | None:
    """The frame for the partitions of one topic, all without an error, in version 9 or later.

    None if it has to be made in another way.
    """
    count = len(results)
    if not 0 < count < len(_COUNTS):
        return None
    pieces = [b"", _COUNTS[count]]
    first = None
    for (topic_id, name, index), (error, base_offset, append_time, log_start_offset, _, _, _) in results.items():
        if first is None:
            first = topic_id, name
        elif (topic_id, name) != first:
            return None
        if error is not _NONE:
            return None
        pieces.append(_pack_partition(index, 0, base_offset, append_time, log_start_offset, 1, 0, 0))
    pieces.append(_END)
    assert first is not None
    size = count * _PARTITION.size + 7
    if version >= _TOPIC_IDS:
        pieces[0] = _IDENTIFIED.pack(22 + size, correlation_id, 0, 2) + first[0]
    else:
        text = (first[1] or "").encode()
        length = len(text)
        if length > _LONGEST_NAME:
            return None
        pieces[0] = _NAMED.pack(7 + length + size, correlation_id, 0, 2, length + 1) + text
    return b"".join(pieces)
