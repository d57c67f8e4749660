"""Batches that no producer should send, each with the code that Kafka has for it; and Kafka's own word for that.

They go through the produce handler and the replica manager into a real log, as far as they get.
"""

from __future__ import annotations

import base64
import logging
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.common.errors import Errors
from barnabas.log.unified_log import UnifiedLog
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records.batch import iter_batches
from barnabas.records.validation import validate_records
from oracles.definitions import JARS
from unit.broker.handlers.hostile_batches import FAMILIES, Hostile, everything, family, good
from unit.broker.handlers.real_bench import RealBench

pytestmark = pytest.mark.mechanism("R13")

KAFKA_SETTINGS = ("t", "compact:cleanup.policy=compact", "small:max.message.bytes=1000")
PROGRAM = Path(__file__).with_name("ProduceJudge.java")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[RealBench]:
    bench = RealBench(tmp_path)
    yield bench
    bench.box.stop()


def log_of(bench: RealBench, topic: str) -> UnifiedLog:
    return bench.box.manager.get_partition_or_exception((topic, 0)).local_log_or_raise()


def read_file(log: UnifiedLog) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(log.directory.glob("*.log")))


def produce_request(hostile: Hostile, acks: int = -1) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=hostile.records)
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=hostile.topic, partition_data=[data])]
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_each_has_its_code_and_leaves_nothing_in_the_log(
    name: str, bench: RealBench, caplog: pytest.LogCaptureFixture
) -> None:
    """In one go, as some of them are about what came before; a refused batch must not change a thing."""
    wrong = []
    for hostile in family(name):
        log = log_of(bench, hostile.topic)
        before = log.log_end_offset, log.size
        response = bench.answered_now(produce_request(hostile), hostile.version)
        (topic,) = response.responses
        (partition,) = topic.partition_responses
        error = Errors.for_code(partition.error_code)
        if error is not hostile.error:
            wrong.append(f"{hostile.name}: {error.name} instead of {hostile.error.name}")
        if error is not Errors.NONE:
            assert partition.base_offset == -1
            assert (log.log_end_offset, log.size) == before, hostile.name
    assert not wrong
    # Anybody can send these as often as they like: they must not look like bugs of the broker, stack trace and all.
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info]


def test_none_of_them_is_a_bug_of_the_broker() -> None:
    assert all(hostile.error is not Errors.UNKNOWN_SERVER_ERROR for hostile in everything())
    assert all(hostile.why for hostile in everything() if hostile.kafka not in {None, hostile.error})


@pytest.mark.mechanism("R06")
def test_without_acks_each_ends_the_connection(bench: RealBench) -> None:
    for hostile in family("framing"):
        request = bench.send(produce_request(hostile, acks=0), hostile.version)
        assert not bench.is_answered(request)
        assert bench.was_closed(request) == (hostile.error is not Errors.NONE), hostile.name
        assert bench.had_no_answer(request) == (hostile.error is Errors.NONE), hostile.name


def test_a_bad_partition_does_not_spoil_the_others(bench: RealBench) -> None:
    damaged = bytearray(good())
    damaged[-1] ^= 1
    body = ProduceRequest(
        acks=1,
        topic_data=[
            TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=bytes(damaged))]),
            TopicProduceData(name="compact", partition_data=[PartitionProduceData(index=0, records=good())]),
            TopicProduceData(name="small", partition_data=[PartitionProduceData(index=0, records=b"")]),
        ],
    )
    response = bench.answered_now(body, 12)
    codes = {topic.name: topic.partition_responses[0].error_code for topic in response.responses}
    assert codes == {"t": Errors.CORRUPT_MESSAGE, "compact": Errors.NONE, "small": Errors.INVALID_RECORD}


def test_after_all_of_that_the_log_reads_well(bench: RealBench) -> None:
    for hostile in everything():
        bench.send(produce_request(hostile), hostile.version)
    for topic in ("t", "compact", "small"):
        data = read_file(log_of(bench, topic))
        offsets: list[int] = []
        for batch in iter_batches(data):
            batch.ensure_valid()
            validate_records(batch)
            offsets += range(batch.base_offset, batch.next_offset)
        assert offsets == list(range(log_of(bench, topic).log_end_offset))


@pytest.mark.java
def test_kafka_says_the_same(tmp_path: Path) -> None:
    """The recorded codes are Kafka's: its own checks of the request, and its own log, give them."""
    jars = sorted((JARS.parent / "storage-jars").glob("*.jar"))
    if shutil.which("java") is None or shutil.which("javac") is None or not jars:
        # A CI run must not lose this test.
        missing = "no java and javac on the PATH, or no Kafka jars in target/storage-jars (make jars)"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(missing)
    asked = [hostile for hostile in everything() if hostile.records is not None]
    script = "".join(
        f"{hostile.topic} {hostile.version} {base64.b64encode(hostile.records or b'').decode()}\n" for hostile in asked
    )
    options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", os.pathsep.join(map(str, jars))]
    done = subprocess.run(
        ["java", *options, str(PROGRAM), str(tmp_path), *KAFKA_SETTINGS],
        input=script,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = dict(zip([hostile.name for hostile in asked], done.stdout.splitlines(), strict=True))
    assert answers == {hostile.name: hostile.kafkas.name for hostile in asked}
