"""What tests of the metadata quorum share: a node that is started, killed and started again in one directory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barnabas.common.clock import MockClock
from barnabas.common.identifiers import Uuid
from barnabas.common.scheduler import MockScheduler
from barnabas.protocol.internal.metadata import NoOpRecord, TopicRecord
from barnabas.raft.bootstrap_file import METADATA_LOG_DIR_NAME
from barnabas.raft.client import (
    ApiMessageAndVersion,
    Batch,
    BatchReader,
    LeaderAndEpoch,
    OffsetAndEpoch,
    SnapshotReader,
)
from barnabas.raft.config import RaftConfig, VoterAddress
from barnabas.raft.kraft_client import KRaftClient
from barnabas.raft.kraft_log import KafkaMetadataLog
from barnabas.raft.voter_set import VoterEndpoint

NODE = 1
NOW = 1_700_000_000_000
DIRECTORY = Uuid(bytes(range(16)))
ENDPOINTS = (VoterEndpoint("CONTROLLER", "127.0.0.1", 9093),)
VOTERS = (VoterAddress(NODE, "127.0.0.1", 9093),)


def topic_record(name: str) -> ApiMessageAndVersion:
    return ApiMessageAndVersion(TopicRecord(name=name, topic_id=Uuid(name.encode().ljust(16, b"-")[:16])), 0)


def no_op() -> ApiMessageAndVersion:
    return ApiMessageAndVersion(NoOpRecord(), 0)


def names(records: Iterable[ApiMessageAndVersion]) -> list[str]:
    return [message.name for message, _ in records if isinstance(message, TopicRecord)]


@dataclass
class Listener:
    """Writes down what it hears. Unless it is `slow`, it reads and closes everything at once."""

    slow: bool = False
    batches: list[Batch[ApiMessageAndVersion]] = field(default_factory=list)
    snapshots: list[OffsetAndEpoch] = field(default_factory=list)
    leaders: list[LeaderAndEpoch] = field(default_factory=list)
    readers: list[BatchReader[ApiMessageAndVersion]] = field(default_factory=list)
    records: list[ApiMessageAndVersion] = field(default_factory=list)
    shut_down: bool = False

    __hash__ = object.__hash__

    def handle_commit(self, reader: BatchReader[ApiMessageAndVersion]) -> None:
        self.readers.append(reader)
        if not self.slow:
            self.finish(reader)

    def finish(self, reader: BatchReader[ApiMessageAndVersion] | None = None) -> None:
        """Reads the oldest reader that is left, and closes it."""
        reader = self.readers[0] if reader is None else reader
        self.readers.remove(reader)
        for batch in reader:
            self.batches.append(batch)
            self.records.extend(batch.records)
        reader.close()

    def handle_load_snapshot(self, reader: SnapshotReader[ApiMessageAndVersion]) -> None:
        self.snapshots.append(reader.snapshot_id)
        self.records = [record for batch in reader for record in batch.records]
        reader.close()

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.leaders.append(leader)

    def begin_shutdown(self) -> None:
        self.shut_down = True

    @property
    def names(self) -> list[str]:
        return names(self.records)


@dataclass
class RaftBox:
    """A directory, and the node that has its metadata log there."""

    directory: Path
    clock: MockClock = field(default_factory=lambda: MockClock(NOW))
    scheduler: MockScheduler = field(init=False)

    def __post_init__(self) -> None:
        self.scheduler = MockScheduler(self.clock)

    @property
    def log_dir(self) -> Path:
        return self.directory / METADATA_LOG_DIR_NAME

    def config(self, **settings: Any) -> RaftConfig:
        return RaftConfig(**{"voters": VOTERS, "append_linger_ms": 0, **settings})

    def open_log(self, config: RaftConfig | None = None) -> KafkaMetadataLog:
        return KafkaMetadataLog.open(self.directory, config or self.config(), self.clock, self.scheduler)

    def client(self, config: RaftConfig | None = None, *, start: bool = True, **options: Any) -> KRaftClient:
        """A new process of the node; with `start` it is elected, and its first record is committed."""
        self.scheduler = MockScheduler(self.clock)
        config = config or self.config()
        options.setdefault("local_endpoints", ENDPOINTS)
        client = KRaftClient(NODE, DIRECTORY, self.open_log(config), config, clock=self.clock, **options)
        if start:
            client.initialize()
            client.poll_once()
        return client

    def kill(self, client: KRaftClient) -> None:
        """The process ends without doing anything more."""
        client.log.close_handlers()

    def files(self) -> list[str]:
        return sorted(path.name for path in self.log_dir.iterdir())


def append(client: KRaftClient, *topics: str, poll: bool = True) -> int:
    """Appends a record for each topic in one batch."""
    return append_records(client, [topic_record(topic) for topic in topics], poll=poll)


def append_records(client: KRaftClient, records: Sequence[ApiMessageAndVersion], *, poll: bool = True) -> int:
    offset = client.prepare_append(client.leader_and_epoch.epoch, records)
    client.schedule_prepared_append()
    if poll:
        client.poll_once()
    return offset


def snapshot(client: KRaftClient, offset: int, *topics: str, timestamp: int = NOW) -> OffsetAndEpoch:
    """Makes a snapshot with these topics."""
    snapshot_id = OffsetAndEpoch(offset, client.leader_and_epoch.epoch)
    writer = client.create_snapshot(snapshot_id, timestamp)
    assert writer is not None
    writer.append([topic_record(topic) for topic in topics])
    writer.freeze()
    return snapshot_id
