"""A batch: its futures, its callbacks, its end, and how it is split."""

from __future__ import annotations

import threading

import pytest

from barnabas.clients.producer.internals.compression_ratio_estimator import CompressionRatioEstimator
from barnabas.clients.producer.internals.future_record_metadata import FutureRecordMetadata
from barnabas.clients.producer.internals.produce_request_result import ProduceRequestResult
from barnabas.clients.producer.internals.producer_batch import FinalState, ProducerBatch, ProducerIdAndEpoch
from barnabas.clients.producer.record_metadata import RecordMetadata
from barnabas.common.topic_partition import TopicPartition
from barnabas.records.batch import CompressionType, RecordBatch
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.reader import read_records

TP = TopicPartition("t", 3)
Call = tuple[int, Exception | None]


def batch(
    compression: CompressionType = CompressionType.NONE,
    max_size: int = 16_384,
    estimator: CompressionRatioEstimator | None = None,
) -> ProducerBatch:
    builder = RecordBatchBuilder(compression=compression, max_size=max_size)
    return ProducerBatch(TP, builder, 100, estimator or CompressionRatioEstimator())


def append(target: ProducerBatch, value: bytes, calls: list[Call] | None = None) -> FutureRecordMetadata:
    def note(metadata: RecordMetadata, error: Exception | None) -> None:
        assert calls is not None
        calls.append((metadata.offset, error))

    future: FutureRecordMetadata | None = target.builder.accept(
        1_000, b"key", value, (), None if calls is None else note, False, True
    )
    assert future is not None
    return future


@pytest.mark.mechanism("P07")
def test_success() -> None:
    calls: list[Call] = []
    target = batch()
    futures = [append(target, b"%d" % index, calls) for index in range(3)]
    assert not futures[0].done()
    assert target.complete(500, -1)
    assert target.final_state is FinalState.SUCCEEDED
    assert calls == [(500, None), (501, None), (502, None)], "in the order of the records"
    assert futures[2].result(0) == RecordMetadata("t", 3, 502, 1_000, 3, 1)
    assert futures[2].exception(0) is None


def test_append_time_and_unknown_offset() -> None:
    target = batch()
    future = append(target, b"v")
    target.complete(-1, 77)
    assert (future.result(0).offset, future.result(0).timestamp_ms) == (-1, 77)
    assert not future.result(0).has_offset


@pytest.mark.mechanism("P07")
def test_failure_of_all_and_of_each() -> None:
    calls: list[Call] = []
    target = batch()
    error = ValueError("x")
    future = append(target, b"v", calls)
    assert target.complete_exceptionally(error)
    assert calls == [(-1, error)]
    assert future.exception(0) is error
    with pytest.raises(ValueError, match="x"):
        future.result(0)
    each = batch()
    futures = [append(each, b"v") for _ in range(2)]
    errors = [ValueError("0"), ValueError("1")]
    each.complete_exceptionally(ValueError("all"), lambda index: errors[index])
    assert [future.exception(0) for future in futures] == errors


@pytest.mark.mechanism("P07")
def test_a_bad_callback_poisons_nothing(caplog: pytest.LogCaptureFixture) -> None:
    target = batch()
    calls: list[Call] = []

    def bad(metadata: RecordMetadata, error: Exception | None) -> None:
        raise RuntimeError("bad callback")

    target.builder.accept(1, None, b"v", (), bad, False, True)
    future = append(target, b"w", calls)
    target.complete(0, -1)
    assert calls == [(1, None)]
    assert future.done()
    assert "bad callback" in caplog.text


@pytest.mark.mechanism("P07")
def test_callbacks_come_before_whoever_waits() -> None:
    target = batch()
    seen: list[bool] = []
    future: FutureRecordMetadata | None = None

    def look(metadata: RecordMetadata, error: Exception | None) -> None:
        assert future is not None
        seen.append(future.done())

    future = target.builder.accept(1, None, b"v", (), look, False, True)
    target.complete(0, -1)
    assert seen == [False]


@pytest.mark.mechanism("P07")
@pytest.mark.parametrize("first", ["fail", "abort"])
def test_late_responses_are_tolerated(first: str, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[Call] = []
    target = batch()
    future = append(target, b"v", calls)
    error = ValueError("late")
    if first == "fail":
        target.complete_exceptionally(error)
    else:
        target.abort(error)
    assert not target.complete_exceptionally(ValueError("again"))
    assert not target.complete(5, -1)
    assert "The broker has a batch" in caplog.text
    assert calls == [(-1, error)]
    assert future.exception(0) is error


@pytest.mark.mechanism("P07")
def test_nothing_follows_success() -> None:
    target = batch()
    append(target, b"v")
    target.complete(0, -1)
    with pytest.raises(RuntimeError, match="has succeeded"):
        target.complete(0, -1)
    with pytest.raises(RuntimeError, match="has succeeded"):
        target.complete_exceptionally(ValueError())
    with pytest.raises(RuntimeError, match="ended already"):
        target.abort(ValueError())


def test_producer_state_is_written_at_the_end_and_can_be_rewritten() -> None:
    target = batch()
    append(target, b"v")
    target.set_producer_state(ProducerIdAndEpoch(7, 1), 40, False)
    before = target.close()
    assert target.close() is before
    header = RecordBatch(before)
    header.ensure_valid()
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 40)
    with pytest.raises(RuntimeError, match="must not change"):
        target.set_producer_state(ProducerIdAndEpoch(7, 1), 41, False)
    target.reset_producer_state(ProducerIdAndEpoch(7, 2), 0)
    was_reset = target.sequence_has_been_reset
    after = target.close()
    assert (was_reset, target.sequence_has_been_reset) == (True, False)
    rewritten = RecordBatch(after)
    rewritten.ensure_valid()
    assert (rewritten.producer_epoch, rewritten.base_sequence, target.last_sequence) == (2, 0, 0)
    assert RecordBatch(before).producer_epoch == 1, "the network may still have the old bytes"


@pytest.mark.mechanism("P09")
def test_with_another_sequence_it_was_not_sent_yet() -> None:
    """What became of an attempt with the old number says nothing about the new one."""
    target = batch()
    append(target, b"v")
    target.set_producer_state(ProducerIdAndEpoch(7, 1), 40, False)
    target.close()
    target.may_be_written = True
    target.reset_producer_state(ProducerIdAndEpoch(7, 2), 0)
    assert not target.may_be_written


@pytest.mark.mechanism("P08")
@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.GZIP])
def test_split(compression: CompressionType) -> None:
    calls: list[Call] = []
    target = batch(compression)
    futures = [append(target, b"%03d" % index * 20, calls if index % 2 else None) for index in range(20)]
    target.set_producer_state(ProducerIdAndEpoch(7, 0), 100, True)
    target.close()
    parts = target.split(300)
    assert len(parts) > 3
    sequence = 100
    values = []
    for part in parts:
        assert part.is_split_batch
        assert (part.base_sequence, part.producer_id, part.is_transactional) == (sequence, 7, True)
        sequence += part.record_count
        values += [record.value for record in read_records(RecordBatch(part.close()))]
        if compression is CompressionType.NONE:
            assert len(part.records) <= 300
    assert values == [b"%03d" % index * 20 for index in range(20)]
    assert target.is_done
    assert not any(future.done() for future in futures), "they go on waiting, for the parts"
    offset = 1_000
    for part in parts:
        part.complete(offset, -1)
        offset += part.record_count
    assert [future.result(0).offset for future in futures] == list(range(1_000, 1_020))
    assert [offset for offset, _ in calls] == list(range(1_001, 1_020, 2))


def test_a_split_of_a_split() -> None:
    target = batch()
    futures = [append(target, b"x" * 50) for _ in range(8)]
    done: list[object] = []
    futures[7].add_done_callback(done.append)
    target.close()
    halves = target.split(280)
    assert len(halves) > 1
    halves[-1].close()
    quarters = halves[-1].split(100)
    for index, part in enumerate([*halves[:-1], *quarters]):
        part.complete(index * 100, -1)
    assert done == [futures[7]]
    assert futures[7].result(0).offset == (len(halves) - 1 + len(quarters) - 1) * 100
    target.produce_future.wait_for_all()


class TestFuture:
    def test_waits(self) -> None:
        result = ProduceRequestResult(TP)
        future = FutureRecordMetadata(result, 2, 9, -1, 4)
        assert future.running()
        assert not future.cancel()
        assert not future.cancelled()
        with pytest.raises(TimeoutError, match="no response"):
            future.result(0)
        with pytest.raises(TimeoutError, match=r"within 0\.001 s"):
            future.get(timeout=0.001)  # in seconds, as in kafka-python
        got: list[RecordMetadata] = []
        thread = threading.Thread(target=lambda: got.append(future.result(60)))
        thread.start()
        result.set(40, -1, None)
        result.done()
        thread.join(60)
        assert got == [RecordMetadata("t", 3, 42, 9, -1, 4)] == [future.get()]
        assert "t-3@42" in repr(future)

    def test_done_callbacks(self, caplog: pytest.LogCaptureFixture) -> None:
        result = ProduceRequestResult(TP)
        future = FutureRecordMetadata(result, 0, 9, -1, 4)
        seen: list[object] = []

        def bad(_: object) -> None:
            raise RuntimeError("bad listener")

        future.add_done_callback(bad)
        future.add_done_callback(seen.append)
        concurrent = future.to_concurrent()
        assert "pending" in repr(future)
        result.set(-1, -1, ValueError)
        result.done()
        future.add_done_callback(seen.append)
        assert seen == [future, future]
        assert isinstance(concurrent.exception(0), ValueError)
        assert "bad listener" in caplog.text
        with pytest.raises(RuntimeError, match="done already"):
            result.done()


@pytest.mark.mechanism("P12")
def test_waits_that_time_out_leave_nothing_behind() -> None:
    target = batch()
    future = append(target, b"v")
    for _ in range(3):
        with pytest.raises(TimeoutError):
            future.result(0)
    assert not target.has_callbacks
    called: list[str] = []
    future.add_done_callback(lambda _future: called.append("kept"))
    with pytest.raises(TimeoutError):
        future.exception(0)
    target.close()
    target.complete(7, -1)
    assert called == ["kept"]
    assert future.result(0).offset == 7


def test_what_is_learnt_about_compression() -> None:
    estimator = CompressionRatioEstimator()
    zstd = CompressionType.ZSTD
    assert estimator.estimation("t", zstd) == 1.0
    assert estimator.update_estimation("t", zstd, 0.5) == pytest.approx(0.995), "slow to expect more"
    for _ in range(200):
        estimator.update_estimation("t", zstd, 0.5)
    assert estimator.estimation("t", zstd) == 0.5
    assert estimator.update_estimation("t", zstd, 0.51) == pytest.approx(0.55), "quick to expect less"
    assert estimator.update_estimation("t", zstd, 0.9) == pytest.approx(0.9)
    assert estimator.estimation("other", zstd) == 1.0
    estimator.set_estimation("t", zstd, 1.2)
    assert estimator.estimation("t", zstd) == 1.2


@pytest.mark.mechanism("P12")
def test_a_batch_takes_more_records_of_a_topic_that_compresses_well() -> None:
    def filled(estimator: CompressionRatioEstimator) -> int:
        target = batch(CompressionType.GZIP, 1_000, estimator)
        while target.builder.accept(1, None, b"x" * 50, (), None, False, True) is not None:
            pass
        target.close()
        return target.record_count

    estimator = CompressionRatioEstimator()
    first = filled(estimator)
    assert estimator.estimation("t", CompressionType.GZIP) < 1
    estimator.set_estimation("t", CompressionType.GZIP, 0.1)
    assert filled(estimator) > 5 * first
