"""What tests of replicas share: a broker without network and handlers, whose time and metadata a test moves itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barnabas.common.clock import MockClock
from barnabas.common.errors import ApiError
from barnabas.common.identifiers import Uuid
from barnabas.common.scheduler import MockScheduler
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.dirs.meta_properties import MetaProperties
from barnabas.log.manager.log_manager import LogManager
from barnabas.log.manager.log_manager_config import LogManagerConfig
from barnabas.log.segment.file_handle import Buffer
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.image import EMPTY_IMAGE
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.protocol.internal.framing import MetadataRecord
from barnabas.protocol.internal.metadata import PartitionChangeRecord, RemoveTopicRecord
from barnabas.protocol.messages.fetch import FetchPartition
from barnabas.replica.config import ReplicaManagerConfig
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.replica.follower.replica_fetchers import NoReplicaFetchers
from barnabas.replica.follower.replica_quota import UNBOUNDED_QUOTA, ReplicaQuota
from barnabas.replica.partition.alter_partition import IsrMember, LeaderAndIsr
from barnabas.replica.partition.partition import Partition
from barnabas.replica.replica_manager import ReplicaManager, ReplicaPlugins
from barnabas.replica.results import (
    CONSUMER_REPLICA_ID,
    ClientMetadata,
    DeleteRecordsResult,
    FetchParams,
    FetchPartitionData,
    ProduceResult,
)
from barnabas.server.timer.mock_timer import MockTimer
from log_fixtures import NOW, SMALL_INDEX, client_batch
from unit.metadata.samples import broker, delta_of, metadata_version, partition, provenance, topic, uid

BROKER_ID = 1
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
TOPIC_ID = uid(7)
T0 = TopicPartition("topic", 0)
T0_ID = TopicIdPartition(TOPIC_ID, "topic", 0)


class FakeAlterPartitionManager:
    """Keeps what leaders propose until a test answers."""

    def __init__(self) -> None:
        self.submitted: list[tuple[TopicIdPartition, LeaderAndIsr, Future[LeaderAndIsr]]] = []

    def submit(self, partition: TopicIdPartition, leader_and_isr: LeaderAndIsr) -> Future[LeaderAndIsr]:
        future: Future[LeaderAndIsr] = Future()
        self.submitted.append((partition, leader_and_isr, future))
        return future

    @property
    def last(self) -> LeaderAndIsr:
        return self.submitted[-1][1]

    def accept(self) -> None:
        """The controller does as it was asked."""
        _, proposal, future = self.submitted[-1]
        future.set_result(proposal._replace(partition_epoch=proposal.partition_epoch + 1))

    def refuse(self, error: ApiError) -> None:
        self.submitted[-1][2].set_exception(error)


class FakeDirectoryEvents:
    """Keeps what the controller would be told."""

    def __init__(self, *, accepts: bool = True) -> None:
        self.accepts = accepts
        self.assignments: list[tuple[TopicIdPartition, Uuid, str]] = []
        self.callbacks: list[Any] = []
        self.failures: list[Uuid] = []

    def handle_assignment(self, partition: TopicIdPartition, directory_id: Uuid, reason: str, callback: Any) -> None:
        self.assignments.append((partition, directory_id, reason))
        if self.accepts:
            callback()
        else:
            self.callbacks.append(callback)

    def handle_failure(self, directory_id: Uuid) -> None:
        self.failures.append(directory_id)


class HeldBackQuota:
    """A quota that is used up, for all partitions."""

    def __init__(self) -> None:
        self.is_quota_exceeded = True

    def record(self, value: int) -> None: ...

    def is_throttled(self, partition: TopicPartition) -> bool:
        return True


@dataclass
class Answers:
    """What callbacks were called with."""

    produced: list[dict[TopicIdPartition, ProduceResult]] = field(default_factory=list)
    fetched: list[list[tuple[TopicIdPartition, FetchPartitionData]]] = field(default_factory=list)
    deleted: list[dict[TopicPartition, DeleteRecordsResult]] = field(default_factory=list)


@dataclass
class ReplicaBox:
    """A broker as far as its replicas go. Each purgatory has a timer that moves with :meth:`pass_time`."""

    paths: list[Path]
    config: dict[str, Any] = field(default_factory=dict)
    overrides: dict[str, dict[str, Any]] = field(default_factory=dict)
    clock: MockClock = field(default_factory=lambda: MockClock(NOW))
    log_settings: dict[str, Any] = field(default_factory=dict)
    accepts_assignments: bool = True

    def __post_init__(self) -> None:
        for number, path in enumerate(self.paths):
            path.mkdir(parents=True)
            MetaProperties(cluster_id=CLUSTER_ID, node_id=BROKER_ID, directory_id=self.directory_id(number)).write(path)
        self.exits: list[int] = []
        self.start()

    @staticmethod
    def directory_id(number: int) -> Uuid:
        return uid(5000 + number)

    def start(self) -> None:
        self.scheduler = MockScheduler(self.clock)
        self.cache = MetadataCache()
        self.image = EMPTY_IMAGE
        self.registry = MetricsRegistry(self.clock)
        self.alter_partition = FakeAlterPartitionManager()
        self.directory_events = FakeDirectoryEvents(accepts=self.accepts_assignments)
        self.fetchers = NoReplicaFetchers()
        self.timers: list[MockTimer] = []
        self.logs = LogManager(
            self.paths,
            LogManagerConfig(
                **{
                    "topic_defaults": {"segment.index.bytes": SMALL_INDEX},
                    "recovery_threads_per_data_dir": 1,
                    **self.log_settings,
                }
            ),
            self.clock,
            self.scheduler,
            topic_overrides=lambda name: self.overrides.get(name, {}),
        )
        self.logs.startup()
        self.manager = ReplicaManager(
            ReplicaManagerConfig(broker_id=BROKER_ID, **self.config),
            self.logs,
            self.cache,
            self.alter_partition,
            self.clock,
            self.scheduler,
            self.registry,
            ReplicaPlugins(self.directory_events, self.fetchers, lambda: 101, make_timer=self._make_timer),
            exit_procedure=self.exits.append,
        )
        self.answers = Answers()
        self.learn([metadata_version(), *(broker(number) for number in (1, 2, 3))])

    def _make_timer(self, _name: str) -> MockTimer:
        timer = MockTimer(MockClock(0))
        self.timers.append(timer)
        return timer

    def stop(self) -> None:
        self.manager.shutdown()
        self.logs.shutdown()

    def kill(self) -> None:
        """What is in memory is gone; the operating system takes the locks back."""
        self.manager.shutdown(checkpoint_hw=False)
        for log in self.logs.all_logs():
            log.close_handlers()
        self.logs.log_dirs.close()

    def pass_time(self, milliseconds: int) -> None:
        """For requests that wait, and for scheduled tasks."""
        self.scheduler.advance(milliseconds)
        for timer in self.timers:
            timer.advance_clock(milliseconds)

    # Metadata

    def learn(self, records: Iterable[MetadataRecord]) -> None:
        """The metadata log has these records now."""
        delta = delta_of(records, self.image)
        self.image = delta.apply(provenance(self.image.offset + 1))
        self.cache.set_image(self.image)
        if delta.topics is not None:
            self.manager.apply_delta(delta.topics, self.image)

    def create_topic(
        self,
        name: str = "topic",
        topic_id: Uuid = TOPIC_ID,
        *,
        partitions: int = 1,
        replicas: Sequence[int] = (BROKER_ID,),
        isr: Sequence[int] | None = None,
        leader: int | None = None,
        leader_epoch: int = 0,
        directories: Sequence[Uuid] = (),
    ) -> Partition:
        self.learn(
            [
                topic(name, topic_id, 0)[0],
                *(
                    partition(
                        topic_id,
                        number,
                        replicas=replicas,
                        isr=isr,
                        leader=leader,
                        leader_epoch=leader_epoch,
                        directories=directories,
                    )
                    for number in range(partitions)
                ),
            ]
        )
        self.scheduler.advance(0)  # the topic id gets to the disk, so that appends need not see to it
        return self.manager.get_partition_or_exception((name, 0))

    def change(self, topic_id: Uuid = TOPIC_ID, number: int = 0, **changes: Any) -> None:
        self.learn([PartitionChangeRecord(topic_id=topic_id, partition_id=number, **changes)])

    def delete_topic(self, topic_id: Uuid = TOPIC_ID) -> None:
        self.learn([RemoveTopicRecord(topic_id=topic_id)])

    # Requests

    def produce(
        self,
        entries: Mapping[TopicIdPartition, Buffer] | None = None,
        *,
        acks: int = -1,
        timeout_ms: int = 1000,
        drain: bool = True,
        **options: Any,
    ) -> None:
        if entries is None:
            entries = {T0_ID: client_batch()}
        self.manager.append_records(timeout_ms, acks, entries, self.answers.produced.append, **options)
        if drain:
            self.manager.action_queue.try_complete_actions()

    def fetch(
        self,
        offsets: Mapping[TopicIdPartition, int] | None = None,
        *,
        params: FetchParams | None = None,
        quota: ReplicaQuota = UNBOUNDED_QUOTA,
        **request: Any,
    ) -> None:
        offsets = {T0_ID: 0} if offsets is None else offsets
        infos = [
            (
                partition,
                FetchPartition(
                    partition=partition[2], fetch_offset=offset, **{"partition_max_bytes": 1 << 20, **request}
                ),
            )
            for partition, offset in offsets.items()
        ]
        self.manager.fetch_messages(params or consumer(), infos, quota, self.answers.fetched.append)

    def follower_fetch(self, broker_id: int, offset: int, *, log_start_offset: int = 0, **options: Any) -> None:
        """A follower asks for more, and so tells how far it is."""
        params = follower(broker_id, **{"max_wait_ms": 0, **options})
        self.fetch({T0_ID: offset}, params=params, log_start_offset=log_start_offset)

    def only_produced(self) -> ProduceResult:
        (answer,) = self.answers.produced
        (result,) = answer.values()
        return result

    def only_fetched(self) -> FetchPartitionData:
        (answer,) = self.answers.fetched
        ((_, result),) = answer
        return result


def consumer(
    *,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    rack: str | None = None,
) -> FetchParams:
    client = None if rack is None else ClientMetadata(rack, "client", "127.0.0.1", "User:ANONYMOUS", "PLAINTEXT")
    isolation = FetchParams.isolation_of(CONSUMER_REPLICA_ID, isolation_level)
    return FetchParams(CONSUMER_REPLICA_ID, -1, max_wait_ms, min_bytes, max_bytes, isolation, client)


def follower(
    broker_id: int, *, max_wait_ms: int = 500, min_bytes: int = 1, max_bytes: int = 1 << 20, epoch: int | None = None
) -> FetchParams:
    replica_epoch = 100 + broker_id if epoch is None else epoch
    isolation = FetchParams.isolation_of(broker_id, 0)
    return FetchParams(broker_id, replica_epoch, max_wait_ms, min_bytes, max_bytes, isolation)


__all__ = [
    "BROKER_ID",
    "T0",
    "T0_ID",
    "TOPIC_ID",
    "Answers",
    "FakeAlterPartitionManager",
    "FakeDirectoryEvents",
    "HeldBackQuota",
    "IsrMember",
    "ReplicaBox",
    "consumer",
    "follower",
]
