"""DOC storage."""

from __future__ import annotations

from barnabas.protocol.fields import array, int16, int32, int64, uint32
from barnabas.protocol.message import Message, Struct


class ControlRecordTypeSchema(Message, versions="0"):
    type: int = int16(default=0)


class EndTxnMarker(Message, versions="0"):
    coordinator_epoch: int = int32(default=0)


class AbortedTxn(Message, versions="0"):
    producer_id: int = int64(default=0)
    first_offset: int = int64(default=0)
    last_offset: int = int64(default=0)
    last_stable_offset: int = int64(default=0)


class ProducerEntry(Struct):
    producer_id: int = int64("1", default=0)
    epoch: int = int16("1", default=0)
    last_sequence: int = int32("1", default=0)
    last_offset: int = int64("1", default=0)
    offset_delta: int = int32("1", default=0)
    timestamp: int = int64("1", default=0)
    coordinator_epoch: int = int32("1", default=0)
    current_txn_first_offset: int = int64("1", default=0)


class ProducerSnapshot(Message, versions="1"):
    crc: int = uint32("1", default=0)
    producer_entries: list[ProducerEntry] = array(ProducerEntry, "1", default_factory=list)
