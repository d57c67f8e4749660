"""The producer for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from barnabas.clients.common.metadata_snapshot import PartitionInfo
from barnabas.clients.producer.internals.future_record_metadata import FutureRecordMetadata
from barnabas.clients.producer.internals.producer_batch import Callback
from barnabas.clients.producer.internals.record_input import Headers
from barnabas.clients.producer.kafka_producer import KafkaProducer
from barnabas.clients.producer.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from barnabas.clients.producer.prepared_txn_state import PreparedTxnState
from barnabas.clients.producer.record_metadata import RecordMetadata
from barnabas.clients.producer.table_metadata import TableFuture
from barnabas.common.errors import BarnabasError
from barnabas.common.identifiers import Uuid
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.metric import KafkaMetric
from barnabas.metrics.names import MetricName

if TYPE_CHECKING:
    from barnabas.clients.typed_settings import ProducerArguments


class AsyncKafkaProducer:
    """A `KafkaProducer` that waits without blocking the event loop.

        async with AsyncKafkaProducer(bootstrap_servers="localhost:9092") as producer:
            future = await producer.send("orders", b"...")      # accepted
            metadata = await future                             # written
            metadata = await producer.send_and_wait("orders", b"...")

    It has the same I/O thread. A record that can be accepted at once, as nearly all can, costs no more than there. One
    that must wait, for metadata or for memory, waits on a thread of the loop's executor; later sends queue up behind
    it, which keeps the order of sends. Callbacks run on the I/O thread.
    """

    def __init__(self, config: Mapping[str, object] | None = None, /, **settings: Unpack[ProducerArguments]) -> None:
        """Takes the arguments of `KafkaProducer`."""
        self._producer = KafkaProducer(config, **settings)
        self._turn = asyncio.Lock()
        """Held by the send that waits; later sends queue up for it, in their order."""
        self._queued = 0
        """How many sends hold the lock or wait for it. Between two of them the lock is free for a moment."""

    @property
    def sync(self) -> KafkaProducer:
        """The underlying producer."""
        return self._producer

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        callback: Callback | None = None,
    ) -> FutureRecordMetadata:
        """Returns when the record is accepted; await the returned future for its metadata."""
        producer = self._producer
        if not self._queued:
            future = producer.send_nowait(topic, value, key, headers, partition, timestamp_ms, callback)
            if future is not None:
                return future
        async with self._in_turn():
            future = producer.send_nowait(topic, value, key, headers, partition, timestamp_ms, callback)
            if future is not None:
                return future
            return await asyncio.to_thread(producer.send, topic, value, key, headers, partition, timestamp_ms, callback)

    async def send_and_wait(self, topic: str, value: Any = None, key: Any = None, **options: Any) -> RecordMetadata:
        """Returns when the record is written; raises its error."""
        return await (await self.send(topic, value, key, **options))

    async def send_table(
        self, topic: str, table: object, *, partition: int | None = None, timestamp_ms: int | None = None
    ) -> TableFuture:
        """Returns when all rows are accepted; await the returned future for their offsets. See
        `KafkaProducer.send_table`."""
        async with self._in_turn():
            return await asyncio.to_thread(
                self._producer.send_table, topic, table, partition=partition, timestamp_ms=timestamp_ms
            )

    @asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[None]:
        self._queued += 1
        try:
            async with self._turn:
                yield
        finally:
            self._queued -= 1

    async def flush(self) -> None:
        await asyncio.to_thread(self._producer.flush)

    async def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        return await asyncio.to_thread(self._producer.partitions_for, topic)

    async def client_instance_id(self, timeout: float) -> Uuid:  # noqa: ASYNC109 - as the synchronous one has it
        return await asyncio.to_thread(self._producer.client_instance_id, timeout)

    def metrics(self) -> dict[MetricName, KafkaMetric]:
        return self._producer.metrics()

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as the synchronous one has it
        await asyncio.to_thread(self._producer.close, timeout)

    # -- transactions

    async def init_transactions(self, *, keep_prepared_txn: bool = False) -> None:
        await asyncio.to_thread(self._producer.init_transactions, keep_prepared_txn=keep_prepared_txn)

    async def begin_transaction(self) -> None:
        self._producer.begin_transaction()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
    ) -> None:
        await asyncio.to_thread(self._producer.send_offsets_to_transaction, offsets, group)

    async def commit_transaction(self) -> None:
        await asyncio.to_thread(self._producer.commit_transaction)

    async def abort_transaction(self) -> None:
        await asyncio.to_thread(self._producer.abort_transaction)

    async def prepare_transaction(self) -> PreparedTxnState:
        return await asyncio.to_thread(self._producer.prepare_transaction)

    async def complete_transaction(self, prepared: PreparedTxnState) -> None:
        await asyncio.to_thread(self._producer.complete_transaction, prepared)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """``async with producer.transaction():`` commits at the end, and aborts if there was an exception."""
        await self.begin_transaction()
        manager = self._producer.transaction_manager
        assert manager is not None
        try:
            yield self
        except BaseException:
            if not manager.machine.has_fatal_error and self._producer.sender.is_running:
                await self.abort_transaction()
            raise
        try:
            await self.commit_transaction()
        except BarnabasError:
            if manager.machine.has_abortable_error:
                await self.abort_transaction()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"Async{self._producer!r}"
