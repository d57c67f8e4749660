"""What an append came to."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from barnabas.common.dataclass import dataclass
from barnabas.records.batch import NO_TIMESTAMP

UNKNOWN_OFFSET: Final = -1


class LeaderHwChange(Enum):
    """What an append by a leader did to its high watermark: who waits for that may have to be told."""

    INCREASED = auto()
    """It moved: there are no other replicas to wait for."""
    SAME = auto()
    NONE = auto()
    """Nothing was appended, or nobody has said."""


class RecordError(NamedTuple):
    """What is wrong with one record of a batch that was refused; the number is its place in the batch."""

    batch_index: int
    message: str


@dataclass(slots=True)
class LogAppendInfo:
    """The offsets and timestamps of what was appended, or of what it was a repetition of.

    With `valid_bytes` 0 there was nothing to append.
    """

    first_offset: int = UNKNOWN_OFFSET
    last_offset: int = UNKNOWN_OFFSET
    last_leader_epoch: int | None = None
    """Of the last batch."""
    max_timestamp: int = NO_TIMESTAMP
    offset_of_max_timestamp: int = UNKNOWN_OFFSET
    """The last offset of the first batch that has the largest timestamp: batches are all that the time index sees."""
    log_append_time: int = NO_TIMESTAMP
    """If it is the broker's clock that counts in this topic; a duplicate has that of the original."""
    log_start_offset: int = UNKNOWN_OFFSET
    valid_bytes: int = 0
    """The size of the batches, after a change of codec if there was one."""
    is_duplicate: bool = False
    """Whether the batch was there already, and nothing was written."""
    leader_hw_change: LeaderHwChange = LeaderHwChange.NONE

    @property
    def num_messages(self) -> int:
        """How many offsets the append takes up."""
        if self.first_offset < 0 or self.last_offset < 0:
            return 0
        return self.last_offset - self.first_offset + 1
