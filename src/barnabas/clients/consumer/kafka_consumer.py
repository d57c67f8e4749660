"""The consumer's public API."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import wraps
from random import Random
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from barnabas.clients.common.client_config import split_positional
from barnabas.clients.common.client_metrics import metric_value
from barnabas.clients.common.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from barnabas.clients.common.metadata_snapshot import PartitionInfo
from barnabas.clients.common.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from barnabas.clients.consumer.consumer_config import ConsumerConfig
from barnabas.clients.consumer.consumer_record import ConsumerRecord
from barnabas.clients.consumer.consumer_records import ConsumerRecords
from barnabas.clients.consumer.errors import ConcurrentModificationError
from barnabas.clients.consumer.group_metadata import CloseOptions
from barnabas.clients.consumer.interceptors import ConsumerInterceptor
from barnabas.clients.consumer.internals.consumer_core import CommitCallback, ConsumerCore, Offsets
from barnabas.clients.consumer.internals.consumer_metrics import FETCH_GROUP
from barnabas.clients.consumer.internals.consumer_parts import ConsumerParts
from barnabas.clients.consumer.internals.list_offsets import FoundOffset
from barnabas.clients.consumer.rebalance_listener import ConsumerRebalanceListener
from barnabas.clients.consumer.subscription_pattern import SubscriptionPattern
from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.extras import extra
from barnabas.common.identifiers import Uuid
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.metric import KafkaMetric
from barnabas.metrics.names import MetricName
from barnabas.network.client.host_resolver import HostResolver, resolve_all_ips
from barnabas.network.reactor.selectable import Selectable

if TYPE_CHECKING:
    import pyarrow as pa

    from barnabas.clients.typed_settings import ConsumerSettings

P = ParamSpec("P")
R = TypeVar("R")


def _exclusive(
    method: Callable[Concatenate[KafkaConsumer, P], R],
) -> Callable[Concatenate[KafkaConsumer, P], R]:
    """Lets one thread at a time call the method, on a consumer that is not closed.

    A listener or a callback runs inside poll on the same thread, and may call such methods too."""

    @wraps(method)
    def guarded(self: KafkaConsumer, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._entered():
            self._core.ensure_open()
            return method(self, *args, **kwargs)

    return guarded


class _Turnstile:
    """A reentrant lock that refuses other threads instead of blocking them."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.RLock()
        """Held by the thread that is in the consumer. Never waited for; all other locks are taken inside it."""

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise ConcurrentModificationError("KafkaConsumer is not safe for multi-threaded access.")

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class KafkaConsumer:
    """Reads records from Kafka.

        with KafkaConsumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as consumer:
            for record in consumer:
                print(record.topic, record.partition, record.offset, record.value)

    **Partitions.** ``subscribe``, or topics as positional arguments, shares the partitions of topics among all
    consumers with the same ``group.id``; without a ``group.id`` the consumer reads all of them. ``assign`` takes
    partitions without group coordination. A consumer uses one or the other.

    **Records.** ``poll`` returns up to ``max.poll.records`` records by partition; iterating yields single records;
    ``poll_table`` returns an Arrow table and creates no record objects. A background thread fetches ahead, up to one
    response per partition, or two for tables.

    **Positions and commits.** The *position* is the offset of the next record; it advances as records are returned, one
    by one when iterating. The *committed* offset is where the group continues after a restart. With
    ``enable.auto.commit`` it follows the position every ``auto.commit.interval.ms``, only when the application polls
    again, so that no record is committed before the application could process it. Otherwise ``commit`` sets it. Commit
    after processing for at-least-once, before it for at-most-once; with a transactional producer and
    ``send_offsets_to_transaction``, for exactly-once.

    **Liveness.** A group member must poll, or request the next record, within ``max.poll.interval.ms``, or it loses its
    partitions. Rebalance listeners and commit callbacks run inside such calls, on this thread.

    **Threads.** One at a time: a second one gets a `ConcurrentModificationError`. Only `wakeup` may be called from any
    thread; it makes a blocking call raise `WakeupError`.

    **Settings** are Kafka's, as keywords (``max_poll_records=100``) or in a mapping (``{"max.poll.records": 100}``).
    Keys and values are bytes unless there is a deserializer: a class, an object with ``deserialize()``, or a function
    such as ``bytes.decode``.
    """

    def __init__(
        self,
        *topics: str | Mapping[str, object] | None,
        key_deserializer: object = None,
        value_deserializer: object = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        clock: Clock = SYSTEM_CLOCK,
        resolver: HostResolver = resolve_all_ips,
        selector: Selectable | None = None,
        random: Random | None = None,
        start_thread: bool = True,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        """Positional arguments are topics to subscribe to, and at most one mapping with settings.

        ``selector``, ``clock``, ``random`` and ``start_thread`` are for tests. With them, no thread runs, and
        ``consumer.network_thread.run_once()`` runs one iteration of the background loop."""
        config, names = split_positional(topics)
        parts = ConsumerParts(
            config,
            settings,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            interceptors=interceptors,
            clock=clock,
            resolver=resolver,
            selector=selector,
            random=random,
        )
        self.config: ConsumerConfig = parts.config
        self.network_thread = parts.network_thread
        self._core = ConsumerCore(parts)
        self._turnstile = _Turnstile()
        if names:
            self.subscribe(names)
        if start_thread:
            self.network_thread.start()

    def _entered(self) -> _Turnstile:
        return self._turnstile

    # -- subscription and assignment

    @_exclusive
    def subscribe(
        self,
        topics: str | Iterable[str] | re.Pattern[str] | SubscriptionPattern,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribes to topics with the group. Replaces the previous subscription; an empty list is `unsubscribe`.

        A pattern of ``re.compile`` is matched in full against the existing topics, now and after each metadata refresh;
        the broker matches a `SubscriptionPattern`.
        """
        self._core.run(self._core.subscribe(topics, listener))

    @_exclusive
    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assigns these partitions without group coordination. Replaces the previous assignment."""
        self._core.run(self._core.assign(partitions))

    @_exclusive
    def unsubscribe(self, timeout_ms: float | None = None) -> None:
        """Gives up all topics and partitions, and leaves the group."""
        self._core.run(self._core.unsubscribe(timeout_ms))

    @_exclusive
    def assignment(self) -> frozenset[TopicPartition]:
        """Returns the assigned partitions."""
        return frozenset(self._core.subscriptions.assignment.partitions())

    @_exclusive
    def subscription(self) -> frozenset[str]:
        """Returns the subscribed topics."""
        return self._core.subscriptions.subscription.topics

    # -- records

    @_exclusive
    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> ConsumerRecords:
        """Returns the next records, at most ``max.poll.records`` or the given number; waits up to the timeout.

        The result may be empty before the timeout, when a position has moved past invisible records, such as those of
        an aborted transaction.
        """
        if max_records is not None and max_records < 1:
            raise ValueError("max_records must be at least 1")
        core = self._core
        found = core.run(core.poll(timeout_ms, lambda: core.collect_records(max_records)))
        records = ConsumerRecords(found.parts, core.next_offsets(found))
        return core.parts.interceptors.on_consume(records) if core.parts.interceptors else records

    @_exclusive
    def poll_table(
        self,
        timeout_ms: float = 0,
        max_records: int | None = None,
        columns: Sequence[str] | None = None,
        include_headers: bool = False,
        binary_type: str = "binary",
    ) -> pa.Table:
        """Returns the next records as an Arrow table: one fetch of each partition, or at most the given number of
        records. Waits up to the timeout.

        The columns are ``topic`` (a dictionary), ``partition``, ``offset``, ``timestamp`` (microseconds of UTC),
        ``timestamp_type``, ``key``, ``value`` and, on request, ``headers``; or the given columns, in that order. Rows
        of a partition are in offset order. Positions move as with `poll`; deserializers and interceptors are not
        called. Needs ``barnabas[arrow]``.

        ``binary_type`` is the type of keys and values. ``binary_view`` references the received bytes and saves a copy.
        But it supports fewer operations than ``binary``, and a single row keeps the whole response in memory.
        """
        with extra("arrow", "poll_table"):
            from barnabas.clients.consumer.poll_table import record_tables

        if max_records is not None and max_records < 1:
            raise ValueError("max_records must be at least 1")
        core = self._core
        tables = record_tables(columns, include_headers, binary_type)
        found = core.run(core.poll(timeout_ms, lambda: tables.collect(core, max_records)))
        return tables.assemble(found.parts)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Iterates over records without end, until the consumer is closed or `wakeup` is called.

        The position is behind the last record yielded: ``commit()`` in the loop commits that record and all before
        it.
        """
        core = self._core
        while True:
            with self._entered():
                core.ensure_open()
                chunks = core.run(core.next_in_hand())
            for chunk in chunks:
                yield from chunk.iterator
            if core.is_closed:
                return

    # -- positions

    @_exclusive
    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Sets the offset of the next record of a partition."""
        self._core.seek(partition, offset)

    @_exclusive
    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Seeks to the first offset of these partitions, or of all. Looked up in the next poll."""
        self._core.seek_to_beginning(partitions)

    @_exclusive
    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Seeks to the end of these partitions, or of all."""
        self._core.seek_to_end(partitions)

    @_exclusive
    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """Returns the offset of the next record of a partition."""
        return self._core.run(self._core.position(partition, timeout_ms))

    @_exclusive
    def current_lag(self, partition: TopicPartition) -> int | None:
        """Returns the number of records between the position and the end, if known; sends no request."""
        return self._core.current_lag(partition)

    @_exclusive
    def pause(self, *partitions: TopicPartition) -> None:
        """Returns no records of these partitions until `resume`. They stay assigned."""
        for partition in partitions:
            self._core.subscriptions.assignment.pause(TopicPartition(*partition))

    @_exclusive
    def resume(self, *partitions: TopicPartition) -> None:
        """Fetches records of these partitions again, after `pause`."""
        for partition in partitions:
            self._core.subscriptions.assignment.resume(TopicPartition(*partition))
        self.network_thread.wakeup()

    @_exclusive
    def paused(self) -> frozenset[TopicPartition]:
        """Returns the partitions that `pause` has stopped."""
        return frozenset(self._core.subscriptions.assignment.paused_partitions())

    # -- commits

    @_exclusive
    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Commits the positions of all partitions, or these offsets, each of which is that of the *next* record to
        read.

        Retries until success, a fatal error, or the timeout."""
        self._core.run(self._core.commit(offsets, timeout_ms))

    @_exclusive
    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        callback: CommitCallback | None = None,
    ) -> Future[Offsets]:
        """Commits without waiting and without retries.

        ``callback(offsets, error)`` is called inside a later call, on this thread."""
        return self._core.commit_async(offsets, callback)

    @_exclusive
    def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the group's committed offsets; None where there is none."""
        return self._core.run(self._core.committed(partitions, timeout_ms))

    @_exclusive
    def group_metadata(self) -> ConsumerGroupMetadata:
        """Returns the member's group metadata, for `KafkaProducer.send_offsets_to_transaction`."""
        return self._core.group_metadata()

    @_exclusive
    def enforce_rebalance(self, reason: str | None = None) -> None:
        """Triggers a rebalance with the next poll (classic protocol only)."""
        self._core.enforce_rebalance(reason)

    # -- lookups

    @_exclusive
    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the first offset of each partition, assigned or not."""
        return self._named_offsets(partitions, EARLIEST_TIMESTAMP, timeout_ms)

    @_exclusive
    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the offset after the last record of each partition that is visible to this consumer."""
        return self._named_offsets(partitions, LATEST_TIMESTAMP, timeout_ms)

    def _named_offsets(
        self, partitions: Iterable[TopicPartition], timestamp: int, timeout_ms: float | None
    ) -> dict[TopicPartition, int]:
        wanted = {TopicPartition(*partition): timestamp for partition in partitions}
        found = self._core.run(self._core.list_offsets(wanted, timeout_ms))
        return {partition: offset.offset for partition, offset in found.items() if offset is not None}

    @_exclusive
    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, FoundOffset | None]:
        """Returns the first offset of each partition whose timestamp is at least the given one.

        Timestamps are milliseconds since 1970. None: all records are older."""
        for partition, timestamp in timestamps.items():
            if timestamp < 0:
                raise ValueError(f"The target time for partition {partition} is {timestamp}. It cannot be negative.")
        return self._core.run(self._core.list_offsets(timestamps, timeout_ms))

    @_exclusive
    def partitions_for(self, topic: str, timeout_ms: float | None = None) -> tuple[PartitionInfo, ...]:
        """Returns the partitions of a topic, with their leaders; none if there is no such topic."""
        return self._core.run(self._core.topic_metadata(topic, timeout_ms)).get(topic, ())

    @_exclusive
    def list_topics(self, timeout_ms: float | None = None) -> dict[str, tuple[PartitionInfo, ...]]:
        """Returns all topics that this consumer may see, with their partitions."""
        return self._core.run(self._core.topic_metadata(None, timeout_ms))

    # -- other operations

    def metrics(self) -> dict[MetricName, KafkaMetric]:
        """Returns all metrics by name: ``records-consumed-rate``, ``records-lag-max`` and so on."""
        return self._core.parts.metrics.metrics

    def metric(self, name: str, group: str = FETCH_GROUP, **tags: str) -> Any:
        """Returns the current value of one metric; tags have underscores for hyphens."""
        return metric_value(self._core.parts.metrics, self.config.client_id, name, group, tags)

    @_exclusive
    def client_instance_id(self, timeout: float = 60.0) -> Uuid:
        """Returns this consumer's client instance id for telemetry, as 16 bytes (KIP-714).

        Blocks for at most ``timeout`` seconds until the cluster has assigned it."""
        return self._core.client_instance_id(timeout)

    @property
    def client_id(self) -> str:
        """The id that brokers see: ``client.id``, or a generated one."""
        return self.config.client_id

    def wakeup(self) -> None:
        """Makes the current blocking call, or the next one, raise `WakeupError`. Thread-safe."""
        self._core.wakeup()

    def close(self, timeout: float | CloseOptions | None = None) -> None:
        """Commits consumed offsets if auto-commit is on, leaves the group, and ends the background thread.

        Takes at most the given number of seconds, by default 30. May be called again."""
        if self._core.is_closed:
            return
        if not isinstance(timeout, CloseOptions):
            timeout = CloseOptions(None if timeout is None else int(timeout * 1000))
        with self._entered():
            self._core.run(self._core.close(timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"KafkaConsumer({self.config.client_id}, {self._core.subscriptions!r})"
