"""A consumer for tests of applications, without a broker and without a thread; the test adds the records.

consumer = MockConsumer(auto_offset_reset="earliest")
consumer.assign([TopicPartition("orders", 0)])
consumer.update_beginning_offsets({TopicPartition("orders", 0): 0})
consumer.add_record(ConsumerRecord("orders", 0, 0, b"key", b"value"))
my_application(consumer)
assert consumer.committed([...]) == {...}
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Self

from barnabas.clients.common.errors import IllegalStateError
from barnabas.clients.common.metadata_snapshot import PartitionInfo
from barnabas.clients.common.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from barnabas.clients.consumer.auto_offset_reset import EARLIEST, LATEST, AutoOffsetResetStrategy, StrategyType
from barnabas.clients.consumer.consumer_record import ConsumerRecord
from barnabas.clients.consumer.consumer_records import ConsumerRecords
from barnabas.clients.consumer.errors import NoOffsetForPartitionError, WakeupError
from barnabas.clients.consumer.internals.background_future import completed
from barnabas.clients.consumer.internals.fetch_position import FetchPosition, RecordsInHand
from barnabas.clients.consumer.internals.list_offsets import FoundOffset
from barnabas.clients.consumer.internals.subscription_state import SubscriptionState
from barnabas.clients.consumer.rebalance_listener import ConsumerRebalanceListener
from barnabas.clients.consumer.subscription_pattern import SubscriptionPattern
from barnabas.common.topic_partition import TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class MockConsumer:
    """Behaves like `KafkaConsumer`; a test sets topic contents and the group's assignment with the methods of the
    second half."""

    def __init__(
        self, *topics: str, auto_offset_reset: str = "latest", max_poll_records: int = 500, group_id: str = "mock"
    ) -> None:
        """Positional arguments are topics to subscribe to. For existing tests, a first one of ``earliest``, ``latest``
        or ``none`` is the reset strategy."""
        if topics and topics[0] in {"earliest", "latest", "none"}:
            auto_offset_reset, *rest = topics
            topics = tuple(rest)
        self._subscriptions = SubscriptionState(AutoOffsetResetStrategy.parse(auto_offset_reset))
        self._max_poll_records = max_poll_records
        self._group_id = group_id
        self._records: dict[TopicPartition, list[ConsumerRecord]] = {}
        self._beginning: dict[TopicPartition, int] = {}
        self._end: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._topics: dict[str, tuple[PartitionInfo, ...]] = {}
        self._poll_tasks: deque[Callable[[], object]] = deque()
        self._poll_error: Exception | None = None
        self._commit_error: Exception | None = None
        self._wakeup_requested = False
        self.rebalances_enforced = 0
        self.closed = False
        if topics:
            self.subscribe(topics)

    def _ensure_open(self) -> None:
        if self.closed:
            raise IllegalStateError("This consumer has already been closed.")

    # -- application interface

    def subscribe(
        self,
        topics: str | Iterable[str] | re.Pattern[str] | SubscriptionPattern,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        self._ensure_open()
        if isinstance(topics, re.Pattern | SubscriptionPattern):
            self._subscriptions.subscribe_pattern(topics, listener)
            if isinstance(topics, re.Pattern):
                self._subscriptions.subscribe_from_pattern(name for name in self._topics if topics.fullmatch(name))
        else:
            self._subscriptions.subscribe([topics] if isinstance(topics, str) else topics, listener)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._ensure_open()
        self._subscriptions.assign_from_user(TopicPartition(*partition) for partition in partitions)

    def unsubscribe(self, timeout_ms: float | None = None) -> None:  # noqa: ARG002 - nothing to wait for
        self._ensure_open()
        self._subscriptions.unsubscribe()

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._subscriptions.assignment.partitions())

    def subscription(self) -> frozenset[str]:
        return self._subscriptions.subscription.topics

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> ConsumerRecords:  # noqa: ARG002 - no wait
        """Returns the available records; never waits."""
        self._ensure_open()
        if self._subscriptions.subscription.is_none():
            raise IllegalStateError("Consumer is not subscribed to any topics or assigned any partitions")
        if self._poll_tasks:
            self._poll_tasks.popleft()()
        if self._wakeup_requested:
            self._wakeup_requested = False
            raise WakeupError("wakeup() was called")
        if self._poll_error is not None:
            error, self._poll_error = self._poll_error, None
            raise error
        for in_hand in self._subscriptions.positions.take_in_hand():
            # Records left over by an iteration come again.
            position = in_hand.position()
            if position is not None:
                self._subscriptions.positions.seek_validated(in_hand.partition, position)
        limit = self._max_poll_records if max_records is None else max_records
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        for partition in self._subscriptions.assignment.in_fetch_order():
            if self._subscriptions.assignment.is_paused(partition):
                continue
            position = self._position(partition)
            beginning = self._beginning.get(partition)
            if beginning is not None and position.offset < beginning:
                self._reset(partition, self._subscriptions.resets.default_strategy)
                position = self._position(partition)
            taken = [record for record in self._records.get(partition, ()) if record.offset >= position.offset][:limit]
            if taken:
                limit -= len(taken)
                found[partition] = taken
                moved = FetchPosition(taken[-1].offset + 1, taken[-1].leader_epoch)
                self._subscriptions.positions.advance(partition, moved)
            if not limit:
                break
        after = {
            partition: OffsetAndMetadata(some[-1].offset + 1, "", some[-1].leader_epoch)
            for partition, some in found.items()
        }
        return ConsumerRecords(found, after)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Iterates over the available records; ends where a real consumer would wait."""
        while not self.closed:
            records = self.poll()
            if not records and not self._poll_tasks:
                return
            chunks = [
                RecordsInHand(partition, list(some), FetchPosition(0).current_leader)
                for partition, some in records.items()
            ]
            for chunk in chunks:
                self._subscriptions.positions.hold(chunk)
            for chunk in chunks:
                yield from chunk.iterator

    def _position(self, partition: TopicPartition) -> FetchPosition:
        state = self._subscriptions.positions.position(partition)
        if state is not None:
            return state
        committed = self._committed.get(partition)
        resets = self._subscriptions.resets
        requested = resets.partitions_needing_reset(0).get(partition)
        if requested is None and committed is not None:
            self.seek(partition, committed.offset)
        else:
            self._reset(partition, requested or resets.default_strategy)
        position = self._subscriptions.positions.position(partition)
        assert position is not None
        return position

    def _reset(self, partition: TopicPartition, strategy: AutoOffsetResetStrategy) -> None:
        match strategy.type:
            case StrategyType.EARLIEST:
                known, what = self._beginning, "beginning"
            case StrategyType.LATEST:
                known, what = self._end, "end"
            case _:
                raise NoOffsetForPartitionError([partition])
        if partition not in known:
            raise IllegalStateError(f"The {what} offset of {partition} is not known: call update_{what}_offsets")
        self.seek(partition, known[partition])

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        self._ensure_open()
        given = offset if isinstance(offset, int) else offset.offset
        self._subscriptions.positions.seek_validated(TopicPartition(*partition), FetchPosition(given))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        self._ensure_open()
        self._subscriptions.resets.request_offset_reset(
            partitions or self._subscriptions.assignment.partitions(), EARLIEST
        )

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        self._ensure_open()
        self._subscriptions.resets.request_offset_reset(
            partitions or self._subscriptions.assignment.partitions(), LATEST
        )

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:  # noqa: ARG002 - no wait
        self._ensure_open()
        if partition not in self._subscriptions.assignment:
            raise IllegalStateError("You can only check the position for partitions assigned to this consumer.")
        self._position(partition)
        found = self._subscriptions.positions.consumed_position(partition)
        assert found is not None
        return found.offset

    def current_lag(self, partition: TopicPartition) -> int | None:
        end = self._end.get(partition)
        return None if end is None else max(end - self.position(partition), 0)

    def pause(self, *partitions: TopicPartition) -> None:
        for partition in partitions:
            self._subscriptions.assignment.pause(partition)

    def resume(self, *partitions: TopicPartition) -> None:
        for partition in partitions:
            self._subscriptions.assignment.resume(partition)

    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(self._subscriptions.assignment.paused_partitions())

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        timeout_ms: float | None = None,  # noqa: ARG002 - no wait
    ) -> None:
        self._ensure_open()
        if self._commit_error is not None:
            raise self._commit_error
        given: Mapping[TopicPartition, OffsetAndMetadata | int] = (
            self._subscriptions.positions.all_consumed() if offsets is None else offsets
        )
        for partition, offset in given.items():
            self._committed[partition] = OffsetAndMetadata(offset) if isinstance(offset, int) else offset

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        callback: Callable[[Offsets, BaseException | None], object] | None = None,
    ) -> Future[Offsets]:
        self.commit(offsets)
        if callback is not None:
            callback(dict(self._committed), None)
        return completed(dict(self._committed))

    def committed(
        self,
        partitions: Iterable[TopicPartition],
        timeout_ms: float | None = None,  # noqa: ARG002 - no wait
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        self._ensure_open()
        return {partition: self._committed.get(partition) for partition in partitions}

    def group_metadata(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata(self._group_id, 1, "member")

    def enforce_rebalance(self, reason: str | None = None) -> None:  # noqa: ARG002 - there is no group
        self.rebalances_enforced += 1

    def beginning_offsets(
        self,
        partitions: Iterable[TopicPartition],
        timeout_ms: float | None = None,  # noqa: ARG002 - no wait
    ) -> dict[TopicPartition, int]:
        return {partition: self._beginning[partition] for partition in partitions}

    def end_offsets(
        self,
        partitions: Iterable[TopicPartition],
        timeout_ms: float | None = None,  # noqa: ARG002 - no wait
    ) -> dict[TopicPartition, int]:
        return {partition: self._end[partition] for partition in partitions}

    def offsets_for_times(
        self,
        timestamps: Mapping[TopicPartition, int],
        timeout_ms: float | None = None,  # noqa: ARG002 - no wait
    ) -> dict[TopicPartition, FoundOffset | None]:
        found: dict[TopicPartition, FoundOffset | None] = {}
        for partition, timestamp in timestamps.items():
            fitting = (record for record in self._records.get(partition, ()) if record.timestamp >= timestamp)
            first = next(fitting, None)
            found[partition] = None if first is None else FoundOffset(first.offset, first.timestamp, first.leader_epoch)
        return found

    def partitions_for(self, topic: str, timeout_ms: float | None = None) -> tuple[PartitionInfo, ...]:  # noqa: ARG002 - no wait
        return self._topics.get(topic, ())

    def list_topics(self, timeout_ms: float | None = None) -> dict[str, tuple[PartitionInfo, ...]]:  # noqa: ARG002 - no wait
        return dict(self._topics)

    def wakeup(self) -> None:
        self._wakeup_requested = True

    def close(self, timeout: object = None) -> None:  # noqa: ARG002 - no wait
        self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- test controls

    def add_record(self, record: ConsumerRecord) -> None:
        """Adds a record to an assigned partition."""
        partition = TopicPartition(record.topic, record.partition)
        if partition not in self._subscriptions.assignment:
            raise IllegalStateError(f"Cannot add records for the partition {partition} that is not assigned")
        self._records.setdefault(partition, []).append(record)
        self._end[partition] = max(self._end.get(partition, 0), record.offset + 1)

    def rebalance(self, partitions: Iterable[TopicPartition]) -> None:
        """Assigns exactly these partitions, as the group would, and calls the listener."""
        wanted = list(partitions)
        before = self._subscriptions.assignment.partitions()
        listener = self._subscriptions.subscription.listener
        revoked = sorted(before - set(wanted))
        if listener is not None and revoked:
            listener.on_partitions_revoked(revoked)
        self._records = {partition: some for partition, some in self._records.items() if partition in wanted}
        self._subscriptions.assign_from_subscribed(wanted)
        if listener is not None:
            listener.on_partitions_assigned(sorted(set(wanted) - before))

    def update_beginning_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Sets the first offsets of partitions."""
        self._beginning.update(offsets)

    def update_end_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Sets the end offsets of partitions."""
        self._end.update(offsets)

    def update_partitions(self, topic: str, partitions: Iterable[PartitionInfo]) -> None:
        """Sets the partitions of a topic."""
        self._topics[topic] = tuple(partitions)

    def schedule_poll_task(self, task: Callable[[], object]) -> None:
        """Runs a task at the beginning of the next poll that has none of its own."""
        self._poll_tasks.append(task)

    def set_poll_error(self, error: Exception) -> None:
        """Makes the next poll raise this error."""
        self._poll_error = error

    def set_commit_error(self, error: Exception | None) -> None:
        """Makes commits raise this error, until it is None."""
        self._commit_error = error
