"""Small structures inside a partition's own files: control records, the transaction index, producer snapshots.

None of these is keyed or compacted; they belong to the log they lie in. None is flexible, and each is preceded by an
int16 version, which is not part of the classes below.

- A **control record** has a :class:`ControlRecordTypeSchema` as its key; for the types 0 abort and 1 commit its value
  is an :class:`EndTxnMarker`. It ends the transaction of the producer in the batch header.
- The **transaction index** (``.txnindex``, one per segment) is a row of :class:`AbortedTxn` in the order of their
  markers. From it the broker tells a read-committed consumer what to skip.
- A **producer snapshot** (``.snapshot``, at segment ends and on shutdown) saves the broker from replaying the whole
  log to learn the last sequence number of each producer. A newer one supersedes the older.
"""

from __future__ import annotations

from barnabas.protocol.fields import array, int16, int32, int64, uint32
from barnabas.protocol.message import Message, Struct


class ControlRecordTypeSchema(Message, versions="0"):
    """0 abort, 1 commit; the others belong to :mod:`~barnabas.protocol.internal.raft`. Unknown types are skipped."""

    type: int = int16(default=0)


class EndTxnMarker(Message, versions="0"):
    """``coordinator_epoch`` fences coordinators: a marker with a lower one than the last is refused."""

    coordinator_epoch: int = int32(default=0)


class AbortedTxn(Message, versions="0"):
    """An aborted transaction: its first record, its marker, and the last stable offset after it."""

    producer_id: int = int64(default=0)
    first_offset: int = int64(default=0)
    last_offset: int = int64(default=0)
    last_stable_offset: int = int64(default=0)


class ProducerEntry(Struct):
    """What the log knows of one producer: its last batch and, if a transaction is open, where that began (-1: none).

    ``offset_delta`` and ``last_offset`` tell first from last record of that batch, so that a resend of it can be
    recognized.
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
    """The file ``<offset>.snapshot``. ``crc`` is a CRC-32C of what comes after it."""

    crc: int = uint32("1", default=0)
    producer_entries: list[ProducerEntry] = array(ProducerEntry, "1", default_factory=list)
