"""How far an image goes."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.raft.client import OffsetAndEpoch


class MetadataProvenance(NamedTuple):
    """The last record that an image contains.

    >>> MetadataProvenance(last_contained_offset=99, epoch=3, log_append_time_ms=0, is_batch_aligned=True).snapshot_name
    '00000000000000000100-0000000003'
    """

    last_contained_offset: int
    epoch: int
    """The epoch of the controller that wrote it."""
    log_append_time_ms: int
    is_batch_aligned: bool
    """Whether that record is the last of its batch. After a snapshot the log goes on with the next batch, so only of an
    aligned image can a snapshot be taken."""

    @property
    def snapshot_id(self) -> OffsetAndEpoch:
        """A snapshot is named after the offset that follows what it contains."""
        return OffsetAndEpoch(self.last_contained_offset + 1, self.epoch)

    @property
    def snapshot_name(self) -> str:
        """Its file, without the extension."""
        return f"{self.last_contained_offset + 1:020d}-{self.epoch:010d}"


NOWHERE = MetadataProvenance(-1, -1, -1, is_batch_aligned=False)
"""That of the empty image, before the first record."""
