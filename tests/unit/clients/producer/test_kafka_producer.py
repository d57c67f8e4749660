"""The producer as an application sees it."""

from __future__ import annotations

import dataclasses
import sys
import threading
from types import FrameType
from typing import Any

import pytest

from barnabas._kernels import murmur2
from barnabas.clients.common.metadata_snapshot import MetadataSnapshot
from barnabas.clients.producer import KafkaProducer, ProducerRecord, RecordMetadata
from barnabas.clients.producer.errors import (
    BufferExhaustedError,
    IllegalStateError,
    ProducerClosedError,
    SerializationError,
)
from barnabas.clients.producer.interceptors import ProducerInterceptor
from barnabas.clients.producer.internals.future_record_metadata import FutureRecordMetadata
from barnabas.clients.producer.partitioner import Partitioner, RoundRobinPartitioner
from barnabas.clients.producer.serialization import JsonSerializer, StringSerializer
from barnabas.clients.testing import Fate, InMemorySelector, ScriptedCluster
from barnabas.common.config_def import ConfigError
from barnabas.common.errors import (
    Errors,
    InvalidTopicError,
    KafkaTimeoutError,
    RecordTooLargeError,
    TopicAuthorizationError,
)
from barnabas.protocol.api_keys import ApiKey

partition_for_key = murmur2.partition_for_key


def settle(cluster: ScriptedCluster, producer: KafkaProducer, *futures: Any) -> None:
    cluster.run_until(producer, lambda: all(future.done() for future in futures))


# -- P01: what blocks, and for how long


@pytest.mark.mechanism("P01")
def test_send_touches_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(linger_ms=0)
    touched: list[int] = []
    for method in ("connect", "send", "poll"):
        monkeypatch.setattr(InMemorySelector, method, lambda *_, **__: touched.append(threading.get_ident()))
    for _ in range(100):
        producer.send("t", b"v")
    assert not touched


@pytest.mark.mechanism("P01")
def test_waits_for_metadata_for_max_block_ms() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer("t", max_block_ms=500)
    before = cluster.clock.hi_res_milliseconds()
    future = cluster.run_while(producer, lambda: producer.send("unknown", b"v"))
    assert 500 <= cluster.clock.hi_res_milliseconds() - before < 700
    error = future.exception(0)
    assert isinstance(error, KafkaTimeoutError)
    assert str(error) == "Topic unknown not present in metadata after 500 ms."
    assert error.__cause__ is not None
    assert "topic" in str(error.__cause__).lower()


@pytest.mark.mechanism("P01")
def test_a_topic_that_is_made_meanwhile() -> None:
    cluster = ScriptedCluster({"t": 1}, auto_create_topics=True)
    producer = cluster.producer("t", linger_ms=0)
    future = cluster.run_while(producer, lambda: producer.send("new", b"v"))
    settle(cluster, producer, future)
    assert cluster.values("new") == [b"v"]
    assert producer.metric("metadata-wait-time-ns-total") > 0


@pytest.mark.mechanism("P01")
def test_a_partition_that_does_not_exist() -> None:
    cluster = ScriptedCluster({"t": 2})
    producer = cluster.producer(max_block_ms=300)
    future = cluster.run_while(producer, lambda: producer.send("t", b"v", partition=2))
    assert "Partition 2 of topic t with partition count 2 is not present in metadata after 300 ms." in str(
        future.exception(0)
    )


@pytest.mark.mechanism("P01")
def test_waiting_for_metadata_and_for_memory_share_one_budget() -> None:
    cluster = ScriptedCluster({"t": 1})
    clock = cluster.clock
    producer = cluster.producer("t", max_block_ms=1_000, buffer_memory=20_000, linger_ms=5_000, max_request_size=20_000)
    cluster.create_topic("slow", 1)
    delays = {ApiKey.METADATA: 600, ApiKey.PRODUCE: 10_000}
    cluster.fate_of = lambda handled: Fate(delay_ms=delays.get(handled.header.api_key, 0))
    producer.send("t", b"x" * 15_000)
    before = clock.hi_res_milliseconds()
    future = cluster.run_while(producer, lambda: producer.send("slow", b"y" * 10_000))
    waited = clock.hi_res_milliseconds() - before
    assert isinstance(future.exception(0), BufferExhaustedError)
    assert 1_000 <= waited < 1_100, "600 ms for metadata left 400 for memory"


@pytest.mark.mechanism("P01", "P06")
def test_memory_comes_back_and_the_sender_goes_on() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(buffer_memory=20_000, linger_ms=1_000, max_request_size=20_000)
    first = producer.send("t", b"x" * 15_000)
    second = cluster.run_while(producer, lambda: producer.send("t", b"y" * 15_000))
    assert first.done(), "it did not linger while somebody waited for its memory"
    producer.accumulator.begin_flush()
    settle(cluster, producer, second)
    assert producer.metric("waiting-threads") == 0


# -- P02: what is done to a record, and what goes where when it fails


class Noting(ProducerInterceptor):
    def __init__(self, name: str = "") -> None:
        self.name = name
        self.sent: list[ProducerRecord] = []
        self.acknowledged: list[tuple[RecordMetadata, Exception | None]] = []
        self.closed = False

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.sent.append(record)
        return dataclasses.replace(record, value=(record.value or "") + self.name)

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        self.acknowledged.append((metadata, error))

    def close(self) -> None:
        self.closed = True


class Failing(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise RuntimeError("interceptor")

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        raise RuntimeError("interceptor")


@pytest.mark.mechanism("P02")
def test_interceptors_see_a_record_before_it_is_serialized_and_when_it_is_written() -> None:
    cluster = ScriptedCluster({"t": 1})
    first, second = Noting("-1"), Noting("-2")
    producer = cluster.producer(interceptors=[first, Failing(), second], value_serializer=StringSerializer, linger_ms=0)
    future = producer.send("t", "value")
    settle(cluster, producer, future)
    assert cluster.values("t") == [b"value-1-2"]
    assert [record.value for record in second.sent] == ["value-1"]
    assert second.acknowledged == [(future.result(0), None)]
    producer.close(0)
    assert first.closed
    assert second.closed


@pytest.mark.mechanism("P02")
def test_interceptors_hear_of_records_that_were_not_accepted() -> None:
    cluster = ScriptedCluster({"t": 1})
    noting = Noting()
    producer = cluster.producer(interceptors=[noting], value_serializer=StringSerializer, max_request_size=200)
    future = producer.send("t", "x" * 300)
    assert isinstance(future.exception(0), RecordTooLargeError)
    with pytest.raises(SerializationError):
        producer.send("t", value="x", key=5)
    assert [type(error) for _, error in noting.acknowledged] == [RecordTooLargeError, SerializationError]
    assert {metadata.topic for metadata, _ in noting.acknowledged} == {"t"}


@pytest.mark.mechanism("P02")
def test_serializers() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(key_serializer=str.encode, value_serializer=JsonSerializer(), linger_ms=0)
    future = producer.send("t", {"a": [1, "é"]}, key="k")
    settle(cluster, producer, future)
    (record,) = cluster.records("t")
    assert (record.key, record.value) == (b"k", '{"a":[1,"é"]}'.encode())
    assert (future.result(0).serialized_key_size, future.result(0).serialized_value_size) == (1, 14)
    with pytest.raises(SerializationError, match="JSON"):
        producer.send("t", object())
    with pytest.raises(SerializationError, match="key of class int"):
        producer.send("t", {}, key=7)


class OnlySerializes:
    def serialize(self, _topic: str, _headers: object, data: str) -> bytes:
        return data.encode()


class Closing(OnlySerializes):
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.closed = False

    def close(self) -> None:
        self.closed = True
        if self.error is not None:
            raise self.error


@pytest.mark.mechanism("P02")
@pytest.mark.parametrize("given", [OnlySerializes, OnlySerializes()])
def test_a_serializer_needs_no_other_method(given: object) -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(value_serializer=given, linger_ms=0)
    settle(cluster, producer, producer.send("t", "value"))
    assert cluster.values("t") == [b"value"]
    producer.close(0)


@pytest.mark.mechanism("P13")
def test_a_serializer_that_cannot_be_closed_does_not_keep_others_open() -> None:
    key, value = Closing(ValueError("the key's")), Closing()
    producer = ScriptedCluster({"t": 1}).producer(key_serializer=key, value_serializer=value)
    with pytest.raises(ValueError, match="the key's"):
        producer.close(0)
    assert value.closed


@pytest.mark.mechanism("P02")
def test_without_a_serializer_it_is_bytes() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(linger_ms=0)
    futures = [producer.send("t", value) for value in (b"a", bytearray(b"b"), memoryview(b"c"), None)]
    settle(cluster, producer, *futures)
    assert cluster.values("t") == [b"a", b"b", b"c", None]
    with pytest.raises(SerializationError, match="must be bytes"):
        producer.send("t", "text")


@pytest.mark.mechanism("P02")
def test_size_is_checked() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(max_request_size=500, buffer_memory=400)
    seen: list[tuple[RecordMetadata, Exception | None]] = []
    future = producer.send("t", b"x" * 600, callback=lambda *arguments: seen.append(arguments))
    error = future.exception(0)
    assert isinstance(error, RecordTooLargeError)
    assert "which is larger than 500, which is the value of the max.request.size configuration" in str(error)
    assert seen == [(RecordMetadata("t", -1, -1, -1, -1, -1), error)]
    assert "buffer.memory" in str(producer.send("t", b"x" * 390).exception(0))


@pytest.mark.mechanism("P02")
def test_timestamps_and_headers() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(linger_ms=0)
    headers: list[tuple[str, bytes | None]] = [("a", b"1"), ("a", None)]
    futures = [
        producer.send("t", b"0", headers=headers, timestamp_ms=12),
        producer.send("t", b"1", headers={"b": b"2"}),
        producer.send("t", b"2", headers=headers),
    ]
    headers.clear()
    settle(cluster, producer, *futures)
    records = cluster.records("t")
    assert records[0].headers == records[2].headers == (("a", b"1"), ("a", None))
    assert records[1].headers == (("b", b"2"),)
    assert records[0].timestamp_ms == 12 == futures[0].result(0).timestamp_ms
    assert abs(records[1].timestamp_ms - cluster.clock.milliseconds()) < 60_000
    for wrong in ({"timestamp_ms": -5}, {"partition": -1}):
        with pytest.raises(ValueError, match="Invalid"):
            producer.send("t", b"x", **wrong)  # type: ignore[arg-type]


@pytest.mark.mechanism("P02")
def test_a_record_that_cannot_be_encoded_leaves_no_batch_behind() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(linger_ms=0)
    pool = producer.accumulator.pool
    with pytest.raises((OverflowError, ValueError)):
        producer.send("t", b"v", timestamp_ms=2**70)
    assert not producer.accumulator.has_incomplete
    assert pool.available_memory() == pool.total_memory
    future = producer.send("t", b"next")
    settle(cluster, producer, future)
    assert cluster.values("t") == [b"next"]


@pytest.mark.mechanism("P02")
def test_topics_that_are_invalid_or_forbidden() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer("t")
    cluster.fail_next(ApiKey.METADATA, Errors.INVALID_TOPIC_EXCEPTION)
    future = cluster.run_while(producer, lambda: producer.send("bad name", b"v"))
    assert isinstance(future.exception(0), InvalidTopicError)
    assert isinstance(producer.send("bad name", b"v").exception(0), InvalidTopicError)
    cluster.fail_next(ApiKey.METADATA, Errors.TOPIC_AUTHORIZATION_FAILED)
    future = cluster.run_while(producer, lambda: producer.send("secret", b"v"))
    assert isinstance(future.exception(0), TopicAuthorizationError)


@pytest.mark.mechanism("P02")
@pytest.mark.parametrize(
    ("wrong", "kind"), [(b"t", TypeError), (5, TypeError), (None, TypeError), ("\ud800", ValueError)]
)
def test_a_topic_that_no_request_can_name_leaves_the_producer_usable(wrong: Any, kind: type[Exception]) -> None:
    cluster = ScriptedCluster({"t": 1, "u": 1})
    producer = cluster.producer("t", linger_ms=0, max_block_ms=1_000)
    with pytest.raises(kind, match="topic"):
        cluster.run_while(producer, lambda: producer.send(wrong, b"v"))
    future = cluster.run_while(producer, lambda: producer.send("u", b"v"))
    settle(cluster, producer, future)
    assert cluster.values("u") == [b"v"]


# -- P03: which partition


@pytest.mark.mechanism("P03")
def test_who_decides() -> None:
    cluster = ScriptedCluster({"t": 7})
    producer = cluster.producer(linger_ms=0)
    keys = [b"%d" % index for index in range(50)]
    futures = [producer.send("t", b"v", key=key) for key in keys]
    given = producer.send("t", b"v", key=b"0", partition=5)
    settle(cluster, producer, given, *futures)
    assert [future.result(0).partition for future in futures] == [partition_for_key(key, 7) for key in keys]
    assert given.result(0).partition == 5


@pytest.mark.mechanism("P03")
def test_keys_follow_the_number_of_partitions() -> None:
    cluster = ScriptedCluster({"t": 2, "u": 5})
    producer = cluster.producer(linger_ms=60_000)
    keys = [b"%d" % index for index in range(50)]
    before = [producer.send("t", b"v", key=key) for key in keys]
    cluster.topics["t"].partitions.extend(cluster.topics["u"].partitions[2:])
    version = producer.metadata.request_update()
    cluster.run_until(producer, lambda: producer.metadata.update_version > version)
    after = [producer.send("t", b"v", key=key) for key in keys]
    producer.accumulator.begin_flush()
    settle(cluster, producer, *before, *after)
    assert [future.result(0).partition for future in before] == [partition_for_key(key, 2) for key in keys]
    assert [future.result(0).partition for future in after] == [partition_for_key(key, 5) for key in keys]


@pytest.mark.mechanism("P03")
def test_keys_can_be_ignored() -> None:
    cluster = ScriptedCluster({"t": 7})
    producer = cluster.producer(linger_ms=0, partitioner_ignore_keys=True)
    futures = [producer.send("t", b"v", key=b"%d" % index) for index in range(20)]
    settle(cluster, producer, *futures)
    assert len({future.result(0).partition for future in futures}) == 1, "all fit into one sticky batch"


@pytest.mark.mechanism("P03")
def test_a_partitioner_of_the_applications_own() -> None:
    class Last(Partitioner):
        def partition(self, topic: str, key: Any, *_: Any) -> int:
            assert (topic, key) == ("t", "key")
            return 6

    class Wrong(Partitioner):
        def partition(self, *_: Any) -> int:
            return -1

    cluster = ScriptedCluster({"t": 7})
    producer = cluster.producer(linger_ms=0, partitioner=Last(), key_serializer=str.encode)
    future = producer.send("t", b"v", key="key")
    settle(cluster, producer, future)
    assert future.result(0).partition == 6
    with pytest.raises(ValueError, match="invalid partition number: -1"):
        cluster.producer(partitioner=Wrong()).send("t", b"v")
    with pytest.raises(TypeError, match=r"abstract method '?partition"):
        Partitioner()  # type: ignore[abstract]


@pytest.mark.mechanism("P03")
def test_round_robin() -> None:
    cluster = ScriptedCluster({"t": 3})
    producer = cluster.producer(linger_ms=0, partitioner_class=RoundRobinPartitioner)
    futures = [producer.send("t", b"v", key=b"same") for _ in range(9)]
    settle(cluster, producer, *futures)
    assert [future.result(0).partition for future in futures] == [0, 1, 2] * 3
    named = cluster.producer(
        partitioner_class="barnabas.clients.producer.partitioner.RoundRobinPartitioner", linger_ms=0
    )
    assert isinstance(named._partitioner, RoundRobinPartitioner)
    assert RoundRobinPartitioner().partition("t", None, None, None, None, MetadataSnapshot()) == 0


# -- P13: flush and close


@pytest.mark.mechanism("P13")
def test_flush_waits_for_all_that_was_sent() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(linger_ms=100_000, batch_size=300)
    cluster.max_message_bytes = 200
    cluster.fate_of = lambda _: Fate(delay_ms=2)
    before = cluster.clock.hi_res_milliseconds()
    futures = [producer.send("t", b"%d" % index * 10) for index in range(9)]
    cluster.run_while(producer, producer.flush)
    assert all(future.done() for future in futures), "also those of batches that were split"
    assert cluster.clock.hi_res_milliseconds() - before < 50_000, "and did not linger"
    assert producer.metric("flush-time-ns-total") > 0
    later = producer.send("t", b"later")
    producer.sender.run_once()
    assert not later.done(), "lingers again"


@pytest.mark.mechanism("P13")
def test_close_sends_what_is_left() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(linger_ms=100_000)
    future = producer.send("t", b"v")
    producer.sender.initiate_close()
    producer.sender.run()
    assert future.result(0).offset == 0
    with pytest.raises(IllegalStateError, match="has been closed"):
        producer.send("t", b"w")
    with pytest.raises(IllegalStateError, match="has been closed"):
        producer.partitions_for("t")


@pytest.mark.mechanism("P13")
def test_forced_close_ends_everything() -> None:
    cluster = ScriptedCluster({"t": 2})
    producer = cluster.producer(linger_ms=0)
    settle(cluster, producer, producer.send("t", b"warm", partition=0))
    cluster.fate_of = lambda _: Fate(delay_ms=100_000)
    calls: list[Exception | None] = []
    in_flight = producer.send("t", b"v", partition=0, callback=lambda _, error: calls.append(error))
    producer.sender.run_once()
    waiting = producer.send("t", b"w", partition=1, callback=lambda _, error: calls.append(error))
    producer.sender.force_close()
    producer.sender.run()
    for future in (in_flight, waiting):
        assert isinstance(future.exception(0), ProducerClosedError)
    assert len(calls) == 2
    assert producer.accumulator.pool.available_memory() == producer.accumulator.pool.total_memory


@pytest.mark.mechanism("P13")
def test_not_from_a_callback() -> None:
    """With the real thread: flush refuses, close does not wait for itself."""
    cluster = ScriptedCluster({"t": 1})
    prepared = cluster.producer(linger_ms=0)
    outcome: list[object] = []
    ended = threading.Event()

    def callback(_metadata: RecordMetadata, _error: Exception | None) -> None:
        with pytest.raises(IllegalStateError, match="from a callback"):
            prepared.flush()
        prepared.close(5)
        outcome.append("closed")
        ended.set()

    prepared.send("t", b"v", callback=callback)
    prepared._thread.start()
    assert ended.wait(60)
    prepared._thread.join(60)
    assert not prepared._thread.is_alive()
    assert outcome == ["closed"]


@pytest.mark.mechanism("P13")
def test_a_send_that_waits_for_memory_when_the_producer_is_closed() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(buffer_memory=20_000, linger_ms=100, max_request_size=20_000)
    producer.send("t", b"x" * 15_000)
    failed: list[BaseException] = []

    def send() -> None:
        try:
            producer.send("t", b"y" * 15_000)
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            failed.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    assert cluster.clock.await_waiters(1)
    producer.close(0)
    thread.join(60)
    assert isinstance(failed[0], ProducerClosedError)


def test_close_with_a_negative_timeout() -> None:
    producer = ScriptedCluster({"t": 1}).producer()
    with pytest.raises(ValueError, match="negative"):
        producer.close(-1)


# -- P12


@pytest.mark.mechanism("P12")
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs(codec: str) -> None:
    cluster = ScriptedCluster({"t": 1})
    levels: dict[str, Any] = {} if codec in {"none", "snappy"} else {f"compression_{codec}_level": 2}
    producer = cluster.producer(compression_type=codec, linger_ms=0, **levels)
    futures = [producer.send("t", b"%d" % index * 50) for index in range(20)]
    settle(cluster, producer, *futures)
    assert cluster.values("t") == [b"%d" % index * 50 for index in range(20)]
    ratio = producer.metric("compression-rate-avg")
    assert ratio == 1.0 if codec == "none" else ratio < 0.9


# -- the way into a batch


@pytest.mark.parametrize("batch_max_size", [300, 1_500])
def test_open_batches_take_what_step_by_step_appends_would(batch_max_size: int) -> None:
    """The same records with and without the append to an open batch: the same log, futures and memory."""

    def run(*, opens: bool) -> tuple[list[object], list[object]]:
        cluster = ScriptedCluster({"t": 5})
        producer = cluster.producer(linger_ms=1_000, batch_size=300, batch_max_size=batch_max_size)
        steps: list[str] = []
        do_send = producer._do_send

        def noted(topic: str, *args: Any) -> FutureRecordMetadata:
            steps.append(topic)
            return do_send(topic, *args)

        producer._do_send = noted  # type: ignore[method-assign,assignment]
        if not opens:
            producer._open_topics = {}
        futures = []
        calls: list[object] = []
        for index in range(200):
            futures.append(
                producer.send(
                    "t",
                    b"v" * (index * 7 % 60) if index % 11 else None,
                    key=b"%d" % index if index % 3 == 0 else None,
                    headers=[("h", b"x")] if index % 5 == 0 else None,
                    partition=index % 5 if index % 4 == 0 else None,
                    timestamp_ms=index if index % 2 else None,
                    callback=(lambda metadata, _: calls.append(metadata)) if index % 7 == 0 else None,
                )
            )
            if index % 40 == 39:
                producer.sender.run_once()
        producer.accumulator.begin_flush()
        settle(cluster, producer, *futures)
        logs: list[object] = [record for index in range(5) for record in cluster.records("t", index)]
        assert (len(steps) < 120) == opens, "most records fit in, even with these small batches"
        assert (producer.metric("batch-size-max") > 310) == (batch_max_size > 300)
        assert producer.metric("buffer-available-bytes") == producer.metric("buffer-total-bytes")
        return logs, [*(future.result(0) for future in futures), *calls]

    assert run(opens=True) == run(opens=False)


def test_python_calls_of_a_send() -> None:
    """A busy producer fills batches of 256 KiB: they are expanded twice and lose the choice fifteen times.

    Both happen for many records of 1 KiB, so each Python call in them is seen in the processor time per record.
    """
    cluster = ScriptedCluster({"t": 6})
    producer = cluster.producer(linger_ms=1_000)
    value = b"v" * 1_000
    for _ in range(200):
        producer.send("t", value)  # all partitions have a batch now, and none is sent
    calls: list[str] = []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and "/clients/producer/" in frame.f_code.co_filename:
            calls.append(frame.f_code.co_name)

    counts: dict[str, set[int]] = {}
    for _ in range(1_000):
        calls.clear()
        sys.setprofile(note)
        try:
            producer.send("t", value)
        finally:
            sys.setprofile(None)
        kind = next((name for name in ("_add_batch", "_expand", "switch_partition") if name in calls), "send")
        counts.setdefault(kind, set()).add(len(calls))
    assert counts["send"] == {1}
    assert max(counts["switch_partition"]) <= 6
    assert max(counts["_expand"]) <= 16


def test_send_is_the_method_of_the_class() -> None:
    """What a reader sees is what runs."""
    producer = ScriptedCluster({"t": 1}).producer()
    assert producer.send.__func__ is KafkaProducer.send  # type: ignore[attr-defined]


def test_a_send_of_a_subclass_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    class Shouting(KafkaProducer):
        def send(self, topic: str, value: Any = None, *args: Any, **named: Any) -> FutureRecordMetadata:
            return super().send(topic, value.upper(), *args, **named)

    monkeypatch.setattr("barnabas.clients.testing.scripted_cluster.KafkaProducer", Shouting)
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(linger_ms=0)
    settle(cluster, producer, *[producer.send("t", b"v%d" % number) for number in range(3)])
    assert cluster.values("t", 0) == [b"V0", b"V1", b"V2"]


def test_metadata_that_changes_is_noticed_by_the_fast_way() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(linger_ms=0)
    settle(cluster, producer, producer.send("t", b"v", key=b"k"))
    cluster.topics["t"].partitions.extend(type(cluster.topics["t"].partitions[0])(1) for _ in range(9))
    producer.metadata.request_update()
    cluster.run_until(producer, lambda: producer.metadata.snapshot.partition_count("t") == 10)
    futures = [producer.send("t", b"v", key=b"%d" % index) for index in range(40)]
    settle(cluster, producer, *futures)
    assert {future.result(0).partition for future in futures} == {
        partition_for_key(b"%d" % index, 10) for index in range(40)
    }


# -- construction


def test_bad_settings_are_told_at_once() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        KafkaProducer()
    with pytest.raises(ConfigError, match="host:port"):
        KafkaProducer(bootstrap_servers="localhost")
    with pytest.raises(TypeError, match="no setting lingerms"):
        KafkaProducer(bootstrap_servers="localhost:1", lingerms=5)  # type: ignore[call-arg] # that is the test
    with pytest.raises(TypeError, match="no serializer"):
        KafkaProducer(bootstrap_servers="localhost:1", key_serializer=5)


def test_partitions_for() -> None:
    cluster = ScriptedCluster({"t": 3})
    producer = cluster.producer("t")
    infos = producer.partitions_for("t")
    assert [info.partition for info in infos] == [0, 1, 2]
    assert {info.leader.id for info in infos if info.leader is not None} == {1}


def test_the_thread_has_kafkas_name() -> None:
    producer = ScriptedCluster({"t": 1}).producer(client_id="mine")
    assert producer._thread.name == "kafka-producer-network-thread | mine"
    assert producer._thread.daemon
