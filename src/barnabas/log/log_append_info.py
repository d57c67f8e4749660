"""The result of an append."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from barnabas.records.batch import NO_TIMESTAMP

UNKNOWN_OFFSET: Final = -1


class LeaderHwChange(Enum):
    """The effect of a leader's append on its high watermark, which may complete waiting requests."""

    INCREASED = auto()
    """The high watermark moved: there are no other replicas to wait for."""
    SAME = auto()
    NONE = auto()
    """Nothing was appended, or the effect is unknown."""


class RecordError(NamedTuple):
    """The error of one record of a rejected batch; the number is the record's index in the batch."""

    batch_index: int
    message: str


class LogAppendInfo(NamedTuple):
    """The offsets and timestamps of the appended batches, or of the original of a duplicate.

    `valid_bytes` is 0 if there was nothing to append.
    """

    first_offset: int = UNKNOWN_OFFSET
    last_offset: int = UNKNOWN_OFFSET
    last_leader_epoch: int | None = None
    """The leader epoch of the last batch."""
    max_timestamp: int = NO_TIMESTAMP
    offset_of_max_timestamp: int = UNKNOWN_OFFSET
    """The last offset of the first batch with the largest timestamp: the time index refers to batches, not records."""
    log_append_time: int = NO_TIMESTAMP
    """Set if the topic uses ``LogAppendTime``; a duplicate has the time of the original."""
    log_start_offset: int = UNKNOWN_OFFSET
    valid_bytes: int = 0
    """The size of the batches, after recompression if there was any."""
    is_duplicate: bool = False
    """Whether the batch was in the log already, and nothing was written."""
    leader_hw_change: LeaderHwChange = LeaderHwChange.NONE
