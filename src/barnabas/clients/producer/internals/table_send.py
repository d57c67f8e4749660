"""Sends tables: columns become batches without becoming records in between."""

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
from barnabas.clients.producer.internals.table_input import RECORD_OVERHEAD, Numbers, TableInput
from barnabas.clients.producer.internals.table_partitioner import TablePartitioner
from barnabas.clients.producer.internals.table_result import Rows, TableProgress, row_numbers
from barnabas.clients.producer.internals.transaction_manager import TransactionManager
from barnabas.clients.producer.producer_config import ProducerConfig
from barnabas.clients.producer.table_metadata import TableFuture
from barnabas.common.clock import Clock
from barnabas.common.errors import ApiError, BarnabasError
from barnabas.common.topic_partition import TopicPartition
from barnabas.records.batch import HEADER_SIZE, MAX_RECORD_OVERHEAD, CompressionType
from barnabas.records.builder import COMPRESSION_RATE_ESTIMATION_FACTOR
from barnabas.records.columns import encode_batches

BATCH_BYTES: Final = 512 * 1024
"""How large the batches of a table become, if ``batch.size`` is not more. There is no waiting for records to fill them,
which is what keeps ``batch.size`` small, and each batch costs the same whatever its size."""
PART_BYTES: Final = 8 * 1024 * 1024
"""How much of a table is partitioned and encoded at a time: what it takes up besides ``buffer.memory``."""
_LEAST_PART_BYTES: Final = 1024 * 1024
_MOST_GAIN: Final = 8.0
"""A batch is not made larger than this many times its limit in the hope of compression."""

WaitOnMetadata = Callable[[str, int | None], MetadataSnapshot]


class TableSender:
    """Takes tables apart, and puts batches into the accumulator.

    A table is checked as a whole, then goes through in *parts* of a few megabytes, so that one that is larger than
    ``buffer.memory`` needs no more than that::

        part         some rows that follow each other, as columns
        assign       a partition for each row: its own, its key's hash, or the sticky one's
        sort         rows of one partition together, in their order (stable); skipped if there is just one
        encode       batches in the bytes in which they will be sent, compressed, but without a sequence number
        allocate     memory for a batch, which blocks while there is none: this is what holds a fast sender back
        append       to the queue of the partition, behind what single sends have put there before

    From there on they are batches like any other: they get their sequence numbers when they are drained, are sent
    again, split, expired, aborted with their transaction.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        config: ProducerConfig,
        partitioner: TablePartitioner,
        wait_on_metadata: WaitOnMetadata,
        current_snapshot: Callable[[], MetadataSnapshot],
        wake: Callable[[], None],
        transaction_manager: TransactionManager | None,
        clock: Clock,
    ) -> None:
        self._accumulator = accumulator
        self._config = config
        self._partitioner = partitioner
        self._wait_on_metadata = wait_on_metadata
        self._current_snapshot = current_snapshot
        self._wake = wake
        self._manager = transaction_manager
        self._clock = clock
        self._limits: dict[str, int] = {}
        """Of topics whose broker has refused a batch of the usual size: no more than that from then on."""

    def send(
        self, topic: str, table: object, partition: int | None, timestamp_ms: int | None
    ) -> tuple[TableFuture, ApiError | None]:
        """The future of a table, and what kept it from being accepted, if anything did."""
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
                for start, stop in self._parts(rows, self._partition_count(snapshot, topic)):
                    sent = start
                    newest = self._current_snapshot()
                    if newest.partition_count(topic) is not None:
                        snapshot = newest
                    _Part(self, topic, rows, start, stop, snapshot, progress).send()
                    sent = stop
                    if progress.error is not None:
                        break  # no use in sending more of a table that has failed
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

    def _parts(self, rows: TableInput, partition_count: int) -> Iterator[tuple[int, int]]:
        """Rows from, and to; a row that is larger than a part is one."""
        wanted = min(max(partition_count * BATCH_BYTES, _LEAST_PART_BYTES), PART_BYTES, self._config.buffer_memory)
        upto = np.cumsum(rows.sizes + RECORD_OVERHEAD)
        start = 0
        while start < rows.length:
            before = int(upto[start - 1]) if start else 0
            stop = max(int(np.searchsorted(upto, before + wanted, "right")), start + 1)
            yield start, stop
            start = stop

    def batch_limit(self, topic: str) -> int:
        """How large a batch may become, before compression."""
        config = self._accumulator.config
        limit = self._limits.get(topic)
        if limit is None:
            largest = min(self._config.max_request_size, max(self._config.buffer_memory // 4, config.batch_size))
            limit = min(max(BATCH_BYTES, config.batch_size), largest)
        if config.compression is not CompressionType.NONE:
            ratio = self._accumulator.estimator.estimation(topic, config.compression)
            limit = int(limit / max(ratio * COMPRESSION_RATE_ESTIMATION_FACTOR, 1 / _MOST_GAIN))
        return max(limit, HEADER_SIZE + 1)

    # -- what a part needs

    def encode(self, topic: str, columns: dict[str, Any], timestamps: int | None) -> list[bytearray]:
        config = self._accumulator.config
        return encode_batches(
            columns,
            max_batch_bytes=self.batch_limit(topic),
            timestamps=timestamps,
            compression=config.compression,
            level=config.compression_level,
        )

    def assign(
        self, topic: str, rows: TableInput, start: int, stop: int, columns: dict[str, Any], snapshot: MetadataSnapshot
    ) -> npt.NDArray[np.int32]:
        explicit = None if rows.partitions is None else rows.partitions[start:stop]
        return self._partitioner.assign(
            topic, columns.get("key"), columns["value"], explicit, rows.sizes[start:stop], snapshot
        )

    def append(
        self, where: TopicPartition, encoded: bytearray, sizes: Numbers, rows: Rows, progress: TableProgress
    ) -> None:
        accumulator = self._accumulator
        config = accumulator.config
        payload = int(sizes.sum()) + RECORD_OVERHEAD * len(rows)
        reserved = accumulator.pool.allocate(len(encoded), self._config.max_block_ms)
        try:
            batch = ProducerBatch(
                where,
                EncodedBatchBuilder(encoded, payload, config.compression, config.compression_level),
                self._clock.hi_res_milliseconds(),
                accumulator.estimator,
                reserved_bytes=reserved,
            )
            batch.max_record_size = int(sizes.max()) + HEADER_SIZE + MAX_RECORD_OVERHEAD
            wake = accumulator.append_batch(batch)
        except BaseException:
            accumulator.pool.deallocate(reserved)
            raise
        if wake:
            self._wake()
        manager = self._manager
        if manager is not None and (manager.is_transactional or manager.failed):
            manager.maybe_add_partition(where)
        progress.add(batch.produce_future, rows)


class _PartFailedError(BarnabasError):
    """A part could not be sent to its end."""

    def __init__(self, error: Exception, rows: Rows, stop: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.rows = rows
        self.stop = stop


class _Part:
    """Some rows of a table that follow each other."""

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

    def send(self) -> None:
        start, stop = self._start, self._stop
        columns = self._rows.slice(start, stop)
        assigned = self._sender.assign(self._topic, self._rows, start, stop, columns, self._snapshot)
        sizes = self._rows.sizes[start:stop]
        numbers = row_numbers(start, stop)
        counts = np.bincount(assigned)
        used = np.flatnonzero(counts)
        if len(used) > 1:
            # Of 16 bits if that is enough: numpy sorts these by their digits, which takes no comparison.
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

    def _send_partition(
        self, where: TopicPartition, columns: dict[str, Any], sizes: Numbers, numbers: Rows, first: int, end: int
    ) -> None:
        timestamps = self._rows.timestamps
        sliced = {name: column.slice(first, end - first) for name, column in columns.items()}
        batches = self._sender.encode(self._topic, sliced, timestamps if isinstance(timestamps, int) else None)
        for encoded in batches:
            stop = first + _record_count(encoded)
            try:
                self._sender.append(where, encoded, sizes[first:stop], numbers[first:stop], self._progress)
            except (ApiError, ProducerClosedError) as error:
                raise _PartFailedError(error, numbers[first:], self._stop) from error
            first = stop


def _record_count(batch: bytearray) -> int:
    return int.from_bytes(batch[HEADER_SIZE - 4 : HEADER_SIZE], "big")
