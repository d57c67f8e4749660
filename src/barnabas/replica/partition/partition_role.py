"""This broker's role for a partition, and the offsets that a reader may see in that role."""

from __future__ import annotations

from typing import Final

from barnabas.common.dataclass import dataclass
from barnabas.common.errors import OffsetNotAvailableError
from barnabas.log.leader_epoch_cache import UNDEFINED_EPOCH, EpochEndOffset
from barnabas.log.unified_log import UnifiedLog
from barnabas.metadata.partition_registration import NO_LEADER
from barnabas.records.batch import NO_TIMESTAMP
from barnabas.replica.results import IsolationLevel, OffsetResult

_NO_OFFSET: Final = OffsetResult()


@dataclass(frozen=True, slots=True)
class PartitionRole:
    """This broker's role for a partition: leader, follower or none. Replaced as a whole, so it is read without a lock.

    The lookups take the log that the role has: see `Partition`, which checks that there is one.
    """

    log: UnifiedLog | None = None
    is_leader: bool = False
    leader_id: int = NO_LEADER
    leader_epoch: int = -1
    leader_epoch_start_offset: int | None = None
    """The log end offset when this broker was elected; None for a follower."""

    def end_offset_for_epoch(self, log: UnifiedLog, epoch: int) -> EpochEndOffset | None:
        """Returns the last epoch up to this one and its end offset; None if unknown.

        The epoch of a leader that has written nothing, and has no followers, is not in the epoch cache, but counts too.
        """
        start, latest = self.leader_epoch_start_offset, log.leader_epochs.latest_epoch
        if start is not None and epoch != UNDEFINED_EPOCH and (latest is None or epoch > latest):
            if epoch == self.leader_epoch:
                return EpochEndOffset(epoch, log.log_end_offset)
            if epoch < self.leader_epoch:
                return EpochEndOffset(epoch if latest is None else latest, start)
        return log.end_offset_for_epoch(epoch)

    def offset_for_timestamp(self, log: UnifiedLog, timestamp: int, isolation: IsolationLevel | None) -> OffsetResult:
        """Returns the offset for a timestamp or a `SpecialTimestamp`, as far as this reader may see.

        Without `isolation` the reader is a replica, and sees everything.

        A newly elected leader raises `OffsetNotAvailableError` until its high watermark reaches the start of its epoch:
        clients may have seen offsets beyond the high watermark, and offsets would seem to go backwards.
        """
        from barnabas.log.offset_lookup import SpecialTimestamp

        offsets = log.watermarks.offsets
        start = self.leader_epoch_start_offset
        if timestamp in {SpecialTimestamp.EARLIEST, SpecialTimestamp.EARLIEST_LOCAL}:
            result = _offset_result(log, timestamp)
            # The first record is, or will be, of this leader's epoch: see `end_offset_for_epoch`.
            of_this_epoch = start is not None and result.offset >= start
            return result._replace(leader_epoch=self.leader_epoch) if of_this_epoch else result
        if isolation is None:
            last_fetchable = offsets.log_end_offset.message_offset
        elif isolation is IsolationLevel.READ_COMMITTED:
            last_fetchable = offsets.last_stable_offset.message_offset
        else:
            last_fetchable = offsets.high_watermark.message_offset
        if timestamp == SpecialTimestamp.LATEST:
            result = OffsetResult(NO_TIMESTAMP, last_fetchable, self.leader_epoch)
            is_visible = False
        else:
            result = _offset_result(log, timestamp)
            is_visible = result is not _NO_OFFSET and result.offset < last_fetchable
            if not is_visible:
                result = _NO_OFFSET
        high_watermark = offsets.high_watermark.message_offset
        if not is_visible and isolation is not None and start is not None and start > high_watermark:
            raise OffsetNotAvailableError(
                f"The high watermark of {log.topic_partition} is {high_watermark} and has not reached {start}, where "
                f"leader epoch {self.leader_epoch} began"
            )
        return result


NO_ROLE: Final = PartitionRole()


def _offset_result(log: UnifiedLog, timestamp: int) -> OffsetResult:
    found = log.fetch_offset_by_timestamp(timestamp)
    if found is None:
        return _NO_OFFSET
    return OffsetResult(found.timestamp, found.offset, -1 if found.leader_epoch is None else found.leader_epoch)
