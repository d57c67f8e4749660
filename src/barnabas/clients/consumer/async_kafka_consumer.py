"""The consumer for asyncio."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from random import Random
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from barnabas.clients.common.client_config import split_positional
from barnabas.clients.common.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from barnabas.clients.common.metadata_snapshot import PartitionInfo
from barnabas.clients.common.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from barnabas.clients.consumer.consumer_config import ConsumerConfig
from barnabas.clients.consumer.consumer_record import ConsumerRecord
from barnabas.clients.consumer.consumer_records import ConsumerRecords
from barnabas.clients.consumer.errors import ConcurrentModificationError
from barnabas.clients.consumer.group_metadata import CloseOptions
from barnabas.clients.consumer.interceptors import ConsumerInterceptor
from barnabas.clients.consumer.internals.consumer_core import ConsumerCore, Offsets, Steps
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

if TYPE_CHECKING:
    import pyarrow as pa

    from barnabas.clients.typed_settings import ConsumerSettings

T = TypeVar("T")


class AsyncKafkaConsumer:
    """A `KafkaConsumer` that waits without blocking the event loop.

        async with AsyncKafkaConsumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as consumer:
            async for record in consumer:
                print(record.value)
                await consumer.commit()

    It has the same background thread and the same rules; blocking calls are awaited, and no further thread is involved.
    One task at a time may use it. Methods of a rebalance listener may be coroutines, and the rebalance waits for them;
    they, and callbacks, run inside the task that polls.
    """

    def __init__(
        self,
        *topics: str | Mapping[str, object] | None,
        key_deserializer: object = None,
        value_deserializer: object = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        clock: Clock = SYSTEM_CLOCK,
        resolver: HostResolver = resolve_all_ips,
        random: Random | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        """Takes the arguments of `KafkaConsumer`. Its background thread starts with the first call."""
        config, names = split_positional(topics)
        parts = ConsumerParts(
            config,
            settings,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            interceptors=interceptors,
            clock=clock,
            resolver=resolver,
            random=random,
        )
        self.config: ConsumerConfig = parts.config
        self.network_thread = parts.network_thread
        self._core = ConsumerCore(parts)
        self._task: asyncio.Task[Any] | None = None
        """The task that is using the consumer."""
        self._depth = 0
        self._news = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        if names:
            self._core.run(self._core.subscribe(names, None))  # does not wait: there is no subscription to give up

    # -- waiting

    @contextmanager
    def _entered(self, *, closing: bool = False) -> Generator[ConsumerCore]:
        task = asyncio.current_task()
        if self._task is not None and self._task is not task:
            raise ConcurrentModificationError("AsyncKafkaConsumer is not safe for use by several tasks at a time.")
        if not closing:
            self._core.ensure_open()
        self._begin(asyncio.get_running_loop())
        self._task = task
        self._depth += 1
        try:
            yield self._core
        finally:
            self._depth -= 1
            if not self._depth:
                self._task = None

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not loop:
            self._loop = loop

            def tell() -> None:
                with suppress(RuntimeError):  # the loop is closed, and nobody waits
                    loop.call_soon_threadsafe(self._news.set)

            self._core.buffer.on_news = tell
        if not self.network_thread.is_started:
            self.network_thread.start()

    async def _run(self, steps: Steps[T]) -> T:
        try:
            wanted = next(steps)
            while True:
                if isinstance(wanted, Awaitable):
                    try:
                        await wanted
                    except Exception as error:  # noqa: BLE001 - it goes where it would have been raised
                        wanted = steps.throw(error)
                        continue
                else:
                    await self._wait(wanted)
                wanted = next(steps)
        except StopIteration as stop:
            value: T = stop.value
            return value
        finally:
            steps.close()

    async def _wait(self, timeout_ms: float) -> None:
        self._news.clear()
        if self._core.buffer.take_news():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                await self._news.wait()
        self._core.buffer.take_news()

    # -- subscription and assignment

    async def subscribe(
        self,
        topics: str | Iterable[str] | re.Pattern[str] | SubscriptionPattern,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        with self._entered() as core:
            await self._run(core.subscribe(topics, listener))

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        with self._entered() as core:
            await self._run(core.assign(partitions))

    async def unsubscribe(self, timeout_ms: float | None = None) -> None:
        with self._entered() as core:
            await self._run(core.unsubscribe(timeout_ms))

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._core.subscriptions.assignment.partitions())

    def subscription(self) -> frozenset[str]:
        return self._core.subscriptions.subscription.topics

    # -- records

    async def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> ConsumerRecords:
        if max_records is not None and max_records < 1:
            raise ValueError("max_records must be at least 1")
        with self._entered() as core:
            found = await self._run(core.poll(timeout_ms, lambda: core.collect_records(max_records)))
            records = ConsumerRecords(found.parts, core.next_offsets(found))
            return core.parts.interceptors.on_consume(records) if core.parts.interceptors else records

    async def poll_table(
        self,
        timeout_ms: float = 0,
        max_records: int | None = None,
        columns: Sequence[str] | None = None,
        include_headers: bool = False,
        binary_type: str = "binary",
    ) -> pa.Table:
        with extra("arrow", "poll_table"):
            from barnabas.clients.consumer.poll_table import record_tables

        if max_records is not None and max_records < 1:
            raise ValueError("max_records must be at least 1")
        tables = record_tables(columns, include_headers, binary_type)
        with self._entered() as core:
            found = await self._run(core.poll(timeout_ms, lambda: tables.collect(core, max_records)))
            return tables.assemble(found.parts)

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        while True:
            with self._entered() as core:
                chunks = await self._run(core.next_in_hand())
            for chunk in chunks:
                for record in chunk.iterator:
                    yield record
            if core.is_closed:
                return

    # -- positions

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        with self._entered() as core:
            core.seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        with self._entered() as core:
            core.seek_to_beginning(partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        with self._entered() as core:
            core.seek_to_end(partitions)

    async def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        with self._entered() as core:
            return await self._run(core.position(partition, timeout_ms))

    def current_lag(self, partition: TopicPartition) -> int | None:
        with self._entered() as core:
            return core.current_lag(partition)

    def pause(self, *partitions: TopicPartition) -> None:
        for partition in partitions:
            self._core.subscriptions.assignment.pause(TopicPartition(*partition))

    def resume(self, *partitions: TopicPartition) -> None:
        for partition in partitions:
            self._core.subscriptions.assignment.resume(TopicPartition(*partition))
        self.network_thread.wakeup()

    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(self._core.subscriptions.assignment.paused_partitions())

    # -- commits

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        with self._entered() as core:
            await self._run(core.commit(offsets, timeout_ms))

    def commit_async(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None
    ) -> asyncio.Future[Offsets]:
        """Commits without retries; the returned future need not be awaited."""
        with self._entered() as core:
            future = asyncio.wrap_future(core.commit_async(offsets, lambda _offsets, _error: None))
            future.add_done_callback(lambda done: done.cancelled() or done.exception())  # marks the error as retrieved
            return future

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        with self._entered() as core:
            return await self._run(core.committed(partitions, timeout_ms))

    def group_metadata(self) -> ConsumerGroupMetadata:
        return self._core.group_metadata()

    def enforce_rebalance(self, reason: str | None = None) -> None:
        with self._entered() as core:
            core.enforce_rebalance(reason)

    # -- lookups

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        return await self._named_offsets(partitions, EARLIEST_TIMESTAMP, timeout_ms)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        return await self._named_offsets(partitions, LATEST_TIMESTAMP, timeout_ms)

    async def _named_offsets(
        self, partitions: Iterable[TopicPartition], timestamp: int, timeout_ms: float | None
    ) -> dict[TopicPartition, int]:
        wanted = {TopicPartition(*partition): timestamp for partition in partitions}
        with self._entered() as core:
            found = await self._run(core.list_offsets(wanted, timeout_ms))
        return {partition: offset.offset for partition, offset in found.items() if offset is not None}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, FoundOffset | None]:
        if any(timestamp < 0 for timestamp in timestamps.values()):
            raise ValueError("A target time cannot be negative.")
        with self._entered() as core:
            return await self._run(core.list_offsets(timestamps, timeout_ms))

    async def partitions_for(self, topic: str, timeout_ms: float | None = None) -> tuple[PartitionInfo, ...]:
        with self._entered() as core:
            return (await self._run(core.topic_metadata(topic, timeout_ms))).get(topic, ())

    async def list_topics(self, timeout_ms: float | None = None) -> dict[str, tuple[PartitionInfo, ...]]:
        with self._entered() as core:
            return await self._run(core.topic_metadata(None, timeout_ms))

    # -- other operations

    def metrics(self) -> dict[MetricName, KafkaMetric]:
        return self._core.parts.metrics.metrics

    @property
    def client_id(self) -> str:
        return self.config.client_id

    async def client_instance_id(self, timeout: float = 60.0) -> Uuid:  # noqa: ASYNC109 - as everywhere here
        return await asyncio.to_thread(self._core.client_instance_id, timeout)

    def wakeup(self) -> None:
        """Ends a waiting call. Thread-safe; cancelling the waiting task works as well."""
        self._core.wakeup()

    async def close(self, timeout: float | CloseOptions | None = None) -> None:  # noqa: ASYNC109 - it leaves a group
        if self._core.is_closed:
            return
        if not isinstance(timeout, CloseOptions):
            timeout = CloseOptions(None if timeout is None else int(timeout * 1000))
        with self._entered(closing=True) as core:
            await self._run(core.close(timeout))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncKafkaConsumer({self.config.client_id}, {self._core.subscriptions!r})"
