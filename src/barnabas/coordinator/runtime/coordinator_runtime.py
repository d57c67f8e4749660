"""The common runtime of coordinators: partitions, events, writes, timers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Generic, TypeVar

from barnabas.common.clock import Clock
from barnabas.common.dataclass import dataclass
from barnabas.common.errors import CoordinatorLoadInProgressError, NotCoordinatorError, NotLeaderOrFollowerError
from barnabas.common.snapshot_registry import SnapshotRegistry
from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.runtime.coordinator_context import (
    LINGER_ADAPTIVE,
    CoordinatorContext,
    OutOfSyncError,
)
from barnabas.coordinator.runtime.coordinator_events import (
    CompleteTransactionEvent,
    InternalEvent,
    ReadEvent,
    WriteEvent,
)
from barnabas.coordinator.runtime.coordinator_executor import EventBasedCoordinatorExecutor
from barnabas.coordinator.runtime.coordinator_loader import CoordinatorLoader, LoadSummary
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecordSerde
from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.coordinator.runtime.coordinator_shard import CoordinatorShard, CoordinatorShardBuilder, ShardContext
from barnabas.coordinator.runtime.coordinator_state import CoordinatorState
from barnabas.coordinator.runtime.coordinator_timer import EventBasedCoordinatorTimer, EventScheduler
from barnabas.coordinator.runtime.event_processor import EventProcessor
from barnabas.coordinator.runtime.partition_writer import PartitionWriter
from barnabas.coordinator.runtime.runtime_metrics import CoordinatorRuntimeMetrics
from barnabas.coordinator.runtime.snapshottable_coordinator import SnapshottableCoordinator
from barnabas.coordinator.runtime.transaction_end import TransactionEnd
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.records.batch import CompressionType
from barnabas.server.timer.timer_task import Timer, TimerClosedError, TimerTask

logger = logging.getLogger(__name__)

S = TypeVar("S", bound=CoordinatorShard)
T = TypeVar("T")

DEFAULT_WRITE_TIMEOUT_MS: Final = 5000


@dataclass(frozen=True, slots=True)
class RuntimeParts:
    """The dependencies of a runtime."""

    processor: EventProcessor
    loader: CoordinatorLoader
    writer: PartitionWriter
    serde: CoordinatorRecordSerde
    timer: Timer
    """The shared timing wheel; its owner advances it."""
    pool: Executor
    """For tasks that would block the loops."""
    clock: Clock


class CoordinatorRuntime(Generic[S]):
    """Runs the shards of a coordinator.

    Each partition of the internal topic that this broker leads has a *shard*: a state machine without I/O. Everything
    that happens to a shard is an event, and events of one partition run one after the other, whatever their source:
    requests, timers, metadata, the high watermark. So shards need no locks, and different shards run in parallel.

    ::

        schedule_write_operation ----+
        timers ----------------------+--> event loop --> operation(shard) --> CoordinatorResult
        on_new_metadata_image -------+       of the                              |        |
        high watermark --------------+      partition           records: replay, append   response: when the
                                                                      |                   records are committed
                                                                      v
                                                                 internal topic

    The response for a partition that this broker does not lead is NOT_COORDINATOR, and COORDINATOR_LOAD_IN_PROGRESS for
    one that is being loaded; clients find the coordinator again, or retry.
    """

    def __init__(
        self,
        parts: RuntimeParts,
        shard_builder: CoordinatorShardBuilder[S],
        *,
        name: str,
        default_write_timeout_ms: int = DEFAULT_WRITE_TIMEOUT_MS,
        compression: CompressionType = CompressionType.NONE,
        append_linger_ms: int = LINGER_ADAPTIVE,
        metrics: CoordinatorRuntimeMetrics | None = None,
    ) -> None:
        self.name = name
        self._parts = parts
        self._shard_builder = shard_builder
        self._default_write_timeout_ms = default_write_timeout_ms
        self._compression = compression
        self._append_linger_ms = append_linger_ms
        self._metrics = metrics
        self._lock = threading.Lock()
        """Guards the fields below. No event is queued and no other component is called while it is held."""
        self._contexts: dict[TopicPartition, CoordinatorContext[S]] = {}
        self._image: MetadataImage = EMPTY_IMAGE
        self._closed = False

    # -- operations

    def schedule_write_operation(
        self,
        name: str,
        partition: TopicPartition,
        operation: Callable[[S], CoordinatorResult[T]],
        timeout_ms: int | None = None,
    ) -> Future[T]:
        """Runs an operation that may change state.

        The future completes with the response when its records are committed. It fails with TimeoutError if that takes
        too long, and with the error of the operation if it raised one, which leaves the state unchanged.
        """
        event = WriteEvent(self, name, partition, self._timeout(timeout_ms), operation)
        self._parts.processor.enqueue_last(event)
        return event.future

    def schedule_write_all_operation(
        self, name: str, operation: Callable[[S], CoordinatorResult[T]], timeout_ms: int | None = None
    ) -> list[Future[T]]:
        """Runs the operation on every local partition."""
        return [
            self.schedule_write_operation(name, partition, operation, timeout_ms) for partition in self.partitions()
        ]

    def schedule_read_operation(
        self, name: str, partition: TopicPartition, operation: Callable[[S, int], T]
    ) -> Future[T]:
        """Runs an operation that only reads; it is passed the offset of the last committed state."""
        event = ReadEvent(self, name, partition, operation)
        self._parts.processor.enqueue_last(event)
        return event.future

    def schedule_read_all_operation(self, name: str, operation: Callable[[S, int], T]) -> list[Future[T]]:
        return [self.schedule_read_operation(name, partition, operation) for partition in self.partitions()]

    def schedule_transactional_write_operation(
        self,
        name: str,
        partition: TopicPartition,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        operation: Callable[[S], CoordinatorResult[T]],
        api_version: int,
        timeout_ms: int | None = None,
    ) -> Future[T]:
        """Runs an operation whose records belong to a transaction, after the transaction was verified."""
        event_timeout_ms = self._timeout(timeout_ms)
        response_future: Future[T] = Future()

        def on_verified(verified: Future[Any]) -> None:
            error = verified.exception()
            if error is not None:
                response_future.set_exception(error)
                return
            event = WriteEvent(
                self, name, partition, event_timeout_ms, operation, producer_id, producer_epoch, verified.result()
            )
            event.future.add_done_callback(partial(_pass_on, response_future))
            self._parts.processor.enqueue_last(event)

        self._parts.writer.maybe_start_transaction_verification(
            partition, transactional_id, producer_id, producer_epoch, api_version
        ).add_done_callback(on_verified)
        return response_future

    def schedule_transaction_completion(
        self,
        name: str,
        partition: TopicPartition,
        end: TransactionEnd,
        timeout_ms: int | None = None,
    ) -> Future[None]:
        """Appends the marker that ends a transaction in a partition, and notifies the shard."""
        event = CompleteTransactionEvent(self, name, partition, end, self._timeout(timeout_ms))
        self._parts.processor.enqueue_last(event)
        return event.future

    def _timeout(self, timeout_ms: int | None) -> int:
        return self._default_write_timeout_ms if timeout_ms is None else timeout_ms

    # -- partitions

    def partitions(self) -> list[TopicPartition]:
        with self._lock:
            return list(self._contexts)

    def state_of(self, partition: TopicPartition) -> CoordinatorState | None:
        """Returns the state of a partition, for metrics and tests; None if this broker does not coordinate it."""
        context = self._context(partition)
        return None if context is None else context.state

    def states(self) -> list[CoordinatorState]:
        """Returns the states of all partitions, for metrics."""
        with self._lock:
            return [context.state for context in self._contexts.values()]

    def is_loading(self, partition: TopicPartition) -> bool:
        """Returns whether a partition that this broker leads is not loaded, even if its election is unknown here."""
        return self.state_of(partition) in {None, CoordinatorState.INITIAL, CoordinatorState.LOADING}

    def schedule_load_operation(self, partition: TopicPartition, leader_epoch: int) -> Future[None]:
        """Loads the partition, which this broker leads in `leader_epoch`.

        The future completes when the load has started.
        """
        with self._lock:
            if not self._closed and partition not in self._contexts:
                self._contexts[partition] = self._new_context(partition)
        return self.run_in_loop(f"load-{partition}", partition, lambda: self._load(partition, leader_epoch))

    def schedule_unload_operation(self, partition: TopicPartition, leader_epoch: int | None) -> Future[None]:
        """Unloads the partition, which this broker does not lead in `leader_epoch`; None if it was deleted."""
        return self.run_in_loop(f"unload-{partition}", partition, lambda: self._unload(partition, leader_epoch))

    def _new_context(self, partition: TopicPartition) -> CoordinatorContext[S]:
        parts = self._parts
        return CoordinatorContext(
            partition,
            parts.writer,
            parts.serde,
            parts.clock,
            self._compression,
            self._append_linger_ms,
            self._schedule_flush,
        )

    def _load(self, partition: TopicPartition, leader_epoch: int) -> None:
        context = self._context(partition)
        if context is None:
            return  # unloaded meanwhile
        if leader_epoch < context.epoch:
            logger.info("Not loading %s in epoch %d: its epoch is %d", partition, leader_epoch, context.epoch)
            return
        context.epoch = leader_epoch
        if context.state in {CoordinatorState.INITIAL, CoordinatorState.FAILED}:
            self._start_loading(context)

    def _start_loading(self, context: CoordinatorContext[S]) -> None:
        parts, partition = self._parts, context.partition
        context.transition_to(CoordinatorState.LOADING)
        scheduler = self._event_scheduler(partition)
        registry = SnapshotRegistry()
        context.timer = EventBasedCoordinatorTimer(parts.timer, scheduler)
        context.executor = EventBasedCoordinatorExecutor(parts.pool, scheduler)
        context.high_watermark = -1
        shard = self._shard_builder(ShardContext(partition, registry, context.timer, context.executor, parts.clock))
        coordinator = context.coordinator = SnapshottableCoordinator(registry, shard)
        logger.debug("Loading %s in epoch %d", partition, context.epoch)

        def on_loaded(future: Future[LoadSummary]) -> None:
            # Runs on the loader's thread.
            self.run_in_loop(
                f"complete-load-{partition}", partition, lambda: self._complete_load(context, coordinator, future)
            )

        parts.loader.load(partition, coordinator).add_done_callback(on_loaded)

    def _complete_load(
        self,
        context: CoordinatorContext[S],
        coordinator: SnapshottableCoordinator[S],
        loaded: Future[LoadSummary],
    ) -> None:
        partition = context.partition
        if (
            self._context(partition) is not context
            or context.coordinator is not coordinator
            or context.state is not CoordinatorState.LOADING
        ):
            return  # this broker has lost the partition during the load
        error = loaded.exception()
        if error is not None:
            # Leadership often changes while brokers start and stop.
            level = logging.INFO if isinstance(error, NotLeaderOrFollowerError) else logging.ERROR
            logger.log(level, "Cannot load %s: %r", partition, error)
            self._fail(context)
            return
        try:
            # From now on the listener is notified of every commit. The last one before may be the last for a long time,
            # and later than the load.
            writer = self._parts.writer
            writer.register_listener(partition, self._on_high_watermark)
            coordinator.update_last_committed_offset(writer.high_watermark(partition))
            coordinator.on_loaded(self.image)
            context.transition_to(CoordinatorState.ACTIVE)
        except Exception:
            logger.exception("%s failed to start after it was loaded", partition)
            self._parts.writer.deregister_listener(partition, self._on_high_watermark)
            self._fail(context)
            return
        summary = loaded.result()
        if self._metrics is not None:
            self._metrics.record_load(summary.start_ms, summary.end_ms)
        logger.info(
            "Loaded %s: %d records, %d bytes in %d ms",
            partition,
            summary.num_records,
            summary.num_bytes,
            summary.end_ms - summary.start_ms,
        )

    def _fail(self, context: CoordinatorContext[S]) -> None:
        context.transition_to(CoordinatorState.FAILED)
        self._take_down(context)

    def _unload(self, partition: TopicPartition, leader_epoch: int | None) -> None:
        context = self._context(partition)
        if context is None:
            return
        if leader_epoch is not None and leader_epoch <= context.epoch:
            logger.info("Not unloading %s in epoch %d: its epoch is %d", partition, leader_epoch, context.epoch)
            return
        self._close_context(context)
        logger.info("Unloaded %s in epoch %s", partition, leader_epoch)

    def _close_context(self, context: CoordinatorContext[S]) -> None:
        with self._lock:
            if self._contexts.get(context.partition) is context:
                del self._contexts[context.partition]
        was_active = context.state is CoordinatorState.ACTIVE
        context.transition_to(CoordinatorState.CLOSED)
        if was_active:
            self._parts.writer.deregister_listener(context.partition, self._on_high_watermark)
        self._take_down(context)

    def _take_down(self, context: CoordinatorContext[S]) -> None:
        """Fails everything that waits in a partition."""
        context.fail_waiting(NotCoordinatorError())
        if context.timer is not None:
            context.timer.cancel_all()
        if context.executor is not None:
            context.executor.cancel_all()
        coordinator, context.coordinator = context.coordinator, None
        if coordinator is not None:
            try:
                coordinator.on_unloaded()
            except Exception:
                logger.exception("Unloading %s failed", context.partition)

    # -- metadata

    @property
    def image(self) -> MetadataImage:
        with self._lock:
            return self._image

    def on_new_metadata_image(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Passes the image to all active shards; others get it when they are loaded."""
        with self._lock:
            self._image = image
            partitions = list(self._contexts)

        def tell(partition: TopicPartition) -> None:
            context = self._context(partition)
            if context is not None and context.state is CoordinatorState.ACTIVE:
                context.active.on_new_metadata_image(image, delta)

        for partition in partitions:
            self.run_in_loop(f"image-{image.offset}", partition, partial(tell, partition))

    # -- called by events and contexts

    @contextmanager
    def active_context(self, partition: TopicPartition) -> Iterator[CoordinatorContext[S]]:
        """Yields the context of an active partition, or raises the error for the client. Only in the partition's loop.

        At the end it appends the current batch, unless more events are queued that may share it.
        """
        context = self._context(partition)
        if context is None:
            raise NotCoordinatorError
        if context.state is CoordinatorState.LOADING:
            raise CoordinatorLoadInProgressError
        if context.state is not CoordinatorState.ACTIVE:
            raise NotCoordinatorError
        try:
            yield context
        except OutOfSyncError as error:
            self._reload(context, error)
            raise NotCoordinatorError from error
        finally:
            if context.batch is not None and self._append_linger_ms == LINGER_ADAPTIVE:
                self._flush_if_idle(context)

    def _flush_if_idle(self, context: CoordinatorContext[S]) -> None:
        if self._parts.processor.has_waiting(context.partition):
            return  # the next event checks again
        self._flush(context)

    def _flush(self, context: CoordinatorContext[S]) -> None:
        try:
            context.flush()
        except OutOfSyncError as error:
            self._reload(context, error)
        except Exception as error:  # noqa: BLE001 - the waiting operations have failed with it
            logger.info("Cannot append a batch to %s: %r", context.partition, error)

    def _reload(self, context: CoordinatorContext[S], error: OutOfSyncError) -> None:
        """Loads the partition again, because memory and log disagree."""
        if context.state is not CoordinatorState.ACTIVE:
            return
        logger.error("%s; loading it again", error)
        self._parts.writer.deregister_listener(context.partition, self._on_high_watermark)
        self._fail(context)
        self._start_loading(context)

    def run_in_loop(self, name: str, partition: TopicPartition, operation: Callable[[], None]) -> Future[None]:
        """Runs an operation in the loop of a partition, in any state."""
        event = InternalEvent(self, name, partition, partial(self._guarded, partition, operation))
        self._parts.processor.enqueue_last(event)
        return event.future

    def _guarded(self, partition: TopicPartition, operation: Callable[[], None]) -> None:
        """Runs an operation, then appends the current batch: the event before may have left that to this one."""
        try:
            operation()
        finally:
            context = self._context(partition)
            if (
                context is not None
                and context.batch is not None
                and context.state is CoordinatorState.ACTIVE
                and self._append_linger_ms == LINGER_ADAPTIVE
            ):
                self._flush_if_idle(context)

    def run_in_background(self, task: Callable[[], T]) -> Future[T]:
        """Runs a task that takes too long for a loop on the pool. The task must not access the state of a shard.

        The future is cancelled if the pool is shut down.
        """
        try:
            return self._parts.pool.submit(task)
        except RuntimeError:
            cancelled: Future[T] = Future()
            cancelled.cancel()
            return cancelled

    def start_timeout(self, task: TimerTask) -> None:
        try:
            self._parts.timer.add(task)
        except TimerClosedError:
            logger.debug("Not starting %r: the coordinator is shutting down", task)

    def _event_scheduler(self, partition: TopicPartition) -> EventScheduler:
        def schedule(
            name: str,
            operation: Callable[[], CoordinatorResult[Any]],
            on_done: Callable[[BaseException | None], None],
        ) -> None:
            event = WriteEvent(self, name, partition, self._default_write_timeout_ms, lambda _: operation())
            event.future.add_done_callback(lambda future: on_done(future.exception()))
            self._parts.processor.enqueue_last(event)

        return schedule

    def _schedule_flush(self, context: CoordinatorContext[S], linger_ms: int) -> None:
        batch = context.batch
        assert batch is not None

        def flush() -> None:
            if context.batch is batch and context.state is CoordinatorState.ACTIVE:
                self._flush(context)

        batch.linger_task = _Linger(
            linger_ms, lambda: self.run_in_loop(f"linger-{context.partition}", context.partition, flush)
        )
        self.start_timeout(batch.linger_task)

    def _on_high_watermark(self, partition: TopicPartition, offset: int) -> None:
        """Stores the high watermark and leaves the rest to the loop. Called on any thread, under locks."""
        context = self._context(partition)
        if context is not None and context.on_high_watermark(offset):
            advance = partial(self._guarded, partition, context.advance_high_watermark)
            self._parts.processor.enqueue_first(InternalEvent(self, f"high-watermark-{offset}", partition, advance))

    def _context(self, partition: TopicPartition) -> CoordinatorContext[S] | None:
        with self._lock:
            return self._contexts.get(partition)

    # -- shutdown

    def close(self) -> None:
        """Ends all loops; waiting operations fail with NOT_COORDINATOR. The owner closes timer and pool."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._parts.loader.close()
        self._parts.processor.close()
        # No loop runs any more, so everything belongs to this thread.
        with self._lock:
            contexts = list(self._contexts.values())
        for context in contexts:
            self._close_context(context)
        if self._metrics is not None:
            self._metrics.close()


class _Linger(TimerTask):
    __slots__ = ("_flush",)

    def __init__(self, delay_ms: int, flush: Callable[[], object]) -> None:
        super().__init__(delay_ms)
        self._flush = flush

    def run(self) -> None:
        self._flush()


def _pass_on(target: Future[T], source: Future[T]) -> None:
    error = source.exception()
    if error is not None:
        target.set_exception(error)
    else:
        target.set_result(source.result())
