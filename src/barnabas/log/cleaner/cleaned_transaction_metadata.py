"""Tracks the transactions that the cleaner reads, and which of their batches and markers are still needed."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from barnabas.log.index.transaction_index import TransactionIndex
from barnabas.protocol.internal.storage import AbortedTxn
from barnabas.records.batch import RecordBatch
from barnabas.records.control import ControlRecordType, parse_control_type
from barnabas.records.reader import read_records


class _AbortedTransaction:
    __slots__ = ("aborted", "has_batches")

    def __init__(self, aborted: AbortedTxn) -> None:
        self.aborted = aborted
        self.has_batches = False


class CleanedTransactionMetadata:
    """Tracks the transactions of a log while the cleaner reads it from the beginning.

    The cleaner stops before the last stable offset, so all transactions that it reads are complete, and the transaction
    index lists the aborted ones in advance.

    * A batch of an **aborted** transaction can be removed at once, whatever its keys.
    * A **marker** can be removed once no batch of its transaction is left. (Not even an empty one, which is kept for
      its sequence numbers.) While there is one, a consumer needs the marker to know the outcome of the transaction.
    * The **transaction index** of the cleaned segment gets the aborted transactions whose markers are retained. A
      marker that only waits for its delete horizon needs no entry: its transaction has no records to skip.

    Two rounds of cleaning, for the batches ``a`` and ``b`` of producer 7::

        offsets  0     1     2          first round: removes a, b; retains the ABORT, with its entry
                 7:a   7:b   7:ABORT    second round: finds nothing of the transaction before the ABORT; removes it,
                                        after delete.retention.ms
    """

    __slots__ = ("_aborted", "_committed", "_sequence", "_upcoming", "cleaned_index")

    def __init__(self) -> None:
        self._committed: set[int] = set()
        """Producers with batches of a committed transaction whose marker has not been read yet."""
        self._aborted: dict[int, _AbortedTransaction] = {}
        """The same for aborted transactions, including those without remaining batches."""
        self._upcoming: list[tuple[int, int, AbortedTxn]] = []
        """Aborted transactions after the current offset: a heap by first offset. (The number avoids comparing
        messages.)"""
        self._sequence = 0
        self.cleaned_index: TransactionIndex | None = None
        """The index that receives aborted transactions that are still needed; None for no index."""

    def add_aborted_transactions(self, aborted: Iterable[AbortedTxn]) -> None:
        """Adds the transaction index entries of the next part of the log. A transaction may be added twice."""
        for transaction in aborted:
            self._sequence += 1
            heapq.heappush(self._upcoming, (transaction.first_offset, self._sequence, transaction))

    def on_batch_read(self, batch: RecordBatch) -> bool:
        """Tracks a batch with records; returns whether its transaction was aborted, so that it can be removed."""
        self._begin_up_to(batch.last_offset)
        if not batch.is_transactional:
            return False
        aborted = self._aborted.get(batch.producer_id)
        if aborted is None:
            self._committed.add(batch.producer_id)
            return False
        aborted.has_batches = True
        return True

    def on_control_batch_read(self, batch: RecordBatch) -> bool:
        """Tracks a control batch; returns whether its transaction has no batches left, so that it can be removed."""
        self._begin_up_to(batch.last_offset)
        record = next(iter(read_records(batch)), None)
        if record is None:
            return True  # emptied by an earlier round
        match parse_control_type(record.key):
            case ControlRecordType.ABORT:
                transaction = self._aborted.pop(batch.producer_id, None)
                if transaction is None or not transaction.has_batches:
                    return True
                if self.cleaned_index is not None:
                    self.cleaned_index.append(transaction.aborted)
                return False
            case ControlRecordType.COMMIT:
                if batch.producer_id in self._committed:
                    self._committed.remove(batch.producer_id)
                    return False
                return True
            case _:
                return False

    def _begin_up_to(self, offset: int) -> None:
        while self._upcoming and self._upcoming[0][0] <= offset:
            transaction = heapq.heappop(self._upcoming)[2]
            self._aborted.setdefault(transaction.producer_id, _AbortedTransaction(transaction))
