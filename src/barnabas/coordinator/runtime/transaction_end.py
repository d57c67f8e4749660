"""The end of a producer's transaction, as a partition gets it."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.records.control import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch


class TransactionEnd(NamedTuple):
    """Commit or abort of one producer's transaction.

    ``transaction_version`` is that of the transaction's protocol, which determines the valid epoch of the marker.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    result: ControlRecordType
    transaction_version: int

    def marker_batch(self, timestamp_ms: int) -> bytearray:
        """Returns the control batch that ends the transaction in a partition."""
        return end_transaction_marker_batch(
            EndTransactionMarker(self.result, self.coordinator_epoch),
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            timestamp_ms=timestamp_ms,
        )
