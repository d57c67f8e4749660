"""Creates snapshots of the metadata when they are due."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.metadata.batch_loader import FaultHandler
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.publisher import LoaderManifest, LogDeltaManifest, MetadataPublisher
from barnabas.protocol.internal.framing import MetadataRecord
from barnabas.raft.client import ApiMessageAndVersion, RaftClient, SnapshotWriter

if TYPE_CHECKING:
    from barnabas.metadata.event_executor import EventExecutor
    from barnabas.metadata.writer import BatchWriter

log = logging.getLogger(__name__)


class Emitter(Protocol):
    """Writes a snapshot of an image."""

    def maybe_emit(self, image: MetadataImage) -> bool:
        """Returns whether it did not exist yet."""
        ...


class SnapshotEmitter:
    """Writes an image as records into a snapshot of the replicated log.

    The image is immutable, so this can run slowly on another thread while the log grows.
    """

    def __init__(self, raft: RaftClient[ApiMessageAndVersion], clock: Clock = SYSTEM_CLOCK) -> None:
        self._raft = raft
        self._clock = clock
        self.latest_snapshot_generated_ms: int | None = None
        """When the last one was completed."""

    def maybe_emit(self, image: MetadataImage) -> bool:
        provenance = image.provenance
        writer = self._raft.create_snapshot(provenance.snapshot_id, provenance.log_append_time_ms)
        if writer is None:
            log.info("Snapshot %s already exists", provenance.snapshot_name)
            return False
        try:
            image.write(_into(writer))
        finally:
            writer.close()
        self.latest_snapshot_generated_ms = self._clock.milliseconds()
        log.info("Wrote snapshot %s", provenance.snapshot_name)
        return True


def _into(writer: SnapshotWriter[ApiMessageAndVersion]) -> BatchWriter:
    from barnabas.metadata.writer import BatchWriter

    def append(records: list[tuple[MetadataRecord, int]]) -> None:
        writer.append([ApiMessageAndVersion(message, version) for message, version in records])

    def end(complete: bool) -> None:
        if complete:
            writer.freeze()

    return BatchWriter(append, end)


class SnapshotGenerator(MetadataPublisher):
    """Requests a snapshot after a number of bytes, or after a time in which anything was written.

    Without snapshots the log, and the time to start, would grow forever. ``max_bytes`` is
    ``metadata.log.max.record.bytes.between.snapshots``, ``max_interval_ms`` ``metadata.log.max.snapshot.interval.ms``;
    0 disables the second.

    It counts on the loader's thread with every update, and an executor does the work: one snapshot at a time. If one
    takes longer than the next is due, the next waits for a later update.

    A snapshot ends at the end of a batch, because the log continues after it. So there is none in the middle of a
    metadata transaction: the next update after it is soon enough.
    """

    def __init__(
        self,
        emitter: Emitter,
        executor: EventExecutor,
        on_fault: FaultHandler,
        *,
        max_bytes: int = 20 * 1024 * 1024,
        max_interval_ms: int = 60 * 60 * 1000,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._emitter = emitter
        self._executor = executor
        self._on_fault = on_fault
        self._max_bytes = max_bytes
        self._max_interval_ns = max_interval_ms * 1_000_000
        self._clock = clock
        self._bytes = 0
        self._since_ns = clock.nanoseconds()
        self._is_busy = False
        """Whether a snapshot is in progress. Set by the loader's thread, and reset by the executor's."""
        self._closed = False

    @property
    def name(self) -> str:
        return "SnapshotGenerator"

    def on_metadata_update(self, delta: MetadataDelta, new_image: MetadataImage, manifest: LoaderManifest) -> None:  # noqa: ARG002 - interface
        if not isinstance(manifest, LogDeltaManifest):
            self._reset()  # just loaded from one, or started
            return
        self._bytes += manifest.num_bytes
        age_ns = self._clock.nanoseconds() - self._since_ns
        reason = reason_for_snapshot(self._bytes, self._max_bytes, age_ns, self._max_interval_ns)
        if reason is None:
            return
        if self._is_busy or self._closed or not manifest.provenance.is_batch_aligned:
            return
        self._reset()
        self._is_busy = True
        self._executor.execute(lambda: self._emit(new_image, reason))

    def _emit(self, image: MetadataImage, reason: str) -> None:
        try:
            if not self._closed:
                log.info("Writing snapshot %s: %s", image.provenance.snapshot_name, reason)
                self._emitter.maybe_emit(image)
        except Exception as error:  # noqa: BLE001 - the log is complete without it; the fault handler decides
            self._on_fault(f"cannot write snapshot {image.provenance.snapshot_name}", error)
        finally:
            self._is_busy = False

    def _reset(self) -> None:
        self._bytes = 0
        self._since_ns = self._clock.nanoseconds()

    def close(self) -> None:
        """Starts no more snapshots; one in progress is completed."""
        self._closed = True


def reason_for_snapshot(written: int, max_bytes: int, age_ns: int, max_interval_ns: int) -> str | None:
    """Says why a snapshot is due, given the bytes and the time since the last one; None if it is not due.

    A `max_interval_ns` of zero means no limit for the age.
    """
    if written >= max_bytes:
        return f"{written} bytes were written since the last one"
    if max_interval_ns and age_ns >= max_interval_ns:
        return f"the last one is {max_interval_ns // 1_000_000} ms old"
    return None
