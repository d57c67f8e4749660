"""Decides when to create a snapshot of the metadata."""

from __future__ import annotations

import logging
from collections.abc import Callable

from barnabas.common.clock import Clock
from barnabas.metadata.snapshot_generator import reason_for_snapshot
from barnabas.raft.client import ApiMessageAndVersion, Batch, OffsetAndEpoch

log = logging.getLogger(__name__)

SnapshotHook = Callable[[OffsetAndEpoch, str], None]
"""Called with the id of the snapshot to create and the reason. It starts the work and returns."""


class SnapshotTrigger:
    """Tracks the bytes committed and the time elapsed since the last snapshot.

    A log without snapshots grows forever, and so does the startup time. ``max_bytes`` is
    ``metadata.log.max.record.bytes.between.snapshots``, ``max_interval_ms`` ``metadata.log.max.snapshot.interval.ms``;
    0 disables the interval. The snapshot is not written here, because the controller's thread must serve requests.
    """

    def __init__(
        self,
        clock: Clock,
        hook: SnapshotHook,
        *,
        max_bytes: int = 20 * 1024 * 1024,
        max_interval_ms: int = 60 * 60 * 1000,
    ) -> None:
        self._clock = clock
        self._hook = hook
        self._max_bytes = max_bytes
        self._max_interval_ns = max_interval_ms * 1_000_000
        self._bytes = 0
        self._since_ns = clock.nanoseconds()

    def loaded_snapshot(self) -> None:
        self._reset()

    def committed(self, batch: Batch[ApiMessageAndVersion], last_stable_offset: int) -> None:
        """Counts a committed batch. Inside a transaction nothing is triggered: its records do not count yet."""
        self._bytes += batch.size_in_bytes
        if last_stable_offset < batch.last_offset or self._bytes == 0:
            return
        age_ns = self._clock.nanoseconds() - self._since_ns
        reason = reason_for_snapshot(self._bytes, self._max_bytes, age_ns, self._max_interval_ns)
        if reason is None:
            return
        self._reset()
        snapshot_id = OffsetAndEpoch(batch.last_offset + 1, batch.epoch)
        log.info("Requesting a snapshot at offset %d: %s", snapshot_id.offset, reason)
        self._hook(snapshot_id, reason)

    def _reset(self) -> None:
        self._bytes = 0
        self._since_ns = self._clock.nanoseconds()
