"""Producer snapshots: the state of a log's producers at an offset, in a file ``<offset>.snapshot``.

Without a snapshot, a starting broker would have to read the whole log to learn the last sequence number of each
producer. With one, it reads only the later batches. Snapshots are taken at every segment roll, at the base offset of
the next segment, and at shutdown.

    int16   version (1)
    uint32  CRC-32C of everything from here on
    int32   number of entries, then each one:
            int64 producer id, int16 epoch, int32 last sequence, int64 last offset, int32 offset delta,
            int64 timestamp, int32 coordinator epoch, int64 first offset of the open transaction or -1

A snapshot keeps only the last one of a producer's last five batches. So right after a restart, a repetition of an older
batch counts as out of order, not as a duplicate.

A file with any damage is rejected as a whole (`CorruptSnapshotError`). Nothing is lost: the previous snapshot and more
of the log give the same state.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from barnabas._kernels import checksum
from barnabas.common.errors import BarnabasError, ProtocolError
from barnabas.log.dirs.durable_file import write_file
from barnabas.log.producers.producer_state_entry import BatchMetadata, ProducerStateEntry
from barnabas.log.storage_errors import disk_access
from barnabas.protocol.internal.storage import ProducerEntry, ProducerSnapshot

crc32c = checksum.crc32c

VERSION: Final = 1
_HEADER: Final = struct.Struct(">hI")
_NO_TRANSACTION: Final = -1


class CorruptSnapshotError(BarnabasError):
    """A producer snapshot that cannot be used."""


def encode_snapshot(entries: Iterable[ProducerStateEntry]) -> bytes:
    """Encodes the contents of a snapshot file."""
    snapshot = ProducerSnapshot(
        producer_entries=[
            ProducerEntry(
                producer_id=entry.producer_id,
                epoch=entry.producer_epoch,
                last_sequence=entry.last_seq,
                last_offset=entry.last_data_offset,
                offset_delta=entry.last_offset_delta,
                timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_first_offset=(
                    _NO_TRANSACTION if entry.current_txn_first_offset is None else entry.current_txn_first_offset
                ),
            )
            for entry in entries
        ]
    )
    body = memoryview(snapshot.encode(VERSION))[4:]  # without the checksum, which is computed from the rest
    return _HEADER.pack(VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerStateEntry]:
    """Decodes the producers in a snapshot file; `CorruptSnapshotError` if any byte is damaged."""
    if len(data) < _HEADER.size:
        raise CorruptSnapshotError(f"{len(data)} bytes are too few for a producer snapshot")
    version, stated_crc = _HEADER.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshotError(f"version {version} of producer snapshots is not known, only {VERSION} is")
    crc = crc32c(memoryview(data)[_HEADER.size :])
    if crc != stated_crc:
        raise CorruptSnapshotError(f"the checksum is {crc:#010x}, but {stated_crc:#010x} was written")
    try:
        snapshot, end = ProducerSnapshot.decode_from(data, VERSION, 2)
    except ProtocolError as error:
        raise CorruptSnapshotError(str(error)) from None
    if end != len(data):
        raise CorruptSnapshotError(f"{len(data) - end} bytes are left over after the last entry")
    return [_state_entry(entry) for entry in snapshot.producer_entries]


def _state_entry(stored: ProducerEntry) -> ProducerStateEntry:
    first_offset = stored.current_txn_first_offset
    entry = ProducerStateEntry(
        stored.producer_id,
        stored.epoch,
        stored.coordinator_epoch,
        stored.timestamp,
        first_offset if first_offset >= 0 else None,
    )
    if stored.last_offset >= 0:  # otherwise this epoch has only markers
        entry.add_batch(
            stored.epoch, BatchMetadata(stored.last_sequence, stored.last_offset, stored.offset_delta, stored.timestamp)
        )
    return entry


def write_snapshot(path: Path, entries: Iterable[ProducerStateEntry], *, sync: bool = True) -> None:
    """Writes a snapshot file. Without `sync` the caller has to force it to disk later."""
    data = encode_snapshot(entries)
    with disk_access("write", path):
        write_file(path, data, sync=sync)


def read_snapshot(path: Path) -> list[ProducerStateEntry]:
    """Reads a snapshot file; `CorruptSnapshotError` if it is damaged, `KafkaStorageError` if it is missing."""
    with disk_access("read", path):
        data = path.read_bytes()
    return decode_snapshot(data)
