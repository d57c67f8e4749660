"""What tests of coordinators share: a runtime without threads, on a log in memory, whose time a test moves itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from concurrent.futures import Executor, Future
from typing import Any, Generic, TypeVar

from barnabas.common.clock import MockClock
from barnabas.common.errors import NotCoordinatorError, NotLeaderOrFollowerError
from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.runtime.coordinator_context import LINGER_ADAPTIVE
from barnabas.coordinator.runtime.coordinator_loader import CoordinatorPlayback, LoadSummary
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord, CoordinatorRecordSerde
from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime, RuntimeParts
from barnabas.coordinator.runtime.coordinator_shard import CoordinatorShard, CoordinatorShardBuilder
from barnabas.coordinator.runtime.event_accumulator import EventAccumulator
from barnabas.coordinator.runtime.event_processor import CoordinatorEvent, run_event
from barnabas.coordinator.runtime.partition_writer import HighWatermarkCallback
from barnabas.log.producers.producer_append_info import TRANSACTION_VERSION_UNKNOWN
from barnabas.log.producers.verification_state import SENTINEL, VerificationGuard
from barnabas.records.batch import RecordBatch
from barnabas.records.control import parse_control_type
from barnabas.records.reader import read_records
from barnabas.server.timer.mock_timer import MockTimer

S = TypeVar("S", bound=CoordinatorShard)
T = TypeVar("T")


class DirectEventProcessor:
    """Runs events on the thread that adds them, one after the other; an event that another one adds comes after it."""

    def __init__(self) -> None:
        self._accumulator: EventAccumulator[Any, Any] = EventAccumulator()
        self._running = False
        self._held = 0

    def enqueue_last(self, event: CoordinatorEvent) -> None:
        self._accumulator.add_last(event)
        self.drain()

    def enqueue_first(self, event: CoordinatorEvent) -> None:
        self._accumulator.add_first(event)
        self.drain()

    def drain(self) -> None:
        """Runs what is in line, unless that is going on already, or held back."""
        if self._running or self._held:
            return
        self._running = True
        try:
            while (event := self._accumulator.poll()) is not None:
                run_event(event)
                self._accumulator.done(event.key)
        finally:
            self._running = False

    def hold(self) -> None:
        """Lets events pile up, as they do when a thread is busy elsewhere."""
        self._held += 1

    def release(self) -> None:
        self._held -= 1
        self.drain()

    def has_waiting(self, key: Hashable) -> bool:
        return self._accumulator.has_waiting(key)

    def __len__(self) -> int:
        return len(self._accumulator)

    def close(self) -> None:
        for event in self._accumulator.close():
            event.complete(NotCoordinatorError())


class InMemoryLog:
    """A partition's log: a list of batches as they would be on disk."""

    def __init__(self) -> None:
        self.batches: list[RecordBatch] = []
        self.end_offset = 0
        self.high_watermark = 0
        self.listeners: list[HighWatermarkCallback] = []


class InMemoryWriter:
    """Writes to logs in memory, which are committed at once unless a test wants to do that itself."""

    def __init__(self, max_batch_size: int = 1024 * 1024) -> None:
        self.logs: dict[TopicPartition, InMemoryLog] = defaultdict(InMemoryLog)
        self.commits_at_once = True
        self.fails_with: Exception | None = None
        self.size_limit = max_batch_size
        self.verifications: list[tuple[TopicPartition, str, int, int, int]] = []
        self.verification: Future[VerificationGuard] | None = None
        """What a test answers when a transaction is to be verified; without it, all are there."""
        self.guards: list[VerificationGuard] = []
        self.transaction_versions: list[int] = []

    def max_batch_size(self, partition: TopicPartition) -> int:
        return self.size_limit

    def append(
        self,
        partition: TopicPartition,
        batch: bytearray,
        guard: VerificationGuard = SENTINEL,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
    ) -> int:
        if self.fails_with is not None:
            raise self.fails_with
        log = self.logs[partition]
        written = RecordBatch(batch)
        written.set_base_offset(log.end_offset)
        log.batches.append(written)
        log.end_offset = written.next_offset
        self.guards.append(guard)
        self.transaction_versions.append(transaction_version)
        if self.commits_at_once:
            self.commit(partition)
        return log.end_offset

    def commit(self, partition: TopicPartition, offset: int | None = None) -> None:
        """All replicas have the log up to here."""
        log = self.logs[partition]
        log.high_watermark = log.end_offset if offset is None else offset
        for listener in list(log.listeners):
            listener(partition, log.high_watermark)

    def register_listener(self, partition: TopicPartition, on_high_watermark: HighWatermarkCallback) -> None:
        self.logs[partition].listeners.append(on_high_watermark)

    def deregister_listener(self, partition: TopicPartition, on_high_watermark: HighWatermarkCallback) -> None:
        if on_high_watermark in self.logs[partition].listeners:
            self.logs[partition].listeners.remove(on_high_watermark)

    def high_watermark(self, partition: TopicPartition) -> int:
        return self.logs[partition].high_watermark

    def maybe_start_transaction_verification(
        self,
        partition: TopicPartition,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        api_version: int,
    ) -> Future[VerificationGuard]:
        self.verifications.append((partition, transactional_id, producer_id, producer_epoch, api_version))
        if self.verification is not None:
            return self.verification
        answer: Future[VerificationGuard] = Future()
        answer.set_result(SENTINEL)
        return answer

    def records(self, partition: TopicPartition, serde: CoordinatorRecordSerde) -> list[CoordinatorRecord]:
        """Everything that was ever written to a partition, markers aside."""
        return [
            serde.deserialize(record.key or b"", record.value)
            for batch in self.logs[partition].batches
            if not batch.is_control_batch
            for record in read_records(batch)
        ]


class InMemoryLoader:
    """Plays logs of an `InMemoryWriter`, at once or when a test says so."""

    def __init__(self, writer: InMemoryWriter, serde: CoordinatorRecordSerde) -> None:
        self._writer = writer
        self._serde = serde
        self.fails_with: Exception | None = None
        self.holds = False
        self.held: list[tuple[TopicPartition, CoordinatorPlayback, Future[LoadSummary]]] = []
        self.loads = 0
        self.closed = False

    def load(self, partition: TopicPartition, playback: CoordinatorPlayback) -> Future[LoadSummary]:
        future: Future[LoadSummary] = Future()
        self.loads += 1
        if self.holds:
            self.held.append((partition, playback, future))
        else:
            self._finish(partition, playback, future)
        return future

    def release(self) -> None:
        """Finishes the loads that were held back."""
        held, self.held = self.held, []
        for partition, playback, future in held:
            self._finish(partition, playback, future)

    def _finish(self, partition: TopicPartition, playback: CoordinatorPlayback, future: Future[LoadSummary]) -> None:
        if self.fails_with is not None:
            future.set_exception(self.fails_with)
            return
        log, count = self._writer.logs[partition], 0
        for batch in log.batches:
            for record in read_records(batch):
                if batch.is_control_batch:
                    control_type = parse_control_type(record.key)
                    playback.replay_end_transaction_marker(batch.producer_id, batch.producer_epoch, control_type)
                    continue
                count += 1
                decoded = self._serde.deserialize(record.key or b"", record.value)
                producer_id = batch.producer_id if batch.is_transactional else -1
                playback.replay(record.offset, producer_id, batch.producer_epoch, decoded)
            if batch.next_offset >= log.high_watermark:
                playback.update_last_written_offset(batch.next_offset)
        playback.update_last_written_offset(log.end_offset)
        playback.update_last_committed_offset(log.high_watermark)
        future.set_result(LoadSummary(0, 1, count, 0))

    def close(self) -> None:
        self.closed = True


class InlineExecutor(Executor):
    """Runs tasks on the spot, or when a test says so."""

    def __init__(self) -> None:
        self.holds = False
        self.held: list[Callable[[], None]] = []

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - it is the task's
                future.set_exception(error)

        if self.holds:
            self.held.append(run)
        else:
            run()
        return future

    def release(self) -> None:
        held, self.held = self.held, []
        for run in held:
            run()


class RuntimeBench(Generic[S]):
    """A runtime on a bench."""

    def __init__(
        self,
        shard_builder: CoordinatorShardBuilder[S],
        serde: CoordinatorRecordSerde,
        *,
        linger_ms: int = LINGER_ADAPTIVE,
        clock: MockClock | None = None,
        writer: InMemoryWriter | None = None,
    ) -> None:
        self.clock = MockClock() if clock is None else clock
        self.timer = MockTimer(self.clock)
        self.writer = InMemoryWriter() if writer is None else writer
        """Given from another bench, it is the disk that a restarted broker finds."""
        self.serde = serde
        self.loader = InMemoryLoader(self.writer, serde)
        self.processor = DirectEventProcessor()
        self.pool = InlineExecutor()
        self.runtime: CoordinatorRuntime[S] = CoordinatorRuntime(
            RuntimeParts(self.processor, self.loader, self.writer, serde, self.timer, self.pool, self.clock),
            shard_builder,
            name="test-coordinator",
            append_linger_ms=linger_ms,
        )

    def load(self, partition: TopicPartition, epoch: int = 0) -> None:
        self.runtime.schedule_load_operation(partition, epoch).result(0)

    def advance(self, milliseconds: int) -> None:
        """Moves time, and runs what falls due."""
        self.timer.advance_clock(milliseconds)

    def records(self, partition: TopicPartition) -> list[CoordinatorRecord]:
        return self.writer.records(partition, self.serde)


def not_leader() -> NotLeaderOrFollowerError:
    return NotLeaderOrFollowerError("another broker leads")
