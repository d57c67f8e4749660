"""What tests of transactions share: a coordinator on a log in memory, and partitions that take markers when told to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, cast

from barnabas.common.clock import MockClock
from barnabas.common.errors import CoordinatorLoadInProgressError, Errors
from barnabas.common.scheduler import MockScheduler
from barnabas.common.topic_names import TRANSACTION_STATE_TOPIC
from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.runtime.coordinator_shard import ShardContext
from barnabas.coordinator.transaction.pending_complete_txn import TxnMarker
from barnabas.coordinator.transaction.transaction_config import TransactionConfig
from barnabas.coordinator.transaction.transaction_coordinator import CoordinatorEpochs, TransactionCoordinator
from barnabas.coordinator.transaction.transaction_coordinator_shard import (
    ProducerResult,
    TransactionCoordinatorShard,
)
from barnabas.coordinator.transaction.transaction_marker_channel_manager import TransactionMarkerChannelManager
from barnabas.coordinator.transaction.transaction_metadata import (
    NO_PRODUCER,
    ProducerIdAndEpoch,
    TransactionMetadata,
)
from barnabas.coordinator.transaction.transaction_records import SERDE, transaction_record
from barnabas.coordinator.transaction.transaction_version import FEATURE_NAME, TransactionVersion
from barnabas.coordinator.transaction.txn_marker_writer import MarkerErrors
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.endpoint import NO_NODE, Node
from barnabas.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.protocol.internal.metadata import FeatureLevelRecord
from barnabas.records.builder import RecordBatchBuilder
from coordinator_fixtures import InMemoryWriter, RuntimeBench

NODE_ID = 1
ID = "tx"
TIMEOUT_MS = 60_000
A, B, C = (TopicPartition("orders", number) for number in range(3))


class FakeCache:
    """Who leads what, as far as transactions want to know."""

    def __init__(self) -> None:
        self.leaders: dict[TopicPartition, Node | None] = {}
        self.default: Node | None = Node(NODE_ID, "here", 9092)
        self.deleted: set[TopicPartition] = set()
        self.partitions: dict[str, int | None] = {TRANSACTION_STATE_TOPIC: 1}

    def partition(self, topic: str, partition: int) -> object | None:
        return None if TopicPartition(topic, partition) in self.deleted else object()

    def contains(self, topic: str, partition: int | None = None) -> bool:
        return partition is None or TopicPartition(topic, partition) not in self.deleted

    def partition_leader_endpoint(self, topic: str, partition: int, _listener: str) -> Node | None:
        return self.leaders.get(TopicPartition(topic, partition), self.default)

    def num_partitions(self, topic: str) -> int | None:
        return self.partitions.get(topic)


NOWHERE = NO_NODE


class FakeMarkerWriter:
    """Takes markers for partitions that are led here: at once, or when a test says so."""

    def __init__(self) -> None:
        self.written: list[TxnMarker] = []
        self.errors: dict[TopicPartition, Errors] = {}
        self.holds = False
        self.held: list[Callable[[], None]] = []

    def write(self, markers: Sequence[TxnMarker], callback: Callable[[MarkerErrors], object]) -> None:
        def answer() -> None:
            errors: MarkerErrors = {}
            for marker in markers:
                self.written.append(marker)
                errors.setdefault(marker.producer_id, {}).update(
                    {one: self.errors.get(one, Errors.NONE) for one in marker.partitions}
                )
            callback(errors)

        if self.holds:
            self.held.append(answer)
        else:
            answer()

    def release(self) -> None:
        self.holds = False
        held, self.held = self.held, []
        for answer in held:
            answer()


class FakeProducerIds:
    """Gives out the numbers from 1000 on, unless there are none."""

    def __init__(self) -> None:
        self.next_id = 1000
        self.empty = False

    def next_producer_id(self, _timeout_ms: int) -> Future[int]:
        future: Future[int] = Future()
        if self.empty:
            future.set_exception(CoordinatorLoadInProgressError("no producer ids"))
        else:
            future.set_result(self.next_id)
            self.next_id += 1
        return future


def written(metadata: TransactionMetadata) -> InMemoryWriter:
    """A log that has a record of an id in it."""
    writer = InMemoryWriter()
    bench = TransactionBench(writer=writer)
    builder = RecordBatchBuilder()
    key, value = bench.runtime.serde.serialize(transaction_record(metadata, TransactionVersion.TV_2))
    builder.append(0, key, value)
    writer.append(bench.partition, builder.close())
    for log in writer.logs.values():
        log.listeners.clear()
    return writer


def image_of(version: TransactionVersion) -> tuple[MetadataImage, MetadataDelta]:
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(FeatureLevelRecord(name=FEATURE_NAME, feature_level=version))
    return delta.apply(EMPTY_IMAGE.provenance), delta


class TransactionBench:
    """A transaction coordinator without threads. Given the writer of another, it is the one that takes over from it."""

    def __init__(
        self,
        version: TransactionVersion = TransactionVersion.TV_2,
        *,
        config: TransactionConfig | None = None,
        writer: InMemoryWriter | None = None,
        clock: MockClock | None = None,
        producer_ids: FakeProducerIds | None = None,
        epoch: int = 5,
        load: bool = True,
    ) -> None:
        self.config = config or TransactionConfig()
        self.cache = FakeCache()
        self.markers = FakeMarkerWriter()
        self.producer_ids = producer_ids or FakeProducerIds()
        epochs = CoordinatorEpochs()
        clock = clock or MockClock()
        self.scheduler = MockScheduler(clock)
        self.channels = TransactionMarkerChannelManager(
            NODE_ID,
            "PLAINTEXT",
            cast("Any", self.cache),
            cast("Any", self.markers),
            self.scheduler,
            MetricsRegistry(clock),
            retry_backoff_ms=self.config.retry_backoff_ms,
        )

        def make_shard(context: ShardContext) -> TransactionCoordinatorShard:
            partition = context.partition.partition
            return TransactionCoordinatorShard(context, self.channels, lambda: epochs.get(partition))

        self.runtime: RuntimeBench[TransactionCoordinatorShard] = RuntimeBench(
            make_shard, SERDE, clock=clock, writer=writer
        )
        self.writer = self.runtime.writer
        self.clock = self.runtime.clock
        self.partition = TopicPartition(TRANSACTION_STATE_TOPIC, 0)
        self.coordinator = TransactionCoordinator(
            self.config,
            self.runtime.runtime,
            self.channels,
            cast("Any", self.producer_ids),
            lambda: self.cache.num_partitions(TRANSACTION_STATE_TOPIC),
            self.scheduler,
            self.clock,
            epochs,
        )
        self.set_version(version)
        self.coordinator.startup()
        if load:
            self.elect(epoch)

    def elect(self, epoch: int) -> None:
        self.coordinator.on_election(0, epoch)
        self.runtime.advance(0)

    def set_version(self, version: TransactionVersion) -> None:
        self.version = version
        self.coordinator.on_new_metadata_image(*image_of(version))

    def advance(self, milliseconds: int) -> None:
        """Time goes by for the scheduler; the coordinator's timers run as well."""
        self.scheduler.advance(milliseconds)
        self.runtime.advance(0)

    def after_crash(self, version: TransactionVersion | None = None, *, load: bool = True) -> TransactionBench:
        """The coordinator that comes after this one was killed: it has the log, and nothing else."""
        for log in self.writer.logs.values():
            log.listeners.clear()
            log.high_watermark = log.end_offset
        return TransactionBench(
            self.version if version is None else version,
            config=self.config,
            writer=self.writer,
            clock=self.clock,
            producer_ids=self.producer_ids,
            epoch=6,
            load=load,
        )

    # -- requests

    def init(
        self,
        transactional_id: str = ID,
        expected: ProducerIdAndEpoch | None = None,
        timeout_ms: int = TIMEOUT_MS,
        *,
        keep: bool = False,
        two_phase: bool = False,
    ) -> ProducerResult:
        return self.coordinator.init_producer_id(
            transactional_id, timeout_ms, expected, enable_two_phase_commit=two_phase, keep_prepared_txn=keep
        ).result(0)

    def producer(self, transactional_id: str = ID) -> ProducerIdAndEpoch:
        """A producer that has begun."""
        result = self.init(transactional_id)
        assert result.error is Errors.NONE, result
        return result.producer

    def add(
        self,
        producer: ProducerIdAndEpoch,
        *partitions: TopicPartition,
        version: TransactionVersion | None = None,
        transactional_id: str = ID,
    ) -> Errors:
        return self.coordinator.add_partitions_to_transaction(
            transactional_id, producer, partitions, self.version if version is None else version
        ).result(0)

    def verify(self, producer: ProducerIdAndEpoch, *partitions: TopicPartition) -> list[Errors]:
        found = self.coordinator.verify_partitions_in_transaction(ID, producer, partitions).result(0)
        return [found[one] for one in partitions]

    def end(
        self,
        producer: ProducerIdAndEpoch,
        *,
        commit: bool = True,
        version: TransactionVersion | None = None,
        transactional_id: str = ID,
    ) -> ProducerResult:
        return self.coordinator.end_transaction(
            transactional_id, producer, commit=commit, client_version=self.version if version is None else version
        ).result(0)

    # -- what is seen

    def metadata(self, transactional_id: str = ID) -> TransactionMetadata:
        found = self.coordinator.describe_transaction(transactional_id).result(0)
        assert isinstance(found, TransactionMetadata), found
        return found

    def states(self) -> list[int]:
        """All states that were ever written, in order."""
        return [
            -1 if record.value is None else cast("Any", record.value).transaction_status
            for record in self.runtime.records(self.partition)
        ]


def given(producer_id: int, epoch: int, ongoing: ProducerIdAndEpoch | tuple[int, int] = NO_PRODUCER) -> ProducerResult:
    """The answer that gives a producer this identity."""
    return ProducerResult(Errors.NONE, ProducerIdAndEpoch(producer_id, epoch), ProducerIdAndEpoch(*ongoing))


def partitions_of(markers: Iterable[TxnMarker]) -> list[TopicPartition]:
    return sorted(partition for marker in markers for partition in marker.partitions)
