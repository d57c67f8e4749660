"""Control records, which brokers and controllers write for each other and consumers do not return.

A control batch has the control flag in its attributes, and each of its records has a key of two numbers, version and
type. The most important types are the markers that end a transaction: the coordinator has one written to every
partition of the transaction, and a read-committed consumer uses it to decide which records to return. The others belong
to the metadata quorum; the protocol's messages define their values.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

from barnabas.common.dataclass import dataclass
from barnabas.common.errors import InvalidRecordError
from barnabas.records.batch import NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_ID
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.reader import Record

CONTROL_RECORD_KEY_VERSION: Final = 0
END_TRANSACTION_MARKER_VERSION: Final = 0

_KEY: Final = struct.Struct(">hh")
_MARKER: Final = struct.Struct(">hi")


class ControlRecordType(IntEnum):
    """The types of control records. A reader skips types that it does not know (`UNKNOWN`)."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1

    @classmethod
    def for_id(cls, type_id: int) -> ControlRecordType:
        try:
            return cls(type_id)
        except ValueError:
            return cls.UNKNOWN

    def key(self) -> bytes:
        """Returns the key of a control record of this type."""
        if self is ControlRecordType.UNKNOWN:
            raise ValueError("a control record of unknown type cannot be written")
        return _KEY.pack(CONTROL_RECORD_KEY_VERSION, self)


def parse_control_type(key: bytes | memoryview | None) -> ControlRecordType:
    """Returns the type in a control record's key. Newer key versions may be longer, but begin the same way."""
    if key is None or len(key) < _KEY.size:
        size = "no" if key is None else f"a {len(key)}-byte"
        raise InvalidRecordError(f"a control record has {size} key; it must have at least {_KEY.size} bytes")
    version, type_id = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecordError(f"a control record has the invalid key version {version}")
    return ControlRecordType.for_id(type_id)


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """The end of a producer's transaction in one partition, with the epoch of the coordinator.

    The coordinator epoch lets a broker reject a marker from a coordinator that has been replaced.
    """

    control_type: ControlRecordType
    coordinator_epoch: int

    def __post_init__(self) -> None:
        if self.control_type not in {ControlRecordType.ABORT, ControlRecordType.COMMIT}:
            raise ValueError(f"a transaction ends with COMMIT or ABORT, not {self.control_type.name}")

    def value(self) -> bytes:
        """Returns the value of the marker's record."""
        return _MARKER.pack(END_TRANSACTION_MARKER_VERSION, self.coordinator_epoch)

    @classmethod
    def parse(cls, record: Record) -> EndTransactionMarker:
        """Parses the marker in a control record; `InvalidRecordError` if it is not one."""
        control_type = parse_control_type(record.key)
        if control_type not in {ControlRecordType.ABORT, ControlRecordType.COMMIT}:
            raise InvalidRecordError(f"a control record of type {control_type.name} does not end a transaction")
        value = record.value
        if value is None or len(value) < _MARKER.size:
            size = "no" if value is None else f"a {len(value)}-byte"
            raise InvalidRecordError(
                f"a transaction marker has {size} value; it must have at least {_MARKER.size} bytes"
            )
        version, coordinator_epoch = _MARKER.unpack_from(value)
        if version < 0:
            raise InvalidRecordError(f"a transaction marker has the invalid version {version}")
        return cls(control_type, coordinator_epoch)


def control_batch(
    records: list[tuple[ControlRecordType, bytes]],
    *,
    timestamp_ms: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytearray:
    """Builds a batch of the metadata quorum's control records from types and encoded values."""
    builder = RecordBatchBuilder(
        base_offset=base_offset, is_control=True, partition_leader_epoch=partition_leader_epoch
    )
    for control_type, value in records:
        builder.append(timestamp_ms, control_type.key(), value)
    return builder.close()


def end_transaction_marker_batch(
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytearray:
    """Builds the transactional control batch of one record that ends a transaction in a partition."""
    if producer_id <= NO_PRODUCER_ID:
        raise ValueError(f"a transaction marker needs a producer id, not {producer_id}")
    builder = RecordBatchBuilder(
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
        partition_leader_epoch=partition_leader_epoch,
    )
    builder.append(timestamp_ms, marker.control_type.key(), marker.value())
    return builder.close()
