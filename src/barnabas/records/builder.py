"""Builds record batches, for producers and for the broker's own records."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from barnabas._kernels import append_state, checksum, record_codec
from barnabas._kernels.varint import size_of_varint, size_of_varlong
from barnabas.records.batch import (
    ATTRIBUTES_OFFSET,
    CONTROL_MASK,
    CRC_OFFSET,
    DELETE_HORIZON_MASK,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAX_RECORD_OVERHEAD,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    CompressionType,
    TimestampType,
)
from barnabas.records.compression import check_level, compress

if TYPE_CHECKING:
    BytesLike = record_codec.BytesLike
    Headers = record_codec.Headers

AppendState = append_state.AppendState
size_of_payload = record_codec.size_of_payload
crc32c = checksum.crc32c

COMPRESSION_RATE_ESTIMATION_FACTOR: Final = 1.05
"""Multiplies estimates of compressed sizes: a batch that is slightly too small is better than one too large."""

_MAX_INT32: Final = 2**31 - 1
_UINT32: Final = struct.Struct(">I")
_UNCOMPRESSED: Final = CompressionType.NONE


class RecordBatchBuilder(AppendState):
    """One batch under construction.

    Per record, an encoder (compiled where possible) only appends it after the space reserved for the header. `close`
    does everything else once: compress, fill in the header, compute the checksum::

        builder = RecordBatchBuilder(compression=CompressionType.ZSTD, max_size=16384)
        while builder.try_append(now_ms, key, value, headers) is not None:
            ...
        builder.set_producer_state(producer_id, epoch, sequence)
        request_bytes = builder.close()

    **When is it full?** `max_size` limits the finished batch, whose compression ratio is not known before. The producer
    tracks the ratio of its batches per topic and sets `estimated_compression_ratio`; the builder adds five per cent and
    compares. So a batch takes more records if they compress well. The first record is always accepted, whatever its
    size.

    **Gaps.** `append` assigns consecutive offsets. Compaction removes records and rebuilds the rest with
    `append_with_offset`; `override_last_offset` keeps the batch's offset range although its last record was removed.

    Inherited: `append`, `try_append`, `has_room_for`, `close_for_appends`, and their counters.
    """

    __slots__ = (
        "_built",
        "_estimated_compression_ratio",
        "_last_offset_delta_override",
        "base_offset",
        "base_sequence",
        "compression",
        "compression_ratio",
        "delete_horizon_ms",
        "is_control",
        "is_transactional",
        "level",
        "log_append_time",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
        "timestamp_type",
    )

    def __init__(
        self,
        *,
        base_offset: int = 0,
        compression: CompressionType = CompressionType.NONE,
        level: int | None = None,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        log_append_time: int = NO_TIMESTAMP,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
        partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
        delete_horizon_ms: int | None = None,
        base_timestamp: int | None = None,
        max_size: int = _MAX_INT32,
    ) -> None:
        if delete_horizon_ms is not None:
            if base_timestamp not in {None, delete_horizon_ms}:
                raise ValueError("a batch with a delete horizon keeps it as its base timestamp: only one can be given")
            if delete_horizon_ms < 0:
                raise ValueError(f"invalid delete horizon {delete_horizon_ms}")
            base_timestamp = delete_horizon_ms
        factor = 1.0 if compression is _UNCOMPRESSED else COMPRESSION_RATE_ESTIMATION_FACTOR
        super().__init__(base_timestamp, max_size, factor)
        self.base_offset = base_offset
        self.compression = compression
        self.level = check_level(compression, level)
        self.timestamp_type = timestamp_type
        self.log_append_time = log_append_time
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.is_transactional = is_transactional
        self.is_control = is_control
        self.partition_leader_epoch = partition_leader_epoch
        self.delete_horizon_ms = delete_horizon_ms
        self.compression_ratio = 1.0
        """Compressed size divided by uncompressed size of the records; known once the batch is closed."""
        self._estimated_compression_ratio = 1.0
        self._last_offset_delta_override: int | None = None
        self._built: bytearray | None = None

    @property
    def estimated_compression_ratio(self) -> float:
        """The expected `compression_ratio`."""
        return self._estimated_compression_ratio

    @estimated_compression_ratio.setter
    def estimated_compression_ratio(self, ratio: float) -> None:
        self._estimated_compression_ratio = ratio
        if self.compression is not _UNCOMPRESSED:
            self.size_factor = ratio * COMPRESSION_RATE_ESTIMATION_FACTOR

    @property
    def size_in_bytes(self) -> int:
        """The size of the batch: exact if it is closed or not compressed, an estimate otherwise."""
        return self.estimated_size if self._built is None else len(self._built)

    @property
    def is_full(self) -> bool:
        """Whether the batch has no room even for the smallest record."""
        return not self.is_open or (self.record_count > 0 and self.max_size <= self.estimated_size)

    @property
    def is_closed(self) -> bool:
        return self._built is not None

    @property
    def last_offset(self) -> int:
        """The last offset of the batch."""
        return self.base_offset + self._last_delta()

    def append_with_offset(
        self,
        offset: int,
        timestamp_ms: int,
        key: BytesLike | None,
        value: BytesLike | None,
        headers: Headers = (),
    ) -> int:
        """Adds a record with the given offset, larger than the previous one; returns its offset delta."""
        return self.append_with_delta(offset - self.base_offset, timestamp_ms, key, value, headers)

    def set_producer_state(
        self, producer_id: int, producer_epoch: int, base_sequence: int, is_transactional: bool = False
    ) -> None:
        """Sets the producer of the batch; only before `close`.

        A batch that may have been sent keeps its sequence numbers, so that the broker recognizes a duplicate.
        """
        if self._built is not None:
            raise RuntimeError("the producer state of a closed batch must not change")
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.is_transactional = is_transactional

    def override_last_offset(self, offset: int) -> None:
        """Sets the last offset of the batch, which may be after its last record."""
        if self._built is not None:
            raise RuntimeError("the last offset of a closed batch cannot change")
        delta = offset - self.base_offset
        if not self.last_offset_delta <= delta <= _MAX_INT32:
            raise ValueError(f"last offset {offset} is not at or after that of the last record, within 31 bits")
        self._last_offset_delta_override = delta

    def close(self) -> bytearray:
        """Finishes the batch and returns it. Further calls return the same bytes.

        A batch without records is empty bytes, unless its offset range was set: then it is only a header. Compaction
        keeps such a header, for example, if it carries a producer's last sequence number.
        """
        if self._built is not None:
            return self._built
        self._check_producer_state()
        last_delta = self._last_delta()
        if last_delta < 0:
            self.close_for_appends()
            self._built = bytearray()
            return self._built
        records_size = self.records_size
        buffer = self.take(HEADER_SIZE)
        compression = self.compression if records_size else _UNCOMPRESSED
        if compression is not _UNCOMPRESSED:
            view = memoryview(buffer)[HEADER_SIZE:]
            compressed = compress(compression, view, self.level)
            view.release()
            buffer[HEADER_SIZE:] = compressed
            self.compression_ratio = len(compressed) / records_size
        attributes = (
            compression
            | (TIMESTAMP_TYPE_MASK if self.timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
            | (TRANSACTIONAL_MASK if self.is_transactional else 0)
            | (CONTROL_MASK if self.is_control else 0)
            | (DELETE_HORIZON_MASK if self.delete_horizon_ms is not None else 0)
        )
        HEADER.pack_into(
            buffer,
            0,
            self.base_offset,
            len(buffer) - LOG_OVERHEAD,
            self.partition_leader_epoch,
            MAGIC,
            0,
            attributes,
            last_delta,
            self.base_timestamp,
            self._max_timestamp(),
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        )
        with memoryview(buffer) as view:
            _UINT32.pack_into(buffer, CRC_OFFSET, crc32c(view[ATTRIBUTES_OFFSET:]))
        self._built = buffer
        return buffer

    def take_buffer(self) -> bytearray | memoryview | None:
        """Returns the memory of a closed batch that is no longer needed, if it can be reused."""
        return None

    def leave_shared_memory(self) -> memoryview | None:
        """Moves the batch out of shared memory; returns that memory, or None if it was not shared."""
        return None

    def _last_delta(self) -> int:
        override = self._last_offset_delta_override
        return self.last_offset_delta if override is None else max(override, self.last_offset_delta)

    def _max_timestamp(self) -> int:
        if self.timestamp_type is TimestampType.LOG_APPEND_TIME and self.log_append_time != NO_TIMESTAMP:
            return self.log_append_time
        return self.max_timestamp

    def _check_producer_state(self) -> None:
        if self.producer_id == NO_PRODUCER_ID:
            if self.is_transactional:
                raise ValueError("a transactional batch needs a producer id")
        elif self.producer_epoch < 0:
            raise ValueError(f"producer {self.producer_id} has the invalid epoch {self.producer_epoch}")
        elif self.base_sequence < 0 and not self.is_control:
            raise ValueError(f"producer {self.producer_id} has the invalid sequence number {self.base_sequence}")

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "open" if self.is_open else "closed for appends"
        return (
            f"RecordBatchBuilder({state}, offsets={self.base_offset}..{self.last_offset}, records={self.record_count}, "
            f"size={self.size_in_bytes}, compression={self.compression.codec_name})"
        )


NO_BATCH: Final = RecordBatchBuilder(max_size=0)
"""Placeholder when there is no batch to append to: it rejects every record."""
NO_BATCH.close_for_appends()


def estimate_size_in_bytes_upper_bound(
    key: BytesLike | None,
    value: BytesLike | None,
    headers: Headers = (),
) -> int:
    """Returns the largest uncompressed size of a batch with only this record, which a producer reserves."""
    return HEADER_SIZE + MAX_RECORD_OVERHEAD + size_of_payload(key, value, headers)


def record_size_in_bytes(
    offset_delta: int,
    timestamp_delta: int,
    key: BytesLike | None,
    value: BytesLike | None,
    headers: Headers = (),
) -> int:
    """Returns the size of a record in the records section, before compression."""
    body = 1 + size_of_varint(offset_delta) + size_of_varlong(timestamp_delta) + size_of_payload(key, value, headers)
    return body + size_of_varint(body)
