"""Sends tables: encodes columns as batches without creating records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from barnabas.clients.common.metadata_snapshot import MetadataSnapshot
from barnabas.clients.producer.errors import ProducerClosedError
from barnabas.clients.producer.internals.producer_batch import ProducerBatch
from barnabas.clients.producer.internals.record_accumulator import RecordAccumulator
from barnabas.clients.producer.internals.table_batch import EncodedBatchBuilder
from barnabas.clients.producer.internals.table_input import RECORD_OVERHEAD, Numbers, TableInput, Timestamps
from barnabas.clients.producer.internals.table_partitioner import TablePartitioner
from barnabas.clients.producer.internals.table_result import Rows, TableProgress, row_numbers
from barnabas.clients.producer.internals.transaction_manager import TransactionManager
from barnabas.clients.producer.producer_config import TABLE_BATCH_BYTES, ProducerConfig
from barnabas.clients.producer.table_metadata import TableFuture
from barnabas.common.clock import Clock
from barnabas.common.errors import ApiError, BarnabasError
from barnabas.common.topic_partition import TopicPartition
from barnabas.records.batch import HEADER_SIZE, MAX_RECORD_OVERHEAD, CompressionType
from barnabas.records.builder import COMPRESSION_RATE_ESTIMATION_FACTOR
from barnabas.records.columns.arrow import BatchEncoder

PART_BYTES: Final = 8 * 1024 * 1024
"""How many bytes of a table are partitioned and encoded at a time: its memory besides ``buffer.memory``."""
_LEAST_PART_BYTES: Final = 4 * 1024 * 1024
_AMPLE_OVERHEAD: Final = RECORD_OVERHEAD + 4
"""More than a record needs besides its fields: shares that are too small would leave a few rows over."""
_MOST_GAIN: Final = 8.0
"""The most that a batch may exceed its limit before compression, as a factor."""
_UNCOMPRESSED: Final = CompressionType.NONE

WaitOnMetadata = Callable[[str, int | None], MetadataSnapshot]


class TableSender:
    """Splits tables into batches for the accumulator.

    A table is checked as a whole, then sent in *parts* of a few megabytes, so that one that is larger than
    ``buffer.memory`` needs no more than that::

        part         some consecutive rows, as columns
        assign       a partition for each row: its own, its key's hash, or the sticky one's
        sort         rows of one partition together, in their order (stable); skipped if there is just one
        encode       batches in the bytes in which they will be sent, compressed, but without a sequence number
        allocate     memory for a batch, which blocks while there is none: this throttles a fast sender
        append       to the queue of the partition, behind what single sends have put there before

    A table whose rows may all go anywhere needs no partition per row and no sorting: it is encoded in order, and each
    batch goes to the current sticky partition (`_StickyRows`).

    From there on they are normal batches: they get their sequence numbers when they are drained, and are retried,
    split, expired, aborted with their transaction.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        config: ProducerConfig,
        partitioner: TablePartitioner,
        wait_on_metadata: WaitOnMetadata,
        current_snapshot: Callable[[], MetadataSnapshot],
        transaction_manager: TransactionManager | None,
        clock: Clock,
        fills_here: Callable[[], None] | None = None,
    ) -> None:
        """``fills_here`` is called for every batch, by the thread that makes it."""
        self._fills_here = fills_here
        self._accumulator = accumulator
        self._config = config
        self._partitioner = partitioner
        self._wait_on_metadata = wait_on_metadata
        self._current_snapshot = current_snapshot
        self._manager = transaction_manager
        self._clock = clock
        self._usual_limit = min(config.table_batch_size, max(config.buffer_memory // 4, accumulator.config.batch_size))
        self._limits: dict[str, int] = {}
        """Size limits of topics whose broker has rejected a batch of the usual size."""

    def send(
        self, topic: str, table: object, partition: int | None, timestamp_ms: int | None
    ) -> tuple[TableFuture, ApiError | None]:
        """Sends a table; returns its future, and the error if it was not accepted."""
        if timestamp_ms is None:
            timestamp_ms = self._clock.milliseconds()
        elif timestamp_ms < 0:
            raise ValueError(f"Invalid timestamp: {timestamp_ms}. Timestamp should always be non-negative or null.")
        rows = TableInput(table, partition=partition, timestamp_ms=timestamp_ms)
        progress = TableProgress(topic, lambda: self._refused(topic))
        refused: ApiError | None = None
        sent = 0
        try:
            if rows.length:
                rows.check_sizes(self._config.max_request_size, self._config.buffer_memory)
                snapshot = self._wait_on_metadata(topic, rows.highest_partition)
                sticks = self._partitioner.sticks(rows)
                for start, stop in self._parts(rows, self._partition_count(snapshot, topic), sticks=sticks):
                    sent = start
                    snapshot = self._newest(topic, snapshot)
                    part = _StickyRows if sticks else _Part
                    sent = part(self, topic, rows, start, stop, snapshot, progress).send()
                    if progress.error is not None:
                        break  # the table has failed: send no more of it
                if sent < rows.length:
                    assert progress.error is not None
                    progress.fail(progress.error, row_numbers(sent, rows.length))
        except _PartFailedError as failed:
            error = failed.error
            progress.fail(error, np.concatenate((failed.rows, row_numbers(failed.stop, rows.length))))
            refused = error if isinstance(error, ApiError) else None
        except ApiError as error:
            refused = error
            progress.fail(error, row_numbers(0, rows.length))
        return progress.seal(), refused

    def _refused(self, topic: str) -> None:
        self._limits[topic] = self._accumulator.config.batch_size

    @staticmethod
    def _partition_count(snapshot: MetadataSnapshot, topic: str) -> int:
        count = snapshot.partition_count(topic)
        assert count is not None
        return count

    def _newest(self, topic: str, snapshot: MetadataSnapshot) -> MetadataSnapshot:
        newest = self._current_snapshot()
        return snapshot if newest.partition_count(topic) is None else newest

    def _parts(self, rows: TableInput, partition_count: int, *, sticks: bool) -> Iterator[tuple[int, int]]:
        """Yields the start and end row of each part; a row larger than a part is one.

        Rows that need no sorting, and no copy into one chunk, are one part."""
        if sticks and rows.is_in_one_piece:
            yield 0, rows.length
            return
        wanted = min(
            max(partition_count * TABLE_BATCH_BYTES, _LEAST_PART_BYTES), PART_BYTES, self._config.buffer_memory
        )
        upto = np.cumsum(rows.sizes + RECORD_OVERHEAD)
        start = 0
        while start < rows.length:
            before = int(upto[start - 1]) if start else 0
            stop = max(int(np.searchsorted(upto, before + wanted, "right")), start + 1)
            yield start, stop
            start = stop

    def batch_limit(self, topic: str) -> int:
        """Returns the maximum size of a batch before compression."""
        config = self._accumulator.config
        limit = self._limits.get(topic, self._usual_limit)
        if config.compression is not _UNCOMPRESSED:
            ratio = self._accumulator.estimator.estimation(topic, config.compression)
            limit = int(limit / max(ratio * COMPRESSION_RATE_ESTIMATION_FACTOR, 1 / _MOST_GAIN))
        return max(limit, HEADER_SIZE + 1)

    # -- interface for parts

    def encoder(self, columns: dict[str, Any], timestamps: Timestamps) -> BatchEncoder:
        config = self._accumulator.config
        return BatchEncoder(
            columns,
            timestamps=timestamps if isinstance(timestamps, int) else None,
            compression=config.compression,
            level=config.compression_level,
            checksum=False,  # computed when the producer's identity is known
        )

    def encode(self, encoder: BatchEncoder, first: int, count: int, payload: int) -> bytearray | memoryview:
        """Encodes measured rows as a batch, in a spare buffer if there is one."""
        if self._fills_here is not None:
            self._fills_here()
        spare = self._accumulator.spare_buffers
        buffer = spare.take(HEADER_SIZE + payload)
        if buffer is None:
            if self._accumulator.config.compression is _UNCOMPRESSED:
                return encoder.batch(first, count, payload)
            buffer = bytearray()
        try:
            encoded = encoder.batch(first, count, payload, into=buffer)
        except BufferError:  # the network still holds it
            return encoder.batch(first, count, payload)
        if encoded is not buffer:
            spare.give(buffer)  # compressed elsewhere, so it is free again
        return encoded

    def stick(
        self, topic: str, snapshot: MetadataSnapshot, share: int, measure: Callable[[int], tuple[int, int, bool]]
    ) -> tuple[int, int, int]:
        return self._partitioner.stick(topic, self._newest(topic, snapshot), share, measure)

    def assign(
        self, topic: str, rows: TableInput, start: int, stop: int, columns: dict[str, Any], snapshot: MetadataSnapshot
    ) -> npt.NDArray[np.int32]:
        explicit = None if rows.partitions is None else rows.partitions[start:stop]
        return self._partitioner.assign(
            topic, columns.get("key"), columns["value"], explicit, rows.sizes[start:stop], snapshot
        )

    def append(
        self,
        where: TopicPartition,
        encoded: bytearray | memoryview,
        payload: int,
        sizes: Numbers,
        rows: Rows,
        progress: TableProgress,
    ) -> None:
        """Appends a batch. ``payload`` is the size of the records before compression."""
        accumulator = self._accumulator
        config = accumulator.config
        builder = EncodedBatchBuilder(encoded, len(rows), payload, config.compression, config.compression_level)
        try:
            reserved = accumulator.pool.allocate(len(encoded), self._config.max_block_ms)
        except BaseException:
            accumulator.spare_buffers.give(encoded)
            raise
        try:
            batch = ProducerBatch(
                where,
                builder,
                self._clock.hi_res_milliseconds(),
                accumulator.estimator,
                reserved_bytes=reserved,
            )
            builder.max_record_size = int(np.maximum.reduce(sizes)) + HEADER_SIZE + MAX_RECORD_OVERHEAD
            accumulator.append_batch(batch)
        except BaseException:
            accumulator.pool.deallocate(reserved)
            raise
        manager = self._manager
        if manager is not None and (manager.is_transactional or manager.machine.failed):
            manager.maybe_add_partition(where)
        progress.add(batch.produce_future, rows)


class _PartFailedError(BarnabasError):
    """A part could not be sent completely."""

    def __init__(self, error: Exception, rows: Rows, stop: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.rows = rows
        self.stop = stop


class _Part:
    """Some consecutive rows of a table."""

    __slots__ = ("_progress", "_rows", "_sender", "_snapshot", "_start", "_stop", "_topic")

    def __init__(
        self,
        sender: TableSender,
        topic: str,
        rows: TableInput,
        start: int,
        stop: int,
        snapshot: MetadataSnapshot,
        progress: TableProgress,
    ) -> None:
        self._sender = sender
        self._topic = topic
        self._rows = rows
        self._start = start
        self._stop = stop
        self._snapshot = snapshot
        self._progress = progress

    def send(self) -> int:
        """Sends the rows; returns the end of those sent."""
        start, stop = self._start, self._stop
        columns = self._rows.slice(start, stop)
        assigned = self._sender.assign(self._topic, self._rows, start, stop, columns, self._snapshot)
        sizes = self._rows.sizes[start:stop]
        numbers = row_numbers(start, stop)
        counts = np.bincount(assigned)
        used = np.flatnonzero(counts)
        if len(used) > 1:
            # 16 bits if possible: numpy sorts those by radix, without comparisons.
            order = np.argsort(assigned.astype(np.int16) if len(counts) < 2**15 else assigned, kind="stable")
            taken = pa.array(order)
            columns = {name: column.take(taken) for name, column in columns.items()}
            sizes, numbers = sizes[order], numbers[order]
        first = 0
        for partition in used.tolist():
            end = first + int(counts[partition])
            where = TopicPartition(self._topic, partition)
            self._send_partition(where, columns, sizes, numbers, first, end)
            first = end
        return stop

    def _send_partition(
        self, where: TopicPartition, columns: dict[str, Any], sizes: Numbers, numbers: Rows, first: int, end: int
    ) -> None:
        sliced = {name: column.slice(first, end - first) for name, column in columns.items()}
        encoder = self._sender.encoder(sliced, self._rows.timestamps)
        at = 0
        while first < end:
            count, payload = encoder.measure(at, self._sender.batch_limit(self._topic))
            encoded = self._sender.encode(encoder, at, count, payload)
            stop = first + count
            try:
                self._sender.append(where, encoded, payload, sizes[first:stop], numbers[first:stop], self._progress)
            except (ApiError, ProducerClosedError) as error:
                raise _PartFailedError(error, numbers[first:], self._stop) from error
            at += count
            first = stop


class _StickyRows(_Part):
    """Rows of a table that may go to any partition."""

    __slots__ = ("_encoder", "_next")

    def send(self) -> int:
        """Sends the rows; returns the end of those sent. Stops when a batch has failed."""
        topic, sender = self._topic, self._sender
        self._encoder = sender.encoder(self._rows.slice(self._start, self._stop), self._rows.timestamps)
        self._next = self._start
        sizes, numbers = self._rows.sizes, row_numbers(self._start, self._stop)
        partition_count = self._snapshot.partition_count(topic)
        assert partition_count is not None
        share = HEADER_SIZE + (int(sizes.sum()) + _AMPLE_OVERHEAD * len(sizes)) // partition_count
        while self._next < self._stop and self._progress.error is None:
            first = self._next
            partition, count, payload = sender.stick(topic, self._snapshot, share, self._measure)
            encoded = sender.encode(self._encoder, first - self._start, count, payload)
            stop = first + count
            rows = numbers[first - self._start : stop - self._start]
            try:
                sender.append(
                    TopicPartition(topic, partition), encoded, payload, sizes[first:stop], rows, self._progress
                )
            except (ApiError, ProducerClosedError) as error:
                raise _PartFailedError(error, numbers[first - self._start :], self._stop) from error
            self._next = stop
        return self._next

    def _measure(self, wanted: int) -> tuple[int, int, bool]:
        """Returns how many of the next rows make a batch of that size, or of the largest, their bytes, and whether they
        are the last of the table."""
        at = self._next - self._start
        count, payload = self._encoder.measure(
            at, min(max(wanted, HEADER_SIZE + 1), self._sender.batch_limit(self._topic))
        )
        return count, payload, self._next + count == self._rows.length
