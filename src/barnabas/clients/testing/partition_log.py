"""The log of one partition of a scripted cluster, and its producer state."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from barnabas.common.errors import Errors
from barnabas.protocol.messages.describe_producers import ProducerState
from barnabas.records.batch import RecordBatch, increment_sequence
from barnabas.records.reader import read_records

MAX_BATCHES_REMEMBERED: Final = 5


class StoredRecord(NamedTuple):
    """A record in the log of a partition."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    producer_id: int
    producer_epoch: int
    sequence: int
    transactional: bool


class ProducerEntry(NamedTuple):
    """A written batch, for detecting duplicates."""

    base_sequence: int
    last_sequence: int
    base_offset: int


@dataclass(slots=True)
class ProducerMemory:
    """The state of a producer: its epoch and its last batches."""

    epoch: int
    batches: deque[ProducerEntry] = field(default_factory=lambda: deque(maxlen=MAX_BATCHES_REMEMBERED))


@dataclass(slots=True)
class PartitionLog:
    """The records and the leader of a partition; checks sequence numbers like a broker."""

    leader: int
    epoch: int = 0
    records: list[StoredRecord] = field(default_factory=list)
    producers: dict[int, ProducerMemory] = field(default_factory=dict)

    def append(self, batch: RecordBatch) -> tuple[Errors, int]:
        """Writes a batch, unless it is a duplicate or out of order; the offset is that of its first record."""
        base_offset = len(self.records)
        if batch.producer_id >= 0:
            producer = self.producers.get(batch.producer_id)
            known = _duplicate_of(producer, batch)
            if known is not None:
                return Errors.NONE, known.base_offset
            error = _sequence_error(producer, batch)
            if error is not Errors.NONE:
                return error, -1
            if producer is None or producer.epoch != batch.producer_epoch:
                producer = self.producers[batch.producer_id] = ProducerMemory(batch.producer_epoch)
            last = increment_sequence(batch.base_sequence, batch.record_count - 1)
            producer.batches.append(ProducerEntry(batch.base_sequence, last, base_offset))
        for number, record in enumerate(read_records(batch)):
            sequence = -1 if batch.base_sequence < 0 else increment_sequence(batch.base_sequence, number)
            self.records.append(
                StoredRecord(
                    base_offset + number,
                    record.timestamp,
                    None if record.key is None else bytes(record.key),
                    None if record.value is None else bytes(record.value),
                    tuple((key, None if value is None else bytes(value)) for key, value in record.headers),
                    batch.producer_id,
                    batch.producer_epoch,
                    sequence,
                    batch.is_transactional,
                )
            )
        return Errors.NONE, base_offset

    def forget(self) -> None:
        """Drops all but the last batch of each producer's state."""
        for producer in self.producers.values():
            last = list(producer.batches)[-1:]
            producer.batches.clear()
            producer.batches.extend(last)

    def describe_producers(self) -> list[ProducerState]:
        return [
            ProducerState(
                producer_id=producer_id,
                producer_epoch=known.epoch,
                last_sequence=known.batches[-1].last_sequence if known.batches else -1,
            )
            for producer_id, known in self.producers.items()
        ]


def _duplicate_of(producer: ProducerMemory | None, batch: RecordBatch) -> ProducerEntry | None:
    if producer is None or producer.epoch != batch.producer_epoch:
        return None
    last = increment_sequence(batch.base_sequence, batch.record_count - 1)
    for entry in producer.batches:
        if (entry.base_sequence, entry.last_sequence) == (batch.base_sequence, last):
            return entry
    return None


def _sequence_error(producer: ProducerMemory | None, batch: RecordBatch) -> Errors:
    if producer is None:
        return Errors.NONE if batch.base_sequence == 0 else Errors.OUT_OF_ORDER_SEQUENCE_NUMBER
    if batch.producer_epoch < producer.epoch:
        return Errors.INVALID_PRODUCER_EPOCH
    if batch.producer_epoch > producer.epoch:
        return Errors.NONE if batch.base_sequence == 0 else Errors.OUT_OF_ORDER_SEQUENCE_NUMBER
    expected = increment_sequence(producer.batches[-1].last_sequence, 1) if producer.batches else 0
    return Errors.NONE if batch.base_sequence == expected else Errors.OUT_OF_ORDER_SEQUENCE_NUMBER
