"""Reads and writes snapshots as records.

::

    [header, kraft.version, voters]  [topics ...]  [partitions ...]  ...  [footer]
     control batch                    batches of metadata records          control batch

The header has the append time of the last record that the snapshot covers. ``kraft.version`` and the voters are present
if the log has them (KIP-853). A file without a footer was truncated. Offsets count from 0 and have no meaning; all
batches have the epoch of the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from barnabas.common.clock import Clock
from barnabas.common.errors import BarnabasError, CorruptRecordError, KafkaStorageError
from barnabas.log.storage_errors import disk_access
from barnabas.protocol.internal.framing import MetadataRecordTypes
from barnabas.protocol.internal.raft import KRaftVersionRecord, SnapshotFooterRecord, SnapshotHeaderRecord
from barnabas.raft.batch_accumulator import BatchAccumulator
from barnabas.raft.client import ApiMessageAndVersion, Batch, OffsetAndEpoch
from barnabas.raft.config import MAX_BATCH_SIZE_BYTES
from barnabas.raft.records_iterator import READ_SIZE, ControlRecord, control_records, decode_batch, raw_batches
from barnabas.raft.snapshot_files import FileRawSnapshotReader, FileRawSnapshotWriter, snapshot_name
from barnabas.raft.voter_set import KRAFT_VERSION_0, NO_VOTERS, VOTERS_RECORD_VERSION, VoterSet
from barnabas.records.batch import RecordBatch
from barnabas.records.control import ControlRecordType

_VERSION: Final = 0
"""The version of header, footer and ``kraft.version`` record."""


class RecordsSnapshotWriter:
    """Writes a snapshot, a batch at a time; see `SnapshotWriter`."""

    def __init__(
        self,
        raw: FileRawSnapshotWriter,
        last_contained_log_timestamp: int,
        *,
        clock: Clock,
        types: MetadataRecordTypes,
        kraft_version: int = KRAFT_VERSION_0,
        voters: VoterSet = NO_VOTERS,
        max_batch_size: int = MAX_BATCH_SIZE_BYTES,
        on_frozen: Callable[[OffsetAndEpoch], None] = lambda _: None,
    ) -> None:
        if kraft_version == KRAFT_VERSION_0 and voters:
            raise ValueError(f"with kraft.version 0, neither log nor snapshot may contain voters: {voters}")
        self._raw = raw
        self._on_frozen = on_frozen
        self._accumulator = BatchAccumulator(
            raw.snapshot_id.epoch, 0, linger_ms=None, clock=clock, types=types, max_batch_size=max_batch_size
        )
        header = SnapshotHeaderRecord(version=_VERSION, last_contained_log_timestamp=last_contained_log_timestamp)
        opening = [(ControlRecordType.SNAPSHOT_HEADER, header.encode(_VERSION))]
        if kraft_version > KRAFT_VERSION_0:
            level = KRaftVersionRecord(version=_VERSION, k_raft_version=kraft_version)
            opening.append((ControlRecordType.KRAFT_VERSION, level.encode(_VERSION)))
            if voters:
                opening.append((ControlRecordType.KRAFT_VOTERS, voters.to_record().encode(VOTERS_RECORD_VERSION)))
        self._accumulator.append_control_records(opening)

    @property
    def snapshot_id(self) -> OffsetAndEpoch:
        return self._raw.snapshot_id

    @property
    def is_frozen(self) -> bool:
        return self._raw.is_frozen

    @property
    def size_in_bytes(self) -> int:
        """The bytes written so far; for a frozen snapshot, the size of its file."""
        return self._raw.size_in_bytes

    def append(self, records: Sequence[ApiMessageAndVersion]) -> None:
        self._check_open()
        if records:
            self._accumulator.append(self.snapshot_id.epoch, records)
            self._write(complete=False)

    def freeze(self) -> None:
        self._check_open()
        footer = SnapshotFooterRecord(version=_VERSION)
        self._accumulator.append_control_records([(ControlRecordType.SNAPSHOT_FOOTER, footer.encode(_VERSION))])
        self._write(complete=True)
        self._raw.freeze()
        self._accumulator.close()
        self._on_frozen(self.snapshot_id)

    def close(self) -> None:
        self._accumulator.close()
        self._raw.close()

    def _write(self, *, complete: bool) -> None:
        for batch in self._accumulator.drain(complete=complete):
            self._raw.append(batch.data)

    def _check_open(self) -> None:
        if self._raw.is_frozen:
            raise BarnabasError(f"snapshot {snapshot_name(self.snapshot_id)} is already frozen")


class RecordsSnapshotReader:
    """Reads a snapshot, a batch at a time; see `SnapshotReader`. Yields only batches of metadata records."""

    def __init__(self, raw: FileRawSnapshotReader, types: MetadataRecordTypes) -> None:
        self._raw: FileRawSnapshotReader | None = raw
        self._types = types
        self._name = raw.path
        self.snapshot_id = raw.snapshot_id
        self.size_in_bytes = raw.size_in_bytes
        self._timestamp: int | None = None

    @property
    def last_contained_log_offset(self) -> int:
        return self.snapshot_id.offset - 1

    @property
    def last_contained_log_timestamp(self) -> int:
        if self._timestamp is None:
            for _ in self._checked_batches(4096):
                break
        assert self._timestamp is not None, "the first batch has set it"
        return self._timestamp

    def __iter__(self) -> Iterator[Batch[ApiMessageAndVersion]]:
        for raw in self._checked_batches():
            try:
                batch = decode_batch(raw, self._types)
            except (BarnabasError, ValueError) as error:
                raise CorruptRecordError(f"{self._name} has a batch that cannot be decoded: {error}") from error
            if batch.records:
                yield batch

    def control_records(self) -> Iterator[ControlRecord]:
        """Yields the control records, including header and footer."""
        for raw in self._checked_batches():
            if raw.is_control_batch:
                yield from control_records(raw)

    def verify(self) -> None:
        """Reads the whole file without decoding metadata records; `CorruptRecordError` describes any damage."""
        for _ in self._checked_batches():
            pass

    def _checked_batches(self, read_size: int = READ_SIZE) -> Iterator[RecordBatch]:
        """Yields all batches, with checks: valid checksums, a header first, a footer last, and nothing after it."""
        position, is_complete = 0, False
        batches = raw_batches(self._open().records, read_size)
        while True:
            try:
                with disk_access("read", self._name):
                    batch = next(batches, None)
                if batch is None:
                    break
                if is_complete:
                    raise CorruptRecordError("a batch follows the snapshot footer")
                batch.ensure_valid()
                found = list(control_records(batch)) if batch.is_control_batch else []
                if position == 0:
                    self._timestamp = self._header(found)
            except KafkaStorageError:
                raise
            except (BarnabasError, ValueError) as error:
                raise CorruptRecordError(f"{self._name} is damaged at byte {position}: {error}") from None
            is_complete = bool(found) and found[-1].type is ControlRecordType.SNAPSHOT_FOOTER
            position += batch.size_in_bytes
            yield batch
            if self._raw is None:
                return
        rest = self.size_in_bytes - position
        if is_complete and rest:
            raise CorruptRecordError(f"{self._name} is damaged: {rest} bytes follow the snapshot footer")
        if not is_complete:
            where = f"the batch at byte {position} is cut off" if rest else f"it ends at byte {position}"
            raise CorruptRecordError(f"{self._name} is damaged: {where}, and there is no snapshot footer")

    def _header(self, found: Sequence[ControlRecord]) -> int:
        """Returns the timestamp in the header, which must be the first of these records."""
        if found and isinstance(found[0].message, SnapshotHeaderRecord):
            return found[0].message.last_contained_log_timestamp
        raise CorruptRecordError("the first record is not a snapshot header")

    def _open(self) -> FileRawSnapshotReader:
        if self._raw is None:
            raise BarnabasError(f"{self._name} is closed")
        return self._raw

    def close(self) -> None:
        self._raw = None

    def __repr__(self) -> str:
        return f"RecordsSnapshotReader({snapshot_name(self.snapshot_id)})"
