"""Apache Kafka's files in our hands, and ours in Kafka's."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from barnabas.common.clock import SYSTEM_CLOCK
from barnabas.common.identifiers import Uuid, uuid_from_string
from barnabas.common.scheduler import MockScheduler
from barnabas.controller.bootstrap import BootstrapMetadata
from barnabas.log.dirs.meta_properties import MetaProperties
from barnabas.metadata.event_executor import SteppedExecutor
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.loader import MetadataLoader
from barnabas.metadata.metadata_version import MetadataVersion
from barnabas.metadata.raft_listener import MetadataRaftListener
from barnabas.metadata.snapshot_generator import SnapshotEmitter
from barnabas.protocol.internal.metadata import PartitionRecord, TopicRecord
from barnabas.raft.bootstrap_file import (
    METADATA_LOG_DIR_NAME,
    read_bootstrap_file,
    write_bootstrap_file,
    write_initial_voters,
)
from barnabas.raft.client import ApiMessageAndVersion
from barnabas.raft.config import RaftConfig, VoterAddress
from barnabas.raft.kraft_client import KRaftClient
from barnabas.raft.kraft_log import KafkaMetadataLog
from barnabas.raft.voter_set import ReplicaKey, VoterEndpoint, VoterNode, VoterSet
from oracles.java import OracleUnavailableError
from oracles.kafka_server import KafkaServer, dump_log, ensure_available
from unit.raft.raft_box import DIRECTORY, ENDPOINTS, NODE, RaftBox, append, append_records, snapshot, topic_record

pytestmark = pytest.mark.java

PAYLOAD = re.compile(r"payload: (\{.*\})$", re.MULTILINE)
CONTROL = re.compile(
    r"headerKeys: \[\] (LeaderChange|KRaftVersion|KRaftVoters|SnapshotHeader|SnapshotFooter):? (\{.*\})$", re.MULTILINE
)


@pytest.fixture(autouse=True, scope="module")
def _server_jars() -> None:
    try:
        ensure_available()
    except OracleUnavailableError as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(f"Kafka's server is not available: {reason}")
        pytest.skip(f"Kafka's server is not available: {reason}")


def directory_id(server: KafkaServer) -> Uuid:
    properties = MetaProperties.read(server.data)
    assert properties is not None
    assert properties.directory_id is not None
    return properties.directory_id


def topic_id(record: ApiMessageAndVersion) -> Uuid:
    assert isinstance(record.message, TopicRecord)
    return record.message.topic_id


def open_client(server: KafkaServer) -> KRaftClient:
    """Ours over the directory that Kafka has left."""
    endpoints = (VoterEndpoint("CONTROLLER", "127.0.0.1", server.controller_port),)
    static = (VoterAddress(NODE, "127.0.0.1", server.controller_port),) if server.static_voters else ()
    config = RaftConfig(voters=static, append_linger_ms=0)
    log = KafkaMetadataLog.open(server.data, config, SYSTEM_CLOCK, MockScheduler())
    client = KRaftClient(NODE, directory_id(server), log, config, local_endpoints=endpoints)
    client.initialize()
    client.poll_once()
    return client


def load(client: KRaftClient) -> MetadataImage:
    executor = SteppedExecutor()
    faults: list[str] = []

    def fault(what: str, error: BaseException) -> None:
        faults.append(f"{what} {error}")

    loader = MetadataLoader(executor, lambda: client.high_watermark, fault, on_load_fault=fault)
    client.register(MetadataRaftListener(loader))
    client.poll_once()
    while executor.run_all():
        client.poll_once()
    assert faults == []
    assert client.high_watermark is not None
    assert loader.image.offset == client.high_watermark - 1
    return loader.image


@pytest.mark.parametrize("static_voters", [False, True])
def test_a_directory_goes_from_kafka_to_us_and_back(tmp_path: Path, static_voters: bool) -> None:
    server = KafkaServer(tmp_path, static_voters=static_voters)
    server.format()
    with server:
        server.topics("--create", "--topic", "orders", "--partitions", "3")
    path = server.data / METADATA_LOG_DIR_NAME / "00000000000000000000.log"
    written = path.read_bytes()

    client = open_client(server)
    assert client.kraft_version == (0 if static_voters else 1)
    assert client.leader_and_epoch.epoch == 2
    image = load(client)
    assert set(image.topics.by_name) == {"orders"}
    assert len(image.topics.by_name["orders"].partitions) == 3
    assert image.features.metadata_version == MetadataVersion.IBP_4_3_IV0
    emitter = SnapshotEmitter(client)
    assert emitter.maybe_emit(image)
    partition = PartitionRecord(
        partition_id=0,
        topic_id=topic_id(topic_record("ours")),
        replicas=[NODE],
        isr=[NODE],
        leader=NODE,
        directories=[directory_id(server)],
    )
    append_records(client, [topic_record("ours"), ApiMessageAndVersion(partition, 2)])
    client.close()

    # Kafka's dump reads the log that we have gone on with, and the snapshot of what Kafka had written.
    snapshot_name = f"{image.provenance.snapshot_name}.checkpoint"
    assert path.read_bytes().startswith(written)
    dump = dump_log(path, path.with_name(snapshot_name))
    assert "isvalid: false" not in dump
    names = [
        record["data"]["name"] for record in map(json.loads, PAYLOAD.findall(dump)) if record["type"] == "TOPIC_RECORD"
    ]
    assert names == ["orders", "ours", "orders"]

    with server:
        described = server.topics("--describe")
    assert [line.split()[1] for line in described.splitlines() if "PartitionCount" in line] == ["orders", "ours"]
    assert described.count("Leader: 1") == 4
    state = json.loads((server.data / METADATA_LOG_DIR_NAME / "quorum-state").read_text())
    assert (state["leaderId"], state["leaderEpoch"], state["data_version"]) == (NODE, 3, client.kraft_version)

    client = open_client(server)
    assert client.leader_and_epoch.epoch == 4
    assert set(load(client).topics.by_name) == {"orders", "ours"}
    client.close()


def test_what_we_format_kafka_starts_with(tmp_path: Path) -> None:
    server = KafkaServer(tmp_path)
    server.format()
    theirs = read_bootstrap_file(server.data / "bootstrap.checkpoint")
    served = BootstrapMetadata.for_version(
        MetadataVersion.IBP_4_3_IV0, levels={"share.version": 1, "streams.version": 1}
    )
    assert tuple(theirs) == served.records, "but for what is not served here, and therefore off by default"
    voter = ReplicaKey(NODE, directory_id(server))
    # Everything but meta.properties is made anew by us.
    checkpoint = server.data / METADATA_LOG_DIR_NAME / "00000000000000000000-0000000000.checkpoint"
    for path in (checkpoint, server.data / "bootstrap.checkpoint"):
        path.unlink()
    bootstrap = BootstrapMetadata.for_version(MetadataVersion.IBP_4_3_IV0, levels={"streams.version": 0})
    write_bootstrap_file(server.data / "bootstrap.checkpoint", bootstrap.records)
    endpoints = (VoterEndpoint("CONTROLLER", "127.0.0.1", server.controller_port),)
    write_initial_voters(server.data, VoterSet.of([VoterNode(voter, endpoints)]))
    dump = dump_log(checkpoint, server.data / "bootstrap.checkpoint")
    assert "isvalid: false" not in dump
    assert [name for name, _ in CONTROL.findall(dump)] == [
        "SnapshotHeader", "KRaftVersion", "KRaftVoters", "SnapshotFooter", "SnapshotHeader", "SnapshotFooter",
    ]  # fmt: skip
    with server:
        server.topics("--create", "--topic", "a")
        assert server.topics("--list").split() == ["a"]
    client = open_client(server)
    assert client.kraft_version == 1
    assert client.voters == VoterSet.of([VoterNode(voter, endpoints)])
    image = load(client)
    assert image.features.level("streams.version") == 0
    assert image.features.level("transaction.version") == 2
    client.close()


def test_kafkas_dump_reads_all_that_we_write(tmp_path: Path) -> None:
    box = RaftBox(tmp_path)
    client = box.client(box.config(log_segment_bytes=2000))
    for number in range(40):
        append(client, f"topic-{number}", f"other-{number}")
    snapshot(client, 21, "a", "b")
    client.upgrade_kraft_version(1, 1, False)
    client.poll_once()
    assert client.high_watermark is not None
    snapshot(client, client.high_watermark, "a", "b", "c")
    client.resign(1)
    client.poll_once()
    client.close()
    files = [
        path for path in sorted(box.log_dir.iterdir()) if path.suffix in {".log", ".index", ".timeindex", ".checkpoint"}
    ]
    assert len([path for path in files if path.suffix == ".log"]) > 2
    dump = dump_log(*files)
    assert "isvalid: false" not in dump
    for complaint in ("Mismatches", "Found timestamp mismatch", "Non-consecutive offsets", "out of order", "rror"):
        assert complaint not in dump
    records = [json.loads(payload) for payload in PAYLOAD.findall(dump)]
    in_log = [record["data"]["name"] for record in records]
    assert [name for name in in_log if "-" in name] == [
        f"{kind}-{number}" for number in range(40) for kind in ("topic", "other")
    ]
    control: list[tuple[str, Any]] = [(name, json.loads(data)) for name, data in CONTROL.findall(dump)]
    assert [name for name, _ in control].count("LeaderChange") == 2
    voters = next(data for name, data in control if name == "KRaftVoters")
    (voter,) = voters["voters"]
    assert uuid_from_string(voter["voterDirectoryId"]) == DIRECTORY
    assert [(one["name"], one["host"], one["port"]) for one in voter["endpoints"]] == list(ENDPOINTS)
