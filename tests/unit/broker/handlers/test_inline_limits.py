"""What a network thread does not do itself: small requests with much work behind them."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from pathlib import Path

import cramjam
import pytest
from benchmarks.hostile_requests import one_batch, one_record

from barnabas.broker.handlers.produce import _INLINE_ENTRIES
from barnabas.common.errors import Errors
from barnabas.log.log_validator import UNCLAIMED_BYTES
from barnabas.protocol.message import Request as RequestMessage
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records.batch import CompressionType
from barnabas.records.compressed_batch import decompressed_bound
from barnabas.server.request_local import RequestLocal
from unit.broker.handlers.real_bench import RealBench

pytestmark = pytest.mark.mechanism("R05")

MEBIBYTE = 1 << 20


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[RealBench]:
    bench = RealBench(tmp_path)
    yield bench
    bench.box.stop()


def produce_of(*batches: bytes, topics: int = 1) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=batch) for index, batch in enumerate(batches)]
    return ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data) for _ in range(topics)]
    )


def is_handed_over(bench: RealBench, body: RequestMessage, version: int = 12) -> bool:
    """Whether a network thread that gets this leaves it to the bulk lane."""
    request = bench.request(body, version)
    bench.local = RequestLocal(bench.channel.send_callback, bench.channel.send_bulk)
    bench.local.request = request
    before = bench.channel.bulk_queue_size
    bench.dispatcher.handle(request, bench.local)
    handed_over = bench.local.request is None
    assert bench.channel.bulk_queue_size - before == handed_over
    assert request.awaits_response or not handed_over
    return handed_over


def compressed(size: int, codec: CompressionType) -> bytes:
    return one_batch(one_record(size), codec)


@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.ZSTD])
def test_records_that_decompress_to_much_are_not_for_a_network_thread(bench: RealBench, codec: CompressionType) -> None:
    assert not is_handed_over(bench, produce_of(compressed(MEBIBYTE // 2, codec)))
    large = compressed(8 * MEBIBYTE, codec)
    assert len(large) < MEBIBYTE
    assert is_handed_over(bench, produce_of(large))


def test_frames_of_any_kind_are_measured(bench: RealBench) -> None:
    linked = bytes(cramjam.lz4.compress(one_record(1000)))
    assert not is_handed_over(bench, produce_of(one_batch(b"", CompressionType.LZ4, raw=linked)))
    linked = bytes(cramjam.lz4.compress(one_record(8 * MEBIBYTE)))
    assert is_handed_over(bench, produce_of(one_batch(b"", CompressionType.LZ4, raw=linked)))


def test_what_cannot_be_measured_is_not_for_a_network_thread(bench: RealBench) -> None:
    assert is_handed_over(bench, produce_of(one_batch(b"", CompressionType.ZSTD, raw=b"garbage" * 5)))


def test_uncompressed_records_are_for_a_network_thread(bench: RealBench) -> None:
    assert not is_handed_over(bench, produce_of(compressed(MEBIBYTE // 2, CompressionType.NONE)))


def test_topics_and_partitions_of_a_request_are_limited(bench: RealBench) -> None:
    batch = compressed(100, CompressionType.NONE)
    assert not is_handed_over(bench, produce_of(*[batch] * (_INLINE_ENTRIES - 1)))
    assert is_handed_over(bench, produce_of(*[batch] * _INLINE_ENTRIES))
    assert not is_handed_over(bench, produce_of(batch, topics=_INLINE_ENTRIES // 2))
    assert is_handed_over(bench, produce_of(batch, topics=_INLINE_ENTRIES // 2 + 1))


def test_all_partitions_of_a_request_count(bench: RealBench) -> None:
    half = compressed(700_000, CompressionType.ZSTD)
    assert not is_handed_over(bench, produce_of(half))
    assert is_handed_over(bench, produce_of(half, half))


def test_the_total_is_refused_with_message_too_large(bench: RealBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.broker.handlers.produce.MAX_DECOMPRESSED_BYTES", MEBIBYTE)
    response = bench.answered_now(produce_of(*[compressed(700_000, CompressionType.ZSTD)] * 2), 12)
    results = response.responses[0].partition_responses
    assert [result.error_code for result in results] == [Errors.MESSAGE_TOO_LARGE] * 2
    assert str(MEBIBYTE) in results[0].error_message


def test_batches_are_measured_until_they_are_too_much(bench: RealBench, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []

    def measure(batch: memoryview) -> int:
        measured.append(len(batch))
        return decompressed_bound(batch)

    monkeypatch.setattr("barnabas.broker.handlers.produce.decompressed_bound", measure)
    monkeypatch.setattr("barnabas.broker.handlers.produce.MAX_DECOMPRESSED_BYTES", MEBIBYTE)
    request = produce_of(*[compressed(2 * MEBIBYTE, CompressionType.ZSTD)] * 2)
    results = bench.answered_now(request, 12).responses[0].partition_responses
    assert [result.error_code for result in results] == [Errors.MESSAGE_TOO_LARGE] * 2
    assert len(measured) == 1, "the first one is too much for a request"
    measured.clear()
    assert is_handed_over(bench, request)
    assert len(measured) == 1, "the first one is too much for a network thread"


def test_a_gzip_stream_is_held_to_the_size_that_it_claims(bench: RealBench) -> None:
    records = one_record(4 * MEBIBYTE)
    honest = gzip.compress(records)
    response = bench.answered_now(produce_of(one_batch(b"", CompressionType.GZIP, raw=honest)), 12)
    assert response.responses[0].partition_responses[0].error_code == Errors.NONE
    lying = honest[:-4] + struct.pack("<I", 1000)
    request = produce_of(one_batch(b"", CompressionType.GZIP, raw=lying))
    assert not is_handed_over(bench, request), "it claims to be small"
    response = bench.answered_now(request, 12)
    (result,) = response.responses[0].partition_responses
    assert result.error_code == Errors.INVALID_RECORD
    assert str(UNCLAIMED_BYTES) in str(result.error_message)


@pytest.mark.mechanism("R07")
def test_a_fetch_of_a_large_session_is_not_for_a_network_thread(bench: RealBench) -> None:
    def fetch(session_id: int, epoch: int, partitions: int) -> FetchRequest:
        asked = [FetchPartition(partition=number, partition_max_bytes=1) for number in range(partitions)]
        topics = [FetchTopic(topic="t", partitions=asked)] if partitions else []
        return FetchRequest(max_wait_ms=0, session_id=session_id, session_epoch=epoch, topics=topics)

    for size, handed_over in ((256, False), (257, True)):
        made = bench.answered_now(fetch(0, 0, size), 12)
        assert made.session_id
        assert is_handed_over(bench, fetch(made.session_id, 1, 0)) is handed_over
