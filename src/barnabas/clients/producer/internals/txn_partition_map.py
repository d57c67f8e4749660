"""Sequence numbers: what an idempotent producer keeps for each partition."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from barnabas.clients.producer.internals.produce_request_result import INVALID_OFFSET
from barnabas.clients.producer.internals.producer_batch import NO_PRODUCER, ProducerIdAndEpoch
from barnabas.records.batch import MAX_SEQUENCE, decrement_sequence, increment_sequence

if TYPE_CHECKING:
    from barnabas.clients.producer.internals.producer_batch import ProducerBatch
    from barnabas.common.topic_partition import TopicPartition

log = logging.getLogger(__name__)

NO_LAST_ACKED_SEQUENCE_NUMBER: Final = -1
BATCHES_REMEMBERED: Final = 5
"""How many batches of a producer a broker remembers for each partition."""


class TxnPartitionEntry:
    """One partition: which sequence is next, which was confirmed last, and which batches are in flight.

    In flight are all batches that have got a sequence and are not completed: on the wire, or back in the queue after a
    failed attempt. There are five at most, and they are kept in the order of their sequences.
    """

    __slots__ = (
        "in_flight",
        "last_acked_offset",
        "last_acked_sequence",
        "next_ordinal",
        "next_sequence",
        "producer_id_and_epoch",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.producer_id_and_epoch: ProducerIdAndEpoch = NO_PRODUCER
        self.next_sequence = 0
        self.last_acked_sequence = NO_LAST_ACKED_SEQUENCE_NUMBER
        self.last_acked_offset = INVALID_OFFSET
        self.in_flight: list[ProducerBatch] = []
        self.next_ordinal = 0

    def add_in_flight_batch(self, batch: ProducerBatch) -> None:
        # Nearly always the last one; a batch that came out of a split goes where the whole one was. Sequences start
        # over at 0 after 2^31, so that what counts is the distance, not the number.
        in_flight = self.in_flight
        position = len(in_flight)
        while position and _follows(in_flight[position - 1], batch):
            position -= 1
        in_flight.insert(position, batch)

    def take_in(self, batch: ProducerBatch) -> None:
        """A batch has got its sequence, which was the next one, for the first time."""
        self.next_sequence = (batch.base_sequence + batch.builder.record_count) & MAX_SEQUENCE
        ordinal = batch.ordinal = self.next_ordinal
        self.next_ordinal = ordinal + 1
        if self.in_flight:
            self.add_in_flight_batch(batch)
        else:
            self.in_flight.append(batch)

    @property
    def is_window_full(self) -> bool:
        """Whether a broker might forget the oldest batch in flight if one more was sent.

        The limit of requests in flight is for a connection. When a leader moves, batches go out on another one while
        the answer to an earlier batch is still missing on the first; after five of them, a repetition of the earlier
        one would not be recognised any more.
        """
        return bool(self.in_flight) and self.next_ordinal - self.in_flight[0].ordinal >= BATCHES_REMEMBERED

    def remove_in_flight_batch(self, batch: ProducerBatch) -> None:
        in_flight = self.in_flight
        if in_flight and in_flight[0] is batch:  # answers come in order
            del in_flight[0]
        elif batch in in_flight:
            in_flight.remove(batch)

    def start_sequences_at_beginning(self, identity: ProducerIdAndEpoch) -> None:
        """With a new identity counting starts at 0, also for the batches in flight, which will be sent again."""
        sequence = 0
        for batch in self.in_flight:
            batch.reset_producer_state(identity, sequence)
            sequence += batch.record_count
        self.producer_id_and_epoch = identity
        self.next_sequence = sequence
        self.last_acked_sequence = NO_LAST_ACKED_SEQUENCE_NUMBER

    def maybe_update_last_acked_sequence(self, sequence: int) -> int:
        last = self.last_acked_sequence
        if last == NO_LAST_ACKED_SEQUENCE_NUMBER or 0 < (sequence - last) & MAX_SEQUENCE < 1 << 30:
            self.last_acked_sequence = sequence
        return self.last_acked_sequence

    def is_next_sequence(self, sequence: int) -> bool:
        """Whether a batch that starts with this sequence follows what was confirmed last."""
        last = self.last_acked_sequence
        return sequence == (0 if last == NO_LAST_ACKED_SEQUENCE_NUMBER else increment_sequence(last, 1))

    def has_been_passed(self, sequence: int) -> bool:
        """Whether this sequence, or one after it, was confirmed."""
        last = self.last_acked_sequence
        return last != NO_LAST_ACKED_SEQUENCE_NUMBER and decrement_sequence(last, sequence) < 1 << 30

    def adjust_sequences_due_to_failed_batch(self, base_sequence: int, record_count: int) -> None:
        """A batch will never be written: those after it move up, or there would be a gap."""
        self.next_sequence = self._moved_up(self.next_sequence, record_count)
        for batch in self.in_flight:
            if decrement_sequence(batch.base_sequence, base_sequence) < 1 << 30:
                batch.reset_producer_state(
                    ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch),
                    self._moved_up(batch.base_sequence, record_count),
                )

    def _moved_up(self, sequence: int, by: int) -> int:
        if sequence < by:
            raise RuntimeError(f"sequence {sequence} of {self.topic_partition} cannot move up by {by}")
        return sequence - by


def _follows(batch: ProducerBatch, other: ProducerBatch) -> bool:
    if (batch.producer_id, batch.producer_epoch) != (other.producer_id, other.producer_epoch):
        return (batch.producer_id, batch.producer_epoch) > (other.producer_id, other.producer_epoch)
    return 0 < decrement_sequence(batch.base_sequence, other.base_sequence) < 1 << 30


class TxnPartitionMap:
    """The entries of all partitions. Guarded by the transaction manager's lock."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[TopicPartition, TxnPartitionEntry] = {}

    def get(self, partition: TopicPartition) -> TxnPartitionEntry | None:
        return self._entries.get(partition)

    def get_or_create(self, partition: TopicPartition) -> TxnPartitionEntry:
        entry = self._entries.get(partition)
        if entry is None:
            entry = self._entries[partition] = TxnPartitionEntry(partition)
        return entry

    def remove(self, partition: TopicPartition) -> None:
        self._entries.pop(partition, None)

    def reset(self) -> None:
        self._entries.clear()
