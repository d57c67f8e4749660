"""Chooses the partition of each row of a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from barnabas.clients.common.metadata_snapshot import MetadataSnapshot
from barnabas.clients.producer.internals.record_accumulator import RecordAccumulator
from barnabas.clients.producer.internals.table_hash import partitions_for_keys
from barnabas.clients.producer.internals.table_input import RECORD_OVERHEAD, Numbers, TableInput
from barnabas.clients.producer.partitioner import Partitioner
from barnabas.common.topic_partition import TopicPartition
from barnabas.records.batch import CompressionType
from barnabas.records.builder import COMPRESSION_RATE_ESTIMATION_FACTOR

_UNCOMPRESSED: Final = CompressionType.NONE


class TablePartitioner:
    """Chooses as single sends do: the given partition; else the hash of the key; else the sticky partition.

    **Rows without a key** go to the built-in partitioner's sticky partition, which single sends share. If a table has
    no other rows, whole batches stick (`stick`): a partition gets its ``batch.size`` bytes, or its share of the table
    where that is more, up to the largest batch of a table. So no row has to be moved next to the others of its
    partition. Where rows with a key lie between them, pieces of ``batch.size`` stick.

    **A custom partitioner** is called for each row that has no partition. Only this needs Python objects per row.
    """

    def __init__(self, accumulator: RecordAccumulator, partitioner: Partitioner | None, *, ignore_keys: bool) -> None:
        self._accumulator = accumulator
        self._custom = partitioner
        self._ignore_keys = ignore_keys

    def sticks(self, rows: TableInput) -> bool:
        """Whether all rows of a table may go to any partition."""
        return self._custom is None and rows.partitions is None and (rows.keys is None or self._ignore_keys)

    def stick(
        self, topic: str, snapshot: MetadataSnapshot, share: int, measure: Callable[[int], tuple[int, int, bool]]
    ) -> tuple[int, int, int]:
        """Chooses the next batch of a table: its partition, row count and bytes.

        ``measure`` returns how many rows make a batch of at most so many bytes, their bytes, and whether they are the
        last ones. If they are, the partition may have room, and stays sticky; else it is full.
        """
        accumulator = self._accumulator
        batch_size = accumulator.config.batch_size
        factor = self._compression_factor(topic)
        entry = accumulator.queues.topic(topic)
        partitioner = entry.partitioner
        while True:
            info = partitioner.sticky or partitioner.peek_current_partition_info(snapshot)
            # A whole batch, however little room there is: few rows are not worth two batches.
            count, size, last = measure(max(int(batch_size / factor), share))
            appended = round(size * factor)
            queue = entry.queues.get(info.partition) or accumulator.queues.queue(TopicPartition(topic, info.partition))
            with queue.lock:
                if partitioner.sticky is not info:
                    continue
                partitioner.update_partition_info(info, appended if last else max(appended, batch_size), snapshot)
            return info.partition, count, size

    def _compression_factor(self, topic: str) -> float:
        config = self._accumulator.config
        if config.compression is _UNCOMPRESSED:
            return 1.0
        return self._accumulator.estimator.estimation(topic, config.compression) * COMPRESSION_RATE_ESTIMATION_FACTOR

    def assign(
        self,
        topic: str,
        keys: pa.Array | None,
        values: pa.Array,
        explicit: npt.NDArray[np.int32] | None,
        sizes: Numbers,
        snapshot: MetadataSnapshot,
    ) -> npt.NDArray[np.int32]:
        """Returns a partition for each row."""
        count = snapshot.partition_count(topic)
        assert count is not None
        if explicit is not None and (not len(explicit) or explicit.min() >= 0):
            return explicit
        assigned = np.full(len(values), -1, np.int32)
        if self._custom is None and keys is not None and not self._ignore_keys:
            assigned = partitions_for_keys(keys, count)
        if explicit is not None:
            assigned = np.where(explicit >= 0, explicit, assigned)
        rest = np.flatnonzero(assigned < 0)
        if not len(rest):
            return assigned
        if self._custom is not None:
            self._ask(self._custom, topic, keys, values, rest, assigned, snapshot)
        else:
            self._stick_rows(topic, rest, assigned, sizes, snapshot)
        return assigned

    @staticmethod
    def _ask(
        partitioner: Partitioner,
        topic: str,
        keys: pa.Array | None,
        values: pa.Array,
        rows: npt.NDArray[np.intp],
        assigned: npt.NDArray[np.int32],
        snapshot: MetadataSnapshot,
    ) -> None:
        for row in rows.tolist():
            key = None if keys is None else _octets(keys[row])
            value = _octets(values[row])
            chosen = partitioner.partition(topic, key, key, value, value, snapshot)
            if chosen < 0:
                raise ValueError(
                    f"The partitioner generated an invalid partition number: {chosen}. Partition number should always "
                    "be non-negative."
                )
            assigned[row] = chosen

    def _stick_rows(
        self,
        topic: str,
        rows: npt.NDArray[np.intp],
        assigned: npt.NDArray[np.int32],
        sizes: Numbers,
        snapshot: MetadataSnapshot,
    ) -> None:
        batch_size = self._accumulator.config.batch_size
        upto = np.cumsum((sizes[rows] + RECORD_OVERHEAD) * self._compression_factor(topic))
        partitioner = self._accumulator.queues.topic(topic).partitioner
        chosen: list[int] = []
        ends: list[int] = [0]
        before, last = 0.0, float(upto[-1])
        while ends[-1] < len(rows):
            info = partitioner.peek_current_partition_info(snapshot)
            with self._accumulator.queues.queue(TopicPartition(topic, info.partition)).lock:
                if partitioner.is_partition_changed(info):
                    continue
                room = batch_size - info.produced_bytes
                end = len(rows)
                if before + room < last:
                    # Includes the row that exceeds the limit, as a single send would.
                    end = max(int(upto.searchsorted(before + room)) + 1, ends[-1] + 1)
                after = float(upto[end - 1])
                partitioner.update_partition_info(info, round(after - before), snapshot)
            chosen.append(info.partition)
            ends.append(end)
            before = after
        assigned[rows] = np.repeat(np.array(chosen, np.int32), np.diff(ends))


def _octets(value: Any) -> bytes | None:
    plain = value.as_py()
    return plain.encode() if isinstance(plain, str) else plain
