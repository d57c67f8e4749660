"""A batch encoded from columns: complete except for the producer's identity."""

from __future__ import annotations

from typing import Final

from barnabas.records.batch import HEADER_SIZE, CompressionType
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.seal import records_checksum, seal

_UNCOMPRESSED: Final = CompressionType.NONE


class EncodedBatchBuilder(RecordBatchBuilder):
    """Takes the place of a batch's builder; its records are already encoded.

    The thread that sends a table encodes and compresses its records. The producer's identity and the sequence number
    are assigned when the batch is drained, because only then is it certain to be the next one. So `close` writes these
    into the header, and combines the checksum of the header with that of the records, which is computed here while they
    are in the processor's cache.

    It takes no records: a single send that finds it at the end of a queue starts a batch behind it.
    """

    __slots__ = ("_batch", "_payload", "_records_checksum", "_sent_header", "_size", "record_count")

    record_count: int

    def __init__(
        self,
        batch: bytearray | memoryview,
        count: int,
        payload: int,
        compression: CompressionType,
        level: int | None,
    ) -> None:
        """``count`` records, without a checksum yet; ``payload`` is their size before compression."""
        super().__init__(compression=compression, level=level, max_size=1)
        self.close_for_appends()
        self.take(0)  # frees the room for records: there will be none
        self._batch = batch
        self._sent_header = b""
        self._size = len(batch)
        self.record_count = count
        self._payload = payload
        self._records_checksum = records_checksum(batch)

    @property
    def records_size(self) -> int:
        return self._payload

    @property
    def estimated_size(self) -> int:
        return self._size

    @property
    def size_in_bytes(self) -> int:
        return self._size

    @property
    def is_full(self) -> bool:
        return True

    def take_buffer(self) -> bytearray | memoryview | None:
        if self._built is None or self.compression is not _UNCOMPRESSED:
            return None  # compressed output never goes into an existing buffer
        buffer, self._batch, self._built = self._batch, bytearray(), bytearray()
        return buffer

    def leave_shared_memory(self) -> memoryview | None:
        """Copies the batch with its original header, because a broker writes offsets into the header of a shared batch.
        The broker does not write to the rest."""
        shared = self._batch
        if not isinstance(shared, memoryview):
            return None
        own = bytearray(shared)
        if self._built is not None:
            own[:HEADER_SIZE] = self._sent_header
            self._built = own
        self._batch = own
        return shared

    def close(self) -> bytearray | memoryview:  # type: ignore[override]  # whoever has this one knows
        if self._built is not None:
            return self._built
        self._check_producer_state()
        batch = self._batch
        seal(
            batch,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.is_transactional,
            self._records_checksum,
        )
        if self.compression is not _UNCOMPRESSED:
            self.compression_ratio = (len(batch) - HEADER_SIZE) / self._payload if self._payload else 1.0
        if isinstance(batch, memoryview):
            self._sent_header = bytes(batch[:HEADER_SIZE])
        self._built = batch  # type: ignore[assignment]
        return batch
