"""The consumer's operations, shared by the blocking and the asyncio consumer."""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeAlias, TypeVar

from barnabas.clients.common.errors import IllegalStateError
from barnabas.clients.common.metadata_snapshot import PartitionInfo
from barnabas.clients.common.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from barnabas.clients.consumer.auto_offset_reset import EARLIEST, LATEST, AutoOffsetResetStrategy
from barnabas.clients.consumer.consumer_records import ConsumerRecords
from barnabas.clients.consumer.errors import WakeupError
from barnabas.clients.consumer.group_metadata import CloseOptions
from barnabas.clients.consumer.internals.background_events import CallbackEvent, ErrorEvent
from barnabas.clients.consumer.internals.classic_membership_manager import ClassicMembershipManager
from barnabas.clients.consumer.internals.consumer_parts import ConsumerParts
from barnabas.clients.consumer.internals.fetch_collector import Collected
from barnabas.clients.consumer.internals.fetch_position import FetchPosition, RecordsInHand
from barnabas.clients.consumer.internals.group_events import OffsetsCommittedEvent, RebalanceListenerEvent
from barnabas.clients.consumer.internals.group_managers import GroupManagers
from barnabas.clients.consumer.internals.list_offsets import FoundOffset
from barnabas.clients.consumer.rebalance_listener import ConsumerRebalanceListener
from barnabas.clients.consumer.subscription_pattern import SubscriptionPattern
from barnabas.common.errors import BarnabasError, InvalidGroupIdError, KafkaTimeoutError
from barnabas.common.identifiers import Uuid
from barnabas.common.topic_partition import TopicPartition

log = logging.getLogger(__name__)

T = TypeVar("T")

Steps: TypeAlias = Generator[float | Awaitable[object], None, T]
"""An operation that does not say how to wait. It yields the milliseconds for which it waits for news (see
`FetchBuffer.wait`), or an awaitable that a listener returned, and is resumed after that."""

Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback: TypeAlias = Callable[[Offsets, BaseException | None], object]

POLL_EVENT_INTERVAL_MS: Final = 50
DEFAULT_CLOSE_TIMEOUT_MS: Final = 30_000
_NO_GROUP: Final = (
    "To use the group management or offset commit APIs, you must provide a valid group.id in the consumer "
    "configuration."
)


class ConsumerCore:
    """The application's side of a consumer.

    All of this runs on the application's thread. Slow operations are generators of waits (`Steps`), so that one
    implementation serves a blocking thread and a coroutine.

    **The poll event.** The background thread must know that the application polls: that keeps the member in its group,
    allows a commit of what was consumed before, and gives positions to partitions without one. The event costs a
    hand-over between threads, far more than returning buffered records. So it is sent when the assignment has changed,
    and otherwise every `POLL_EVENT_INTERVAL_MS`. With auto-commit the application waits until the event is handled:
    positions must not move before they are recorded.
    """

    def __init__(self, parts: ConsumerParts) -> None:
        self.parts = parts
        self.config = parts.config
        self.clock = parts.clock
        self.now = parts.clock.hi_res_milliseconds
        self.subscriptions = parts.subscriptions
        self.metadata = parts.metadata
        self.buffer = parts.buffer
        self.network_thread = parts.network_thread
        self.events = parts.network_thread.events
        self._collector = parts.collector
        self._background_events = parts.background_events
        self._metrics = parts.consumer_metrics
        self.is_closed = False
        self._wakeup_requested = False
        self._wakeups_disabled = False
        self._last_poll_event_ms: int | None = None
        self._seen_assignment_id = -1
        self._pending_async_commit: Future[Any] | None = None
        self._labelled_member_id = ""

    # -- waiting

    def run(self, steps: Steps[T]) -> T:
        """Runs the steps and blocks the thread while they wait."""
        wait = self.buffer.wait
        try:
            while True:
                wanted = next(steps)
                if isinstance(wanted, Awaitable):
                    steps.close()
                    raise TypeError("a coroutine as a listener needs an AsyncKafkaConsumer")
                wait(wanted)
        except StopIteration as stop:
            value: T = stop.value
            return value

    def wakeup(self) -> None:
        self._wakeup_requested = True
        self.buffer.notify()

    def _maybe_raise_wakeup(self) -> None:
        if self._wakeup_requested and not self._wakeups_disabled:
            self._wakeup_requested = False
            raise WakeupError("wakeup() was called")

    def tell(self, what: str, work: Callable[[int], object]) -> Future[Any]:
        """Runs a function on the background thread; the future completes when it has run."""
        future = self.events.submit(what, work)
        future.add_done_callback(lambda _future: self.buffer.notify())
        return future

    def ask(self, what: str, work: Callable[[int], Future[T]]) -> Future[T]:
        """Starts an asynchronous operation on the background thread; returns a future of its result."""
        return self.tell(what, work)

    def await_result(self, future: Future[T], deadline_ms: int, what: str, *, raise_events: bool = True) -> Steps[T]:
        """Waits for the background thread, and calls listeners and callbacks meanwhile."""
        while not future.done():
            if raise_events:
                self._maybe_raise_wakeup()
            yield from self.process_background_events(raise_errors=False)
            if future.done():
                break
            remaining_ms = deadline_ms - self.now()
            if remaining_ms <= 0:
                self.events.expired += 1
                silence = self.metadata.explain_silence()
                raise KafkaTimeoutError(f"Timeout expired before {what}. {silence}".rstrip())
            yield remaining_ms
        return future.result()

    def deadline(self, timeout_ms: float | None) -> int:
        if timeout_ms is not None and timeout_ms < 0:
            raise ValueError("Timeout must not be negative")
        return self.now() + int(self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms)

    # -- background events

    def process_background_events(self, *, raise_errors: bool = True) -> Steps[None]:
        """Calls listeners and callbacks.

        The first error is raised after all have been called, or kept for the next poll if this is not a poll."""
        if not self._background_events:
            return
        first: BaseException | None = None
        events = deque(self._background_events.drain())
        started_ms = self.now()
        try:
            while events:
                event = events.popleft()
                if isinstance(event, RebalanceListenerEvent):
                    error = yield from self._call_listener(event)
                    first = first or error
                elif isinstance(event, CallbackEvent):
                    try:
                        event.call()
                    except Exception as error:  # noqa: BLE001 - raised when the others have been called
                        first = first or error
                elif isinstance(event, OffsetsCommittedEvent):
                    self.parts.interceptors.on_commit(event.offsets)
                elif isinstance(event, ErrorEvent):
                    if not raise_errors:
                        self._background_events.put_quietly(event)
                    else:
                        first = first or event.error
        finally:
            # The task was cancelled, or the thread interrupted. A lost event could stop a rebalance for ever.
            self._background_events.put_back(events)
        self._background_events.processed.add(self.now() - started_ms)
        if first is not None:
            raise first

    def _call_listener(self, event: RebalanceListenerEvent) -> Steps[Exception | None]:
        self.buffer.retain_all(self.subscriptions.assignment.partitions())
        group = self.group
        # If it neither returns nor raises an Exception, its task was cancelled, or the thread was interrupted.
        failed: Exception | None = BarnabasError("The rebalance listener was interrupted")
        started_ms = self.now()
        try:
            outcome = getattr(event.listener, f"on_partitions_{event.kind.value}")(event.partitions)
            if isinstance(outcome, Awaitable):
                yield outcome
            group.metrics.listener_called(event.kind, self.now() - started_ms)
            failed = None
        except Exception as error:
            log.debug("The rebalance listener failed", exc_info=True)
            failed = error
        finally:
            self.tell("listener done", lambda _now: group.listener_done(event.id, failed))
        return failed

    # -- polling

    def ensure_open(self) -> None:
        if self.is_closed:
            raise IllegalStateError("This consumer has already been closed.")

    def poll(self, timeout_ms: float, collect: Callable[[], Collected]) -> Steps[Collected]:
        """Waits for records. The result may be empty on timeout, or when a position has moved past invisible
        records."""
        if self.subscriptions.subscription.is_none():
            raise IllegalStateError("Consumer is not subscribed to any topics or assigned any partitions")
        now = self.now()
        deadline_ms = self.deadline(timeout_ms) if timeout_ms else now
        self._metrics.poll_started(now)
        try:
            while True:
                # Clear earlier news, which is handled below. Otherwise it would end the next wait for a response that
                # was already taken.
                self.buffer.take_news()
                self._maybe_raise_wakeup()
                if self._is_poll_event_due(now):
                    yield from self._tell_of_poll(now)
                if self._background_events:
                    yield from self.process_background_events()
                try:
                    found = collect()
                except BarnabasError:
                    self.network_thread.wakeup()  # the response with the error no longer blocks fetching
                    raise
                if found.has_drained:
                    self.network_thread.wakeup()  # send the next fetch while the application is busy
                if found.count or found.position_advanced:
                    return found
                now = self.now()
                remaining_ms = deadline_ms - now
                if remaining_ms <= 0:
                    return found
                yield min(remaining_ms, self._longest_wait_ms())
                now = self.now()
        finally:
            self._metrics.poll_ended(self.now())

    def _longest_wait_ms(self) -> float:
        if not self.subscriptions.positions.has_all_fetch_positions():
            return self.config.retry_backoff_ms
        return max(self.network_thread.maximum_time_to_wait_ms, 1)

    def _is_poll_event_due(self, now: int) -> bool:
        last_ms = self._last_poll_event_ms
        if last_ms is None or now - last_ms >= POLL_EVENT_INTERVAL_MS:
            return True
        return self._seen_assignment_id != self.subscriptions.assignment.id

    def _tell_of_poll(self, now: int) -> Steps[None]:
        self._last_poll_event_ms = now
        self._seen_assignment_id = self.subscriptions.assignment.id
        group, offsets = self.parts.group, self.parts.offsets

        def polled(when: int) -> None:
            if group is not None:
                group.on_application_poll(when)
                self._label_telemetry(group)
            offsets.update_positions(when)

        if group is not None and self.config.enable_auto_commit:
            future = self.tell("poll", polled)
            yield from self.await_result(future, now + DEFAULT_CLOSE_TIMEOUT_MS, "poll was noted")
        else:
            self.events.submit("poll", polled)  # its completion is not news, and must not wake the application

    def _label_telemetry(self, group: GroupManagers) -> None:
        telemetry, member_id = self.parts.telemetry, group.group_metadata().member_id
        if telemetry is not None and member_id != self._labelled_member_id:
            self._labelled_member_id = member_id
            telemetry.update_labels({"group_member_id": member_id})

    def collect_records(self, max_records: int | None) -> Collected:
        """Returns the available records, beginning with those that an iteration left over."""
        limit = self.config.max_poll_records if max_records is None else max_records
        held = self.subscriptions.positions.take_in_hand()
        if held:
            found = self._collect_held(held, limit)
            if found.count:
                return found
        return self._collector.collect_fetch(limit)

    def _collect_held(self, held: list[RecordsInHand], limit: int) -> Collected:
        found = Collected()
        for in_hand in held:
            records = in_hand.take()
            if not records:
                continue
            room = limit - found.count
            taken, left = records[:room], records[room:]
            if taken:
                found.parts[in_hand.partition] = taken
                found.count += len(taken)
                found.position_advanced = True
            if left:
                self.subscriptions.positions.hold(RecordsInHand(in_hand.partition, left, in_hand.leader))
        return found

    def collect_tables(
        self, max_records: int | None, columns: tuple[str, ...] | None, include_headers: bool, binary_type: str
    ) -> Collected:
        for in_hand in self.subscriptions.positions.take_in_hand():
            # An iteration was left in the middle. Its records are already objects; to return them as columns, the
            # partition goes back to the iteration's position and is fetched again.
            position = in_hand.position()
            in_hand.drop()
            if position is not None:
                self.subscriptions.positions.seek_validated(in_hand.partition, position)
        return self._collector.collect_tables(max_records, columns, include_headers, binary_type)

    def next_in_hand(self) -> Steps[list[RecordsInHand]]:
        """Returns the next records to iterate over."""
        while True:
            found = yield from self.poll(self.config.default_api_timeout_ms, lambda: self.collect_records(None))
            if not found.count:
                continue
            records = ConsumerRecords(found.parts)
            if self.parts.interceptors:
                records = self.parts.interceptors.on_consume(records)
            held = []
            for partition, some in records.items():
                position = self.subscriptions.positions.position(partition)
                if position is not None:
                    held.append(RecordsInHand(partition, some, position.current_leader))
                    self.subscriptions.positions.hold(held[-1])
            return held

    def next_offsets(self, found: Collected) -> Offsets:
        return {
            partition: OffsetAndMetadata(position.offset, "", position.offset_epoch)
            for partition, position in found.next_positions.items()
        }

    # -- subscribing

    @property
    def group(self) -> GroupManagers:
        group = self.parts.group
        if group is None:
            raise InvalidGroupIdError(_NO_GROUP)
        return group

    def subscribe(
        self,
        topics: str | Iterable[str] | re.Pattern[str] | SubscriptionPattern,
        listener: ConsumerRebalanceListener | None,
    ) -> Steps[None]:
        is_pattern = isinstance(topics, re.Pattern | SubscriptionPattern)
        # Without a group a consumer takes all partitions of its topics: there is no one to resolve a pattern or call a
        # listener.
        group = self.group if is_pattern or listener is not None else self.parts.group
        if isinstance(topics, re.Pattern | SubscriptionPattern):
            if isinstance(topics, re.Pattern) and not topics.pattern:
                raise ValueError("Topic pattern to subscribe to cannot be empty")
            self.subscriptions.subscribe_pattern(topics, listener)
            self.metadata.request_update_for_new_topics()
        else:
            wanted: list[Any] = [topics] if isinstance(topics, str) else list(topics)
            for topic in wanted:
                if not isinstance(topic, str) or not topic.strip():
                    raise ValueError("Topic collection to subscribe to cannot contain null or empty topic")
            if not wanted:
                yield from self.unsubscribe(None)
                return
            self.buffer.retain_all(
                {partition for partition in self.subscriptions.assignment.partitions() if partition.topic in wanted}
            )
            if self.subscriptions.subscribe(wanted, listener):
                self.metadata.request_update_for_new_topics()
        if group is not None:
            self.tell("subscription change", lambda _now: group.on_subscription_change())
        else:
            self.network_thread.wakeup()

    def assign(self, partitions: Iterable[TopicPartition]) -> Steps[None]:
        wanted = [TopicPartition(*partition) for partition in partitions]
        if not wanted:
            yield from self.unsubscribe(None)
            return
        for partition in wanted:
            if not partition.topic.strip():
                raise ValueError("Topic partitions to assign to cannot have null or empty topic")
        if self.subscriptions.subscription.is_auto_assigned():
            raise IllegalStateError("Subscription to topics, partitions and pattern are mutually exclusive")
        group = self.parts.group
        if group is not None and self.config.enable_auto_commit and self.subscriptions.assignment:
            offsets = self.subscriptions.positions.all_consumed()
            if offsets:
                self.tell("commit before assignment", lambda _now: group.commit(offsets, None))
        self.buffer.retain_all(set(wanted))
        if self.subscriptions.assign_from_user(wanted):
            self.metadata.request_update_for_new_topics()
        self.network_thread.wakeup()

    def unsubscribe(self, timeout_ms: float | None) -> Steps[None]:
        deadline_ms = self.deadline(timeout_ms)
        self.buffer.retain_all(set())
        group = self.parts.group
        if group is not None and self.subscriptions.subscription.is_auto_assigned():
            future = self.ask("unsubscribe", lambda _now: group.unsubscribe(deadline_ms))
            yield from self.await_result(future, deadline_ms, "the group was left", raise_events=False)
        self.subscriptions.unsubscribe()
        yield from self.process_background_events()

    # -- positions

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        given = OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        partition = TopicPartition(*partition)
        log.info("Seeking to offset %d for partition %s", given.offset, partition)
        leader = self.metadata.current_leader(partition)
        self.subscriptions.positions.seek_unvalidated(
            partition, FetchPosition(given.offset, given.leader_epoch, leader)
        )
        self.network_thread.wakeup()

    def reset(self, partitions: Iterable[TopicPartition], strategy: AutoOffsetResetStrategy) -> None:
        wanted = [TopicPartition(*partition) for partition in partitions] or self.subscriptions.assignment.partitions()
        self.subscriptions.resets.request_offset_reset(wanted, strategy)
        self.network_thread.wakeup()

    def seek_to_beginning(self, partitions: Iterable[TopicPartition]) -> None:
        self.reset(partitions, EARLIEST)

    def seek_to_end(self, partitions: Iterable[TopicPartition]) -> None:
        self.reset(partitions, LATEST)

    def position(self, partition: TopicPartition, timeout_ms: float | None) -> Steps[int]:
        partition = TopicPartition(*partition)
        if partition not in self.subscriptions.assignment:
            raise IllegalStateError("You can only check the position for partitions assigned to this consumer.")
        deadline_ms = self.deadline(timeout_ms)
        while True:
            self._maybe_raise_wakeup()
            found = self.subscriptions.positions.consumed_position(partition)
            if found is not None:
                return found.offset
            yield from self.process_background_events()
            self.events.submit("position", self.parts.offsets.update_positions)
            remaining_ms = deadline_ms - self.now()
            if remaining_ms <= 0:
                raise KafkaTimeoutError(
                    f"Timeout expired before the position for partition {partition} could be determined. "
                    f"{self.metadata.explain_silence()}".rstrip()
                )
            yield min(remaining_ms, self.config.retry_backoff_ms)

    def current_lag(self, partition: TopicPartition) -> int | None:
        partition = TopicPartition(*partition)
        level = self.config.isolation_level
        lag = self.subscriptions.lag.partition_lag(partition, level)
        if lag is None and self.subscriptions.lag.request_end_offset(partition, level):
            self.tell("end offset", lambda _now: self.parts.offsets.request_end_offset(partition))
        return lag

    # -- commits

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None, timeout_ms: float | None
    ) -> Steps[None]:
        group = self.group
        started_ns = self.clock.nanoseconds()
        deadline_ms = self.deadline(timeout_ms)
        try:
            yield from self._await_async_commits(deadline_ms)
            wanted = self._offsets(offsets)
            if not wanted:
                return
            future = self.ask("commit", lambda _now: group.commit(wanted, deadline_ms))
            yield from self.await_result(future, deadline_ms, "successfully committing offsets")
            self.parts.interceptors.on_commit(wanted)
        finally:
            self._metrics.commit_sync.record_unchecked(self.clock.nanoseconds() - started_ns)

    def _await_async_commits(self, deadline_ms: int) -> Steps[None]:
        """Waits for pending asynchronous commits and calls their callbacks, to keep commits in order."""
        pending = self._pending_async_commit
        while pending is not None and not pending.done() and self.now() < deadline_ms:
            self._maybe_raise_wakeup()
            yield deadline_ms - self.now()
        yield from self.process_background_events(raise_errors=False)

    def commit_async(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None, callback: CommitCallback | None
    ) -> Future[Offsets]:
        group = self.group
        wanted = self._offsets(offsets)
        future: Future[Offsets] = self.ask("commit", lambda _now: group.commit(wanted, None))
        self._pending_async_commit = future

        def ended(done: Future[Offsets]) -> None:
            error = done.exception()

            def call() -> None:
                if error is None:
                    self.parts.interceptors.on_commit(wanted)
                if callback is not None:
                    callback(wanted, error)
                elif error is not None:
                    log.error("Offset commit with offsets %s failed: %s", dict(wanted), error)

            self._background_events.put(CallbackEvent(call))

        future.add_done_callback(ended)
        return future

    def _offsets(self, given: Mapping[TopicPartition, OffsetAndMetadata | int] | None) -> Offsets:
        if given is None:
            return self.subscriptions.positions.all_consumed()
        return {
            TopicPartition(*partition): OffsetAndMetadata(offset) if isinstance(offset, int) else offset
            for partition, offset in given.items()
        }

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None
    ) -> Steps[dict[TopicPartition, OffsetAndMetadata | None]]:
        group = self.group
        started_ns = self.clock.nanoseconds()
        wanted = [TopicPartition(*partition) for partition in partitions]
        if not wanted:
            return {}
        deadline_ms = self.deadline(timeout_ms)
        try:
            future = self.ask("committed", lambda _now: group.fetch_committed(wanted, deadline_ms))
            found = yield from self.await_result(
                future, deadline_ms, f"the last committed offset for partitions {list(map(str, wanted))} was found"
            )
            return {partition: found.get(partition) for partition in wanted}
        finally:
            self._metrics.committed.record_unchecked(self.clock.nanoseconds() - started_ns)

    def group_metadata(self) -> ConsumerGroupMetadata:
        return self.group.group_metadata()

    def enforce_rebalance(self, reason: str | None) -> None:
        group = self.group

        def enforce(_now: int) -> None:
            member = group.membership
            if isinstance(member, ClassicMembershipManager):
                member.request_rejoin(reason or "rebalance enforced by user")
            else:
                log.warning("Operation not supported in new consumer group protocol")

        self.tell("enforce rebalance", enforce)

    # -- lookups

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None
    ) -> Steps[dict[TopicPartition, FoundOffset | None]]:
        deadline_ms = self.deadline(timeout_ms)
        if not timestamps:
            return {}
        wanted = {TopicPartition(*partition): timestamp for partition, timestamp in timestamps.items()}
        future = self.ask("list offsets", lambda _now: self.parts.offsets.fetch_offsets(wanted, deadline_ms))
        names = ", ".join(sorted(map(str, wanted)))
        return (yield from self.await_result(future, deadline_ms, f"the offsets of {names} were found"))

    def topic_metadata(
        self, topic: str | None, timeout_ms: float | None
    ) -> Steps[dict[str, tuple[PartitionInfo, ...]]]:
        deadline_ms = self.deadline(timeout_ms)
        future = self.ask("topic metadata", lambda _now: self.parts.topics.request(topic, deadline_ms))
        return (yield from self.await_result(future, deadline_ms, "topic metadata was fetched"))

    def client_instance_id(self, timeout: float) -> Uuid:
        telemetry = self.parts.telemetry
        if telemetry is None:
            raise IllegalStateError("Telemetry is not enabled. Set config `enable.metrics.push` to `true`.")
        return telemetry.client_instance_id(timeout)

    # -- close

    def close(self, options: CloseOptions) -> Steps[None]:
        """Commits if auto-commit is on, leaves the group, and ends the background thread.

        The consumer is closed even if one of these fails. The first error is raised."""
        if self.is_closed:
            return
        timeout_ms = DEFAULT_CLOSE_TIMEOUT_MS if options.timeout_ms is None else options.timeout_ms
        if timeout_ms < 0:
            raise ValueError("The timeout cannot be negative.")
        deadline_ms = self.now() + timeout_ms
        self._wakeups_disabled = True
        first: Exception | None = None
        try:
            yield from self._leave(options, deadline_ms)
        except Exception as error:  # noqa: BLE001 - raised when the rest has been done
            first = error
        self.is_closed = True
        if self.parts.telemetry is not None:
            self.parts.telemetry.initiate_close()
        self.network_thread.initiate_close(deadline_ms)
        while not self.network_thread.has_ended:
            yield POLL_EVENT_INTERVAL_MS
        self.network_thread.join()
        self._collector.close()
        self.buffer.retain_all(frozenset())  # responses that were never taken may hold open files
        self.parts.close_plug_ins()
        if first is not None and not isinstance(first, KafkaTimeoutError):
            raise first

    def _leave(self, options: CloseOptions, deadline_ms: int) -> Steps[None]:
        yield from self._await_async_commits(deadline_ms)
        group = self.parts.group
        if group is not None:
            future = self.ask("leave group", lambda _now: group.leave_on_close(deadline_ms, options))
            yield from self.await_result(future, deadline_ms, "the group was left", raise_events=False)
        yield from self.process_background_events()
