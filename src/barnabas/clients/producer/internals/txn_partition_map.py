"""Sequence numbers of an idempotent producer, by partition."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from barnabas.clients.producer.internals.produce_request_result import INVALID_OFFSET
from barnabas.clients.producer.internals.producer_batch import NO_PRODUCER, ProducerIdAndEpoch
from barnabas.records.batch import MAX_SEQUENCE, NO_SEQUENCE, decrement_sequence, increment_sequence

if TYPE_CHECKING:
    from threading import RLock

    from barnabas.clients.producer.internals.producer_batch import ProducerBatch
    from barnabas.clients.producer.internals.sequence_resolution import SequenceQuestion
    from barnabas.common.topic_partition import TopicPartition

log = logging.getLogger(__name__)

NO_LAST_ACKED_SEQUENCE_NUMBER: Final = -1
BATCHES_REMEMBERED: Final = 5
"""How many batches of a producer a broker remembers for each partition."""


class TxnPartitionEntry:
    """One partition: its next sequence, its last acknowledged sequence, and its batches in flight.

    In flight are all batches that have a sequence and are not completed: on the wire, or back in the queue after a
    failed attempt. There are at most five, in sequence order.
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
        # Nearly always the last one; a part of a split batch takes the place of the whole one. Sequences wrap to 0
        # after 2^31, so distances are compared.
        in_flight = self.in_flight
        position = len(in_flight)
        while position and _follows(in_flight[position - 1], batch):
            position -= 1
        in_flight.insert(position, batch)

    def take_in(self, batch: ProducerBatch) -> None:
        """Adds a batch that was just assigned the next sequence."""
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

        The limit of requests in flight is per connection. When a leader moves, batches go out on another connection
        while the response to an earlier batch is still missing on the first; after five of them, the broker would not
        recognise a duplicate of the earlier one.
        """
        return bool(self.in_flight) and self.next_ordinal - self.in_flight[0].ordinal >= BATCHES_REMEMBERED

    def remove_in_flight_batch(self, batch: ProducerBatch) -> None:
        in_flight = self.in_flight
        if in_flight and in_flight[0] is batch:  # responses come in order
            del in_flight[0]
        elif batch in in_flight:
            in_flight.remove(batch)

    def start_sequences_at_beginning(self, identity: ProducerIdAndEpoch) -> None:
        """Restarts sequences at 0 with a new identity, also for the batches in flight, which will be sent again."""
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
        """Whether a batch that starts with this sequence follows the last acknowledged one."""
        last = self.last_acked_sequence
        return sequence == (0 if last == NO_LAST_ACKED_SEQUENCE_NUMBER else increment_sequence(last, 1))

    def has_been_passed(self, sequence: int) -> bool:
        """Whether this sequence or a later one was acknowledged."""
        last = self.last_acked_sequence
        return last != NO_LAST_ACKED_SEQUENCE_NUMBER and decrement_sequence(last, sequence) < 1 << 30

    def adjust_sequences_due_to_failed_batch(self, base_sequence: int, record_count: int) -> None:
        """Closes the gap of a batch that will never be written: lowers the sequences of those after it."""
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
    """The sequences and in-flight batches of all partitions.

    A partition's sequence is *unresolved* after a sent batch has expired: it is unknown whether the batch was written,
    and so which sequence is next. It is *questioned* while its leader is asked (`SequenceResolver`).
    """

    __slots__ = ("_entries", "_lock", "_unresolved", "sequence_questions")

    def __init__(self, lock: RLock | None = None) -> None:
        self._lock = threading.RLock() if lock is None else lock
        """The transaction manager's lock, which guards all of this."""
        self._entries: dict[TopicPartition, TxnPartitionEntry] = {}
        self._unresolved: dict[TopicPartition, int] = {}
        """By partition, the sequence that is next if all batches were written."""
        self.sequence_questions: dict[TopicPartition, SequenceQuestion] = {}
        """Open questions to leaders. Owned by the I/O thread, which needs no lock for it."""

    # -- entries

    def get(self, partition: TopicPartition) -> TxnPartitionEntry | None:
        return self._entries.get(partition)

    def get_or_create(self, partition: TopicPartition) -> TxnPartitionEntry:
        entry = self._entries.get(partition)
        if entry is None:
            entry = self._entries[partition] = TxnPartitionEntry(partition)
        return entry

    def remove(self, partition: TopicPartition) -> None:
        """Forgets a partition: its next batch has sequence 0."""
        self._entries.pop(partition, None)
        self._unresolved.pop(partition, None)

    def reset(self) -> None:
        """Forgets all partitions, after an epoch change."""
        self._entries.clear()
        self._unresolved.clear()

    def start_over(self, partition: TopicPartition, identity: ProducerIdAndEpoch) -> None:
        """Restarts sequences at 0 with a new identity."""
        self.get_or_create(partition).start_sequences_at_beginning(identity)
        self._unresolved.pop(partition, None)

    # -- batches in flight

    def assign_sequence(self, batch: ProducerBatch, identity: ProducerIdAndEpoch, is_transactional: bool) -> bool:
        """Assigns a sequence to a batch that has none; false if it must wait for batches before it.

        The lock of its queue must be held. A batch that has a sequence is closed for appends.
        """
        partition = batch.topic_partition
        with self._lock:
            if self.sequence_questions:
                question = self.sequence_questions.get(partition)
                if question is not None and question.holds_back:
                    return False
            entry = self.get_or_create(partition)
            in_flight = entry.in_flight
            if batch.base_sequence != NO_SEQUENCE:
                # A retried batch waits until it is the first in flight: so recovery goes one by one.
                return not in_flight or batch.base_sequence == in_flight[0].base_sequence
            if partition in self._unresolved:
                return False
            if in_flight:
                # A batch of the new epoch starts at 0 and must not overtake those that still have the old one.
                if entry.producer_id_and_epoch != identity or entry.is_window_full:
                    return False
                # A broker without state of a producer accepts any sequence as its first. If the first batch is
                # rejected, because the leader of a new partition is not ready, and the second is accepted, the first
                # can never be written. So the others wait until the first is acknowledged.
                if entry.last_acked_sequence == NO_LAST_ACKED_SEQUENCE_NUMBER:
                    return False
            elif entry.producer_id_and_epoch != identity:
                # A partition switches to a new identity as soon as nothing with the old one is in flight.
                entry.start_sequences_at_beginning(identity)
            batch.builder.close_for_appends()
            batch.set_producer_state(identity, entry.next_sequence, is_transactional)
            entry.take_in(batch)
            return True

    def add_in_flight_batch(self, batch: ProducerBatch) -> None:
        if not batch.has_sequence:
            raise RuntimeError(f"{batch!r} has no sequence and cannot be tracked")
        with self._lock:
            self.get_or_create(batch.topic_partition).add_in_flight_batch(batch)

    def remove_in_flight_batch(self, batch: ProducerBatch) -> None:
        with self._lock:
            entry = self.get(batch.topic_partition)
            if entry is not None:
                entry.remove_in_flight_batch(batch)

    def window(self, partition: TopicPartition) -> tuple[list[ProducerBatch], int]:
        """Returns the batches in flight in sequence order, and the next sequence after them."""
        with self._lock:
            entry = self.get_or_create(partition)
            return list(entry.in_flight), entry.next_sequence

    def has_in_flight_batches(self, partition: TopicPartition) -> bool:
        with self._lock:
            return bool(self.get_or_create(partition).in_flight)

    def last_acked_sequence(self, partition: TopicPartition) -> int:
        with self._lock:
            entry = self.get(partition)
            return NO_LAST_ACKED_SEQUENCE_NUMBER if entry is None else entry.last_acked_sequence

    def handle_completed_batch(self, batch: ProducerBatch, base_offset: int) -> None:
        """Records that a broker has written the batch."""
        with self._lock:
            entry = self.get(batch.topic_partition)
            if entry is None:
                return
            count = batch.builder.record_count
            if (batch.producer_id, batch.producer_epoch) == entry.producer_id_and_epoch:
                # A response for an earlier identity says nothing about the sequences of this one.
                entry.maybe_update_last_acked_sequence((batch.base_sequence + count - 1) & MAX_SEQUENCE)
            if base_offset != INVALID_OFFSET and entry.last_acked_offset < base_offset + count - 1:
                entry.last_acked_offset = base_offset + count - 1
            entry.remove_in_flight_batch(batch)

    def is_confirmed_by_a_later_one(self, batch: ProducerBatch) -> bool:
        """Whether a batch with an unknown outcome must have been written, because one behind it was."""
        with self._lock:
            entry = self.get(batch.topic_partition)
            return (
                entry is not None
                and batch.may_be_written
                and (batch.producer_id, batch.producer_epoch) == entry.producer_id_and_epoch
                and entry.has_been_passed(batch.last_sequence)
            )

    # -- unresolved sequences

    @property
    def are_resolved(self) -> bool:
        """Whether the next sequences of all partitions are known."""
        return not self._unresolved and not self.sequence_questions

    def unresolved_sequence(self, partition: TopicPartition) -> int | None:
        """Returns the sequence that is next if all batches were written; None if the sequence is resolved."""
        with self._lock:
            return self._unresolved.get(partition)

    def mark_sequence_unresolved(self, batch: ProducerBatch) -> None:
        """Marks the sequence unresolved: a sent batch has failed, and may have been written."""
        with self._lock:
            following = increment_sequence(batch.last_sequence, 1)
            partition = batch.topic_partition
            self._unresolved[partition] = max(self._unresolved.get(partition, following), following)
            log.debug("The sequence of %s is unresolved; %d is next if all was written", partition, following)

    def resolve_sequences(self) -> list[TxnPartitionEntry]:
        """Resolves partitions without batches in flight; returns those whose last batch was not written."""
        gaps: list[TxnPartitionEntry] = []
        with self._lock:
            for partition in list(self._unresolved):
                entry = self.get_or_create(partition)
                if entry.in_flight:
                    continue
                if not entry.is_next_sequence(entry.next_sequence):
                    gaps.append(entry)
                self._unresolved.pop(partition)
        return gaps
