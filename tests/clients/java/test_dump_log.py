"""``kafka-dump-log`` reads the files that our broker writes, and finds nothing wrong with them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from barnabas.embedded import EmbeddedBroker
from oracles.dump_log import complaints, dump, files_of
from oracles.java_client import JavaClient
from oracles.kafka_tools import KafkaTools, ToolFailedError

pytestmark = pytest.mark.java

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPIC = "everything"
ROUNDS = 12
RECORDS = ROUNDS * len(CODECS) * 2 * 10


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, client: JavaClient) -> Path:
    """The data directory of a broker that has had all kinds of records, and was stopped."""
    settings = {"log.index.interval.bytes": 500, "metadata.log.max.record.bytes.between.snapshots": 2000}
    with EmbeddedBroker(tmp_path_factory.mktemp("broker") / "data", overrides=settings) as broker:
        directory, bootstrap = broker.data_dir, broker.bootstrap_servers
        configs = {"segment.ms": "500", "retention.ms": "-1"}
        topics = [{"name": TOPIC, "partitions": 1, "factor": 1, "configs": configs}]
        topics += [{"name": f"other-{n}", "partitions": 2, "factor": 1, "configs": configs} for n in range(10)]
        client.ask("create_topics", bootstrap, topics=topics)
        at = 0
        for _ in range(ROUNDS):
            for codec in CODECS:
                for idempotent in ("true", "false"):
                    records = [
                        {"key": f"key {n}", "value": f"value {n} " * 10, "timestamp": n, "headers": [["a", "b"]]}
                        for n in range(at, at + 10)
                    ]
                    config = {"compression.type": codec, "enable.idempotence": idempotent, "linger.ms": "100"}
                    client.produce(bootstrap, TOPIC, records, config, name=f"{bootstrap} {codec} {idempotent}")
                    at += 10
        client.ask("delete_topics", bootstrap, topics=["other-0"])
        client.ask("delete_records", bootstrap, before={f"{TOPIC}-0": 30})
        for codec in CODECS:
            for idempotent in ("true", "false"):
                client.ask("close_producer", bootstrap, name=f"{bootstrap} {codec} {idempotent}")
    return directory


def test_no_complaint_about_any_file(tools: KafkaTools, written: Path) -> None:
    kinds = {file.suffix for file in files_of(written)}
    assert kinds == {".log", ".index", ".timeindex", ".snapshot", ".checkpoint"}
    assert complaints(tools, [written]) == []


def test_every_record_is_found(tools: KafkaTools, written: Path) -> None:
    logs = sorted((written / f"{TOPIC}-0").glob("*.log"))
    assert len(logs) > 2
    output = dump(tools, logs)
    records = re.findall(r"^\| offset: (\d+) CreateTime: (\d+) .* payload: (.*)$", output, re.MULTILINE)
    begin = int(logs[0].stem)
    assert records == [(str(n), str(n), f"value {n} " * 10) for n in range(begin, RECORDS)]
    batches = re.findall(
        r"^baseOffset: .* producerId: (\S+) .* compresscodec: (\S+) .* isvalid: (\S+)", output, re.MULTILINE
    )
    assert {codec for _, codec, _ in batches} == set(CODECS)
    assert {valid for _, _, valid in batches} == {"true"}
    assert len({producer_id for producer_id, _, _ in batches}) == 1 + len(CODECS)


def test_indexes_and_snapshots_have_entries(tools: KafkaTools, written: Path) -> None:
    directory = written / f"{TOPIC}-0"
    for kind, entry in (
        ("*.index", r"^offset: \d+ position: [1-9]\d*$"),
        ("*.timeindex", r"^timestamp: \d+ offset: \d+$"),
        ("*.snapshot", r"^producerId: \d+ producerEpoch: 0 coordinatorEpoch: -1 .* lastSequence: \d+ "),
    ):
        found = re.findall(entry, dump(tools, sorted(directory.glob(kind))), re.MULTILINE)
        assert len(found) >= 5, kind


def test_the_metadata_log_and_its_snapshots(tools: KafkaTools, written: Path) -> None:
    directory = written / "__cluster_metadata-0"

    def records(pattern: str) -> set[str]:
        output = dump(tools, sorted(directory.glob(pattern)), "--cluster-metadata-decoder")
        return set(re.findall(r'"type":"([A-Z_]+)"', output))

    of_everybody = {"FEATURE_LEVEL_RECORD", "REGISTER_BROKER_RECORD", "REGISTER_CONTROLLER_RECORD"}
    of_everybody |= {"TOPIC_RECORD", "PARTITION_RECORD", "CONFIG_RECORD"}
    assert of_everybody | {"REMOVE_TOPIC_RECORD", "PRODUCER_IDS_RECORD"} <= records("*.log")
    assert of_everybody <= records("*.checkpoint")


def test_the_test_would_notice(tools: KafkaTools, written: Path, tmp_path: Path) -> None:
    """A file that is damaged is complained about."""
    directory = tmp_path / f"{TOPIC}-0"
    directory.mkdir()
    log = max((written / f"{TOPIC}-0").glob("*.log"), key=lambda file: file.stat().st_size)
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    damaged = directory / log.name
    damaged.write_bytes(data)
    try:
        output = dump(tools, [damaged])
    except ToolFailedError as failure:
        output = failure.out + failure.err
    assert "isvalid: false" in output or "corrupt" in output.lower()
    index = log.with_suffix(".index")
    (directory / index.name).write_bytes(index.read_bytes())
    damaged.write_bytes(log.read_bytes()[:100] + log.read_bytes()[100:][::-1])
    with pytest.raises(ToolFailedError):
        dump(tools, [directory / index.name])
