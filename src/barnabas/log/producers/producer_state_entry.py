"""The state that a log keeps for one producer."""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.records.batch import (
    MAX_SEQUENCE,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    RecordBatch,
    decrement_sequence,
)

NUM_BATCHES_TO_RETAIN: Final = 5
"""How many batches are kept per producer. A producer has at most so many requests in flight to a broker, so any batch
that it can send again is among them."""

NO_COORDINATOR_EPOCH: Final = -1


class BatchMetadata(NamedTuple):
    """An appended batch: enough to recognize a duplicate and to respond with the original offsets."""

    last_seq: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_seq(self) -> int:
        return decrement_sequence(self.last_seq, self.offset_delta)

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerStateEntry:
    """A producer's epoch, its last batches, and the first offset of its open transaction.

    The batches are in append order and all of the current epoch; a new epoch discards those of the old one. The
    coordinator epoch is that of the last marker.
    """

    __slots__ = (
        "_batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = NO_COORDINATOR_EPOCH,
        last_timestamp: int = NO_TIMESTAMP,
        current_txn_first_offset: int | None = None,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.current_txn_first_offset = current_txn_first_offset
        self._batches: list[BatchMetadata] = []

    @property
    def batches(self) -> tuple[BatchMetadata, ...]:
        return tuple(self._batches)

    @property
    def is_empty(self) -> bool:
        """Whether no batch of the current epoch is known."""
        return not self._batches

    @property
    def first_seq(self) -> int:
        return self._batches[0].first_seq if self._batches else NO_SEQUENCE

    @property
    def last_seq(self) -> int:
        return self._batches[-1].last_seq if self._batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        return self._batches[-1].last_offset if self._batches else -1

    @property
    def last_offset_delta(self) -> int:
        return self._batches[-1].offset_delta if self._batches else 0

    def without_batches(self) -> ProducerStateEntry:
        """Returns a copy without batches, in which an append collects its own."""
        return ProducerStateEntry(
            self.producer_id,
            self.producer_epoch,
            self.coordinator_epoch,
            self.last_timestamp,
            self.current_txn_first_offset,
        )

    def add_batch(self, epoch: int, batch: BatchMetadata) -> None:
        if epoch != self.producer_epoch:
            self._batches.clear()
            self.producer_epoch = epoch
        batches = self._batches
        if len(batches) == NUM_BATCHES_TO_RETAIN:
            del batches[0]
        batches.append(batch)
        self.last_timestamp = batch[3]

    def end_transaction(self, producer_epoch: int, coordinator_epoch: int, timestamp: int) -> None:
        """Applies a marker. A marker of transaction version 2 carries the epoch of the next transaction."""
        if producer_epoch != self.producer_epoch:
            self._batches.clear()
            self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = timestamp
        self.current_txn_first_offset = None

    def update(self, later: ProducerStateEntry) -> None:
        """Merges the entry that an append has collected."""
        if later.producer_epoch != self.producer_epoch:
            self._batches.clear()
            self.producer_epoch = later.producer_epoch
        self._batches += later._batches
        del self._batches[:-NUM_BATCHES_TO_RETAIN]
        self.coordinator_epoch = later.coordinator_epoch
        self.current_txn_first_offset = later.current_txn_first_offset
        self.last_timestamp = later.last_timestamp

    def find_duplicate_batch(self, batch: RecordBatch) -> BatchMetadata | None:
        """Finds the known batch that this one repeats: same epoch, same range of sequence numbers."""
        batches, first = self._batches, batch.base_sequence
        if batch.producer_epoch != self.producer_epoch or not batches or first == batches[-1][0] + 1:
            return None  # nearly always: the batch that follows the last one
        last = (first + batch.last_offset_delta) & MAX_SEQUENCE
        for known in batches:
            if known[0] == last and known.first_seq == first:
                return known
        return None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProducerStateEntry):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return (
            f"ProducerStateEntry(producer_id={self.producer_id}, producer_epoch={self.producer_epoch}, "
            f"coordinator_epoch={self.coordinator_epoch}, last_timestamp={self.last_timestamp}, "
            f"current_txn_first_offset={self.current_txn_first_offset}, batches={self._batches})"
        )
