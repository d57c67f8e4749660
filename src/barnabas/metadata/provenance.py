"""The position of an image in the log."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.raft.client import OffsetAndEpoch


class MetadataProvenance(NamedTuple):
    """The last record of an image.

    >>> MetadataProvenance(last_contained_offset=99, epoch=3, log_append_time_ms=0, is_batch_aligned=True).snapshot_name
    '00000000000000000100-0000000003'
    """

    last_contained_offset: int
    epoch: int
    """The epoch of the controller that wrote it."""
    log_append_time_ms: int
    is_batch_aligned: bool
    """Whether that record is the last of its batch. The log continues with the next batch after a snapshot, so only an
    aligned image can become a snapshot."""

    @property
    def snapshot_id(self) -> OffsetAndEpoch:
        """The ID of a snapshot has the offset after its last record."""
        return OffsetAndEpoch(self.last_contained_offset + 1, self.epoch)

    @property
    def snapshot_name(self) -> str:
        """The file name without the extension."""
        return f"{self.last_contained_offset + 1:020d}-{self.epoch:010d}"


NOWHERE = MetadataProvenance(-1, -1, -1, is_batch_aligned=False)
"""The provenance of the empty image, before the first record."""
