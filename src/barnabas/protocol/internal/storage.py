"""Small structures inside a partition's own files: control records, the transaction index, producer snapshots.

They are neither keyed nor compacted, and belong to the log that contains them. They are not flexible. An int16 version
precedes each of them and is not part of the classes below.

- A **control record** has a :class:`ControlRecordTypeSchema` as its key; for the types 0 abort and 1 commit its value
  is an :class:`EndTxnMarker`. It ends the transaction of the producer in the batch header.
- The **transaction index** (``.txnindex``, one per segment) is a sequence of :class:`AbortedTxn` in the order of their
  markers. It tells a read-committed consumer which records to skip.
- A **producer snapshot** (``.snapshot``, at segment ends and on shutdown) stores the last sequence number of each
  producer, so that the broker need not replay the whole log. A newer snapshot replaces the older ones.
"""

from __future__ import annotations

from barnabas.protocol.fields import array, int16, int32, int64, uint32
from barnabas.protocol.message import Message, Struct


class ControlRecordTypeSchema(Message, versions="0"):
    """0 abort, 1 commit; the others belong to :mod:`~barnabas.protocol.internal.raft`. Unknown types are skipped."""

    type: int = int16(default=0)


class EndTxnMarker(Message, versions="0"):
    """``coordinator_epoch`` fences coordinators: a marker with a lower epoch than the last marker is refused."""

    coordinator_epoch: int = int32(default=0)


class AbortedTxn(Message, versions="0"):
    """An aborted transaction: its first record, its marker, and the last stable offset after it."""

    producer_id: int = int64(default=0)
    first_offset: int = int64(default=0)
    last_offset: int = int64(default=0)
    last_stable_offset: int = int64(default=0)


class ProducerEntry(Struct):
    """The state of one producer: its last batch, and the first offset of its open transaction (-1: none).

    ``last_offset`` and ``offset_delta`` give the last and the first offset of that batch, to recognize a resend.
    """

    producer_id: int = int64("1", default=0)
    epoch: int = int16("1", default=0)
    last_sequence: int = int32("1", default=0)
    last_offset: int = int64("1", default=0)
    offset_delta: int = int32("1", default=0)
    timestamp: int = int64("1", default=0)
    coordinator_epoch: int = int32("1", default=0)
    current_txn_first_offset: int = int64("1", default=0)


class ProducerSnapshot(Message, versions="1"):
    """The file ``<offset>.snapshot``. ``crc`` is the CRC-32C of the bytes after it."""

    crc: int = uint32("1", default=0)
    producer_entries: list[ProducerEntry] = array(ProducerEntry, "1", default_factory=list)
