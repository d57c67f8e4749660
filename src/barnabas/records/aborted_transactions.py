"""Filters the records of aborted transactions for read-committed consumers."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.records.batch import RecordBatch
from barnabas.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from barnabas.records.control import ControlRecordType, parse_control_type
from barnabas.records.reader import read_records


class AbortedTransactions:
    """Tells which batches of a read-committed fetch belong to aborted transactions.

    The response lists every aborted transaction that overlaps the fetched range, by producer and first offset. In log
    order, a producer is *aborting* from its transaction's first offset until the marker that ends it; its transactional
    batches in between are hidden. The marker has to be read, because the same producer may continue with a transaction
    that commits::

        offset  0        1        2          3        4
                p7: a    p9: b    p7: ABORT  p7: c    p7: COMMIT       aborted = [(7, 0)]: a is hidden, b and c are not
    """

    __slots__ = ("_aborting", "_max_decompressed_bytes", "_pending")

    def __init__(
        self, aborted: Iterable[tuple[int, int]], *, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
    ) -> None:
        # In reverse order: the next transaction is popped from the end.
        self._pending = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
        self._aborting: set[int] = set()
        self._max_decompressed_bytes = max_decompressed_bytes

    def hides(self, batch: RecordBatch) -> bool:
        """Whether the records of this batch are hidden. Batches must be passed in log order."""
        if not batch.has_producer_id:
            return False
        while self._pending and self._pending[-1][1] <= batch.last_offset:
            self._aborting.add(self._pending.pop()[0])
        if batch.producer_id not in self._aborting:
            return False
        if batch.is_control_batch:
            if self._is_abort_marker(batch):
                self._aborting.discard(batch.producer_id)
            return True
        return batch.is_transactional

    def _is_abort_marker(self, batch: RecordBatch) -> bool:
        marker = next(iter(read_records(batch, max_decompressed_bytes=self._max_decompressed_bytes)), None)
        return marker is not None and parse_control_type(marker.key) is ControlRecordType.ABORT
