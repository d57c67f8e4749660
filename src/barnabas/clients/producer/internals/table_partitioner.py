"""Which partition each row of a table goes to."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from barnabas.clients.common.metadata_snapshot import MetadataSnapshot
from barnabas.clients.producer.internals.record_accumulator import RecordAccumulator
from barnabas.clients.producer.internals.table_hash import partitions_for_keys
from barnabas.clients.producer.internals.table_input import RECORD_OVERHEAD, Numbers
from barnabas.clients.producer.partitioner import Partitioner
from barnabas.records.batch import CompressionType
from barnabas.records.builder import COMPRESSION_RATE_ESTIMATION_FACTOR


class TablePartitioner:
    """Chooses as single sends do: a partition that is given; else the hash of the key; else the sticky partition.

    **Rows without a key** go to the partition that the built-in partitioner sticks to, and to the next one as soon as
    that has got its ``batch.size`` bytes. So a table spreads over partitions in pieces of that size, and the choice
    goes on where the last single send has left it. The pieces of one partition then make up larger batches.

    **A partitioner of the application's own** is asked for each row that has no partition. It is the one thing here
    that takes Python objects for each of them.
    """

    def __init__(self, accumulator: RecordAccumulator, partitioner: Partitioner | None, *, ignore_keys: bool) -> None:
        self._accumulator = accumulator
        self._custom = partitioner
        self._ignore_keys = ignore_keys

    def assign(
        self,
        topic: str,
        keys: pa.Array | None,
        values: pa.Array,
        explicit: npt.NDArray[np.int32] | None,
        sizes: Numbers,
        snapshot: MetadataSnapshot,
    ) -> npt.NDArray[np.int32]:
        """A partition for each row."""
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
            self._stick(topic, rest, assigned, sizes, snapshot)
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

    def _stick(
        self,
        topic: str,
        rows: npt.NDArray[np.intp],
        assigned: npt.NDArray[np.int32],
        sizes: Numbers,
        snapshot: MetadataSnapshot,
    ) -> None:
        config = self._accumulator.config
        factor = 1.0
        if config.compression is not CompressionType.NONE:
            ratio = self._accumulator.estimator.estimation(topic, config.compression)
            factor = ratio * COMPRESSION_RATE_ESTIMATION_FACTOR
        upto = np.cumsum((sizes[rows] + RECORD_OVERHEAD) * factor)
        partitioner = self._accumulator.entry(topic).partitioner
        chosen: list[int] = []
        ends: list[int] = [0]
        before, last = 0.0, float(upto[-1])
        while ends[-1] < len(rows):
            info = partitioner.peek_current_partition_info(snapshot)
            with self._accumulator.open_queue(topic, info.partition).lock:
                if partitioner.is_partition_changed(info):
                    continue
                room = config.batch_size - info.produced_bytes
                end = len(rows)
                if before + room < last:
                    # With the row that goes over it, as a single send would.
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
