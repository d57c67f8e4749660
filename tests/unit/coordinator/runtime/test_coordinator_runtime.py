"""The runtime on a bench, with a state machine that is a table of numbers."""

from __future__ import annotations

from concurrent.futures import Future
from itertools import pairwise
from typing import Any

import pytest

from barnabas.common.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidTxnStateError,
    NotCoordinatorError,
    NotLeaderOrFollowerError,
    RecordTooLargeError,
)
from barnabas.common.snapshot_registry import TimelineHashMap
from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord, CoordinatorRecordSerde
from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.coordinator.runtime.coordinator_shard import ShardContext
from barnabas.coordinator.runtime.coordinator_state import CoordinatorState
from barnabas.coordinator.runtime.transaction_end import TransactionEnd
from barnabas.log.producers.verification_state import VerificationGuard
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.protocol.internal.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from barnabas.protocol.internal.topics import CONSUMER_OFFSETS
from barnabas.records.control import ControlRecordType
from coordinator_fixtures import RuntimeBench, not_leader

P0 = TopicPartition("__consumer_offsets", 0)
P1 = TopicPartition("__consumer_offsets", 1)
SERDE = CoordinatorRecordSerde(CONSUMER_OFFSETS)
COMMIT = TransactionEnd(7, 0, 3, ControlRecordType.COMMIT, 2)


def put(name: str, number: int, padding: int = 0) -> CoordinatorRecord:
    value = OffsetCommitValue(offset=number, metadata="x" * padding)
    return CoordinatorRecord(OffsetCommitKey(group=name), value, 3)


class Table:
    """A shard: numbers by name, those of open transactions apart."""

    def __init__(self, context: ShardContext) -> None:
        self.context = context
        self.numbers: TimelineHashMap[str, int] = TimelineHashMap(context.registry)
        self.pending: TimelineHashMap[tuple[int, str], int] = TimelineHashMap(context.registry)
        self.images: list[MetadataImage] = []
        self.unloaded = False
        self.offsets: list[int] = []
        self.refuses: str | None = None

    def on_loaded(self, image: MetadataImage) -> None:
        self.images.append(image)

    def on_unloaded(self) -> None:
        self.unloaded = True

    def on_new_metadata_image(self, image: MetadataImage, delta: MetadataDelta) -> None:
        self.images.append(image)

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        assert isinstance(record.key, OffsetCommitKey)
        assert isinstance(record.value, OffsetCommitValue)
        if record.key.group == self.refuses:
            raise ValueError("cannot be replayed")
        self.offsets.append(offset)
        if producer_id >= 0:
            self.pending[producer_id, record.key.group] = record.value.offset
        else:
            self.numbers[record.key.group] = record.value.offset

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, result: ControlRecordType) -> None:
        for key in [key for key in self.pending if key[0] == producer_id]:
            number = self.pending.pop(key)
            if result is ControlRecordType.COMMIT:
                assert number is not None
                self.numbers[key[1]] = number

    def put(self, *records: CoordinatorRecord, **options: Any) -> CoordinatorResult[int]:
        return CoordinatorResult(records, len(self.numbers), **options)


def bench(**options: Any) -> RuntimeBench[Table]:
    made: RuntimeBench[Table] = RuntimeBench(Table, SERDE, **options)
    return made


def loaded(**options: Any) -> RuntimeBench[Table]:
    made = bench(**options)
    made.load(P0)
    return made


def table(box: RuntimeBench[Table], partition: TopicPartition = P0) -> Table:
    return box.runtime.schedule_read_operation("look", partition, lambda shard, _: shard).result(0)


def committed(box: RuntimeBench[Table], partition: TopicPartition = P0) -> dict[str, int]:
    return dict(
        box.runtime.schedule_read_operation(
            "look", partition, lambda shard, offset: shard.numbers.items_at(offset)
        ).result(0)
    )


def write(box: RuntimeBench[Table], *records: CoordinatorRecord, **options: Any) -> Future[int]:
    return box.runtime.schedule_write_operation("put", P0, lambda shard: shard.put(*records, **options))


# -- who is responsible


def test_a_partition_that_is_not_here() -> None:
    box = bench()
    assert box.runtime.is_loading(P0), "or the news of who leads it has not come yet"
    with pytest.raises(NotCoordinatorError):
        write(box, put("a", 1)).result(0)
    with pytest.raises(NotCoordinatorError):
        committed(box)


@pytest.mark.mechanism("R09")
def test_a_partition_that_is_being_loaded_says_so() -> None:
    box = bench()
    box.loader.holds = True
    box.load(P0)
    assert box.runtime.state_of(P0) is CoordinatorState.LOADING
    assert box.runtime.is_loading(P0)
    with pytest.raises(CoordinatorLoadInProgressError):
        write(box, put("a", 1)).result(0)
    box.loader.release()
    assert box.runtime.state_of(P0) is CoordinatorState.ACTIVE
    assert not box.runtime.is_loading(P0)
    assert write(box, put("a", 1)).result(0) == 0


def test_a_load_that_fails_is_tried_again_at_the_next_election() -> None:
    box = bench()
    box.loader.fails_with = OSError("disk")
    box.load(P0)
    assert box.runtime.state_of(P0) is CoordinatorState.FAILED
    assert not box.runtime.is_loading(P0), "it is over"
    with pytest.raises(NotCoordinatorError):
        write(box, put("a", 1)).result(0)
    box.loader.fails_with = None
    box.load(P0, 1)
    assert write(box, put("a", 1)).result(0) == 0


def test_an_unload_ends_everything() -> None:
    box = loaded()
    box.writer.commits_at_once = False
    waiting = write(box, put("a", 1))
    shard = box.runtime.schedule_read_operation("look", P0, lambda shard, _: shard).result(0)
    shard.context.timer.schedule("t", 10, lambda: shard.put(put("t", 1)))
    box.runtime.schedule_unload_operation(P0, 1).result(0)
    with pytest.raises(NotCoordinatorError):
        waiting.result(0)
    assert shard.unloaded
    assert box.runtime.partitions() == []
    assert box.timer.size() == 0
    assert not box.writer.logs[P0].listeners


def test_old_news_about_leadership_are_ignored() -> None:
    box = bench()
    box.load(P0, 5)
    box.runtime.schedule_unload_operation(P0, 5).result(0)
    box.runtime.schedule_unload_operation(P0, 4).result(0)
    assert box.runtime.state_of(P0) is CoordinatorState.ACTIVE
    box.load(P0, 4)
    assert box.loader.loads == 1
    box.load(P0, 6)
    assert box.loader.loads == 1, "it is active: nothing has to be read again"
    box.runtime.schedule_unload_operation(P0, 6).result(0)
    assert box.runtime.state_of(P0) is CoordinatorState.ACTIVE
    box.runtime.schedule_unload_operation(P0, None).result(0)
    assert box.runtime.state_of(P0) is None


def test_an_unload_during_a_load() -> None:
    box = bench()
    box.loader.holds = True
    box.load(P0)
    box.runtime.schedule_unload_operation(P0, 1).result(0)
    box.loader.release()
    assert box.runtime.state_of(P0) is None


@pytest.mark.parametrize("source", CoordinatorState)
@pytest.mark.parametrize("target", CoordinatorState)
def test_the_states_of_a_partition(source: CoordinatorState, target: CoordinatorState) -> None:
    state = CoordinatorState
    legal = {
        (state.INITIAL, state.LOADING),
        (state.FAILED, state.LOADING),
        (state.LOADING, state.ACTIVE),
        (state.LOADING, state.FAILED),
        (state.ACTIVE, state.FAILED),
        *((any_state, state.CLOSED) for any_state in CoordinatorState if any_state is not state.CLOSED),
    }
    assert source.can_transition_to(target) == ((source, target) in legal)


# -- writing


@pytest.mark.mechanism("R09")
def test_a_response_waits_until_its_records_are_committed() -> None:
    box = loaded()
    box.writer.commits_at_once = False
    first = write(box, put("a", 1))
    second = write(box, put("b", 2))
    assert not first.done()
    assert table(box).numbers.present == {"a": 1, "b": 2}, "the next operation sees it"
    assert committed(box) == {}, "readers do not"
    box.writer.commit(P0, 1)
    assert first.result(0) == 0
    assert not second.done()
    assert committed(box) == {"a": 1}
    box.writer.commit(P0)
    assert second.result(0) == 1
    assert committed(box) == {"a": 1, "b": 2}


def test_a_response_without_records_waits_for_what_it_rests_upon() -> None:
    box = loaded()
    assert write(box).result(0) == 0
    box.writer.commits_at_once = False
    write(box, put("a", 1))
    looked = write(box)
    assert not looked.done()
    box.writer.commit(P0)
    assert looked.result(0) == 1


@pytest.mark.mechanism("R09")
def test_a_write_that_fails_leaves_no_trace() -> None:
    box = loaded()
    write(box, put("a", 1)).result(0)
    box.writer.fails_with = not_leader()
    with pytest.raises(NotLeaderOrFollowerError):
        write(box, put("a", 2), put("b", 2)).result(0)
    assert table(box).numbers.present == {"a": 1}
    box.writer.fails_with = None
    write(box, put("c", 3)).result(0)
    assert committed(box) == {"a": 1, "c": 3}
    assert table(box).offsets == [0, 1, 2, 1], "the offsets of the failed ones are given out again"


def test_a_record_that_cannot_be_replayed_leaves_no_trace() -> None:
    box = loaded()
    table(box).refuses = "bad"
    with pytest.raises(ValueError, match="cannot be replayed"):
        write(box, put("a", 1), put("bad", 2)).result(0)
    assert table(box).numbers.present == {}
    assert not box.writer.logs[P0].batches


def test_an_operation_that_raises_changes_nothing() -> None:
    box = loaded()

    def operation(shard: Table) -> CoordinatorResult[None]:
        raise InvalidTxnStateError

    with pytest.raises(InvalidTxnStateError):
        box.runtime.schedule_write_operation("fail", P0, operation).result(0)
    assert write(box, put("a", 1)).result(0) == 0


def test_a_write_that_is_not_committed_in_time() -> None:
    box = loaded()
    box.writer.commits_at_once = False
    waiting = box.runtime.schedule_write_operation("put", P0, lambda shard: shard.put(put("a", 1)), timeout_ms=100)
    box.advance(99)
    assert not waiting.done()
    box.advance(1)
    with pytest.raises(TimeoutError):
        waiting.result(0)
    box.writer.commit(P0)
    assert committed(box) == {"a": 1}, "it may still come, and then it counts"


def test_append_futures_are_told() -> None:
    box = loaded()
    good: Future[None] = Future()
    write(box, put("a", 1), append_future=good).result(0)
    assert good.result(0) is None
    bad: Future[None] = Future()
    box.writer.fails_with = not_leader()
    write(box, put("a", 1), append_future=bad)
    assert isinstance(bad.exception(0), NotLeaderOrFollowerError)


def test_records_that_are_not_to_be_replayed_are_only_written() -> None:
    box = loaded()
    write(box, put("a", 1), replay_records=False).result(0)
    assert table(box).numbers.present == {}
    assert len(box.records(P0)) == 1


# -- batches


def test_an_idle_partition_writes_at_once() -> None:
    box = loaded()
    write(box, put("a", 1))
    write(box, put("b", 1))
    assert [batch.record_count for batch in box.writer.logs[P0].batches] == [1, 1]


def test_a_busy_partition_writes_what_has_piled_up_together() -> None:
    box = loaded()
    box.processor.hold()
    answers = [write(box, put(name, 1)) for name in "abc"]
    box.processor.release()
    assert [answer.result(0) for answer in answers] == [0, 1, 2]
    assert [batch.record_count for batch in box.writer.logs[P0].batches] == [3]


def test_a_batch_that_waits_for_news_of_the_high_watermark_is_written_after_them() -> None:
    """Followers report at any time, also while an operation runs. Nothing else may come after that."""
    box = loaded()
    box.writer.commits_at_once = False
    first = write(box, put("a", 1))

    def operation(shard: Table) -> CoordinatorResult[int]:
        box.writer.commit(P0)
        return shard.put(put("b", 2))

    second = box.runtime.schedule_write_operation("put", P0, operation)
    assert first.result(0) == 0
    assert box.writer.logs[P0].end_offset == 2
    box.writer.commit(P0)
    assert second.result(0) == 1


def test_a_batch_that_waits_for_an_event_that_fails_is_written_after_it() -> None:
    box = loaded()
    box.processor.hold()
    waiting = write(box, put("a", 1))

    def fail() -> None:
        raise ValueError("a bug")

    failed = box.runtime.run_in_loop("fail", P0, fail)
    box.processor.release()
    assert isinstance(failed.exception(0), ValueError)
    assert waiting.result(0) == 0


def test_all_in_a_batch_fail_together() -> None:
    box = loaded()
    box.writer.fails_with = not_leader()
    box.processor.hold()
    answers = [write(box, put(name, 1)) for name in "abc"]
    box.processor.release()
    for answer in answers:
        assert isinstance(answer.exception(0), NotLeaderOrFollowerError)
    assert table(box).numbers.present == {}


def test_a_linger_time_collects() -> None:
    box = loaded(linger_ms=10)
    answers = [write(box, put(name, 1)) for name in "ab"]
    assert not box.writer.logs[P0].batches
    box.advance(10)
    assert [answer.result(0) for answer in answers] == [0, 1]
    assert [batch.record_count for batch in box.writer.logs[P0].batches] == [2]


def test_without_linger_each_operation_writes() -> None:
    box = loaded(linger_ms=0)
    box.processor.hold()
    for name in "ab":
        write(box, put(name, 1))
    box.processor.release()
    assert [batch.record_count for batch in box.writer.logs[P0].batches] == [1, 1]


def test_a_full_batch_is_written_and_another_begun() -> None:
    box = loaded(linger_ms=1000)
    box.writer.size_limit = 1000
    answers = [write(box, put(name, 1, padding=500)) for name in "abc"]
    assert [batch.record_count for batch in box.writer.logs[P0].batches] == [1, 1]
    box.advance(1000)
    assert [answer.result(0) for answer in answers] == [0, 1, 2]


def test_what_belongs_together_must_fit_into_a_batch() -> None:
    box = loaded()
    box.writer.size_limit = 1000
    with pytest.raises(RecordTooLargeError):
        write(box, *(put(name, 1, padding=500) for name in "abc")).result(0)
    assert table(box).numbers.present == {}
    write(box, *(put(name, 1, padding=500) for name in "abc"), is_atomic=False).result(0)
    assert [batch.record_count for batch in box.writer.logs[P0].batches] == [1, 1, 1]
    assert all(batch.size_in_bytes <= 1000 for batch in box.writer.logs[P0].batches)


def test_an_operation_on_a_batch_that_turns_out_to_be_lost_is_lost_too() -> None:
    """It has seen state that never came to be."""
    box = loaded(linger_ms=1000)
    box.writer.size_limit = 1000
    first = write(box, put("a", 1, padding=400))
    box.writer.fails_with = not_leader()
    second = write(box, put("b", 1, padding=600))
    assert isinstance(first.exception(0), NotLeaderOrFollowerError)
    assert isinstance(second.exception(0), NotLeaderOrFollowerError)
    assert table(box).numbers.present == {}


def test_a_log_that_somebody_else_wrote_to_is_loaded_again() -> None:
    box = loaded()
    write(box, put("a", 1)).result(0)
    other = bench(writer=box.writer)
    other.load(P0)
    write(other, put("a", 2)).result(0)
    with pytest.raises(NotCoordinatorError):
        write(box, put("b", 1)).result(0)
    assert box.loader.loads == 2
    assert box.runtime.state_of(P0) is CoordinatorState.ACTIVE
    assert table(box).numbers.present == {"a": 2, "b": 1}


# -- replay


@pytest.mark.mechanism("R09")
def test_what_is_loaded_is_what_was() -> None:
    box = loaded()
    write(box, put("a", 1), put("b", 2)).result(0)
    write(box, put("a", 3)).result(0)
    restarted = bench(writer=box.writer)
    restarted.load(P0)
    assert table(restarted).numbers.present == table(box).numbers.present == {"a": 3, "b": 2}
    write(restarted, put("c", 4)).result(0)
    assert committed(restarted) == {"a": 3, "b": 2, "c": 4}


def test_what_is_loaded_but_not_committed_is_not_shown() -> None:
    box = loaded()
    write(box, put("a", 1)).result(0)
    box.writer.commits_at_once = False
    write(box, put("b", 2))
    restarted = bench(writer=box.writer)
    restarted.load(P0)
    assert committed(restarted) == {"a": 1}
    box.writer.commit(P0)
    assert committed(restarted) == {"a": 1, "b": 2}


# -- transactions


def transactional(box: RuntimeBench[Table], *records: CoordinatorRecord) -> Future[int]:
    return box.runtime.schedule_transactional_write_operation(
        "txn", P0, "t", 7, 0, lambda shard: shard.put(*records), 5
    )


@pytest.mark.parametrize("result", [ControlRecordType.COMMIT, ControlRecordType.ABORT])
def test_a_transaction(result: ControlRecordType) -> None:
    box = loaded()
    transactional(box, put("a", 1)).result(0)
    batch = box.writer.logs[P0].batches[0]
    assert (batch.is_transactional, batch.producer_id, batch.producer_epoch) == (True, 7, 0)
    assert committed(box) == {}
    box.runtime.schedule_transaction_completion("end", P0, TransactionEnd(7, 0, 3, result, 2)).result(0)
    marker = box.writer.logs[P0].batches[1]
    assert marker.is_control_batch
    assert box.writer.transaction_versions[-1] == 2
    expected = {"a": 1} if result is ControlRecordType.COMMIT else {}
    assert committed(box) == expected
    restarted = bench(writer=box.writer)
    restarted.load(P0)
    assert committed(restarted) == expected


def test_a_transaction_does_not_share_its_batch() -> None:
    box = loaded(linger_ms=1000)
    write(box, put("a", 1))
    transactional(box, put("b", 1))
    write(box, put("c", 1))
    box.advance(1000)
    assert [batch.is_transactional for batch in box.writer.logs[P0].batches] == [False, True, False]


def test_a_transaction_is_verified_first() -> None:
    box = loaded()
    verified = box.writer.verification = Future()
    answer = transactional(box, put("a", 1))
    assert box.writer.verifications == [(P0, "t", 7, 0, 5)]
    assert not box.writer.logs[P0].batches
    guard = VerificationGuard()
    verified.set_result(guard)
    answer.result(0)
    assert box.writer.guards[-1] is guard
    refused = box.writer.verification = Future()
    answer = transactional(box, put("b", 1))
    refused.set_exception(InvalidTxnStateError())
    with pytest.raises(InvalidTxnStateError):
        answer.result(0)


def test_a_marker_that_cannot_be_written_ends_nothing() -> None:
    box = loaded()
    transactional(box, put("a", 1)).result(0)
    box.writer.fails_with = not_leader()
    with pytest.raises(NotLeaderOrFollowerError):
        box.runtime.schedule_transaction_completion("end", P0, COMMIT).result(0)
    assert table(box).pending.present == {(7, "a"): 1}
    box.writer.fails_with = None
    box.runtime.schedule_transaction_completion("end", P0, COMMIT).result(0)
    assert committed(box) == {"a": 1}


def test_a_marker_that_is_not_committed_in_time() -> None:
    box = loaded()
    box.writer.commits_at_once = False
    answer = box.runtime.schedule_transaction_completion("end", P0, COMMIT, timeout_ms=50)
    box.advance(50)
    with pytest.raises(TimeoutError):
        answer.result(0)


# -- timers


def test_a_timer_writes_when_its_time_has_come() -> None:
    box = loaded()
    shard = table(box)
    shard.context.timer.schedule("t", 100, lambda: shard.put(put("t", 1)))
    assert shard.context.timer.is_scheduled("t")
    box.advance(99)
    assert committed(box) == {}
    box.advance(1)
    assert committed(box) == {"t": 1}
    assert not shard.context.timer.is_scheduled("t")


def test_scheduling_a_key_again_replaces_it() -> None:
    box = loaded()
    shard = table(box)
    shard.context.timer.schedule("t", 100, lambda: shard.put(put("t", 1)))
    box.advance(50)
    shard.context.timer.schedule("t", 100, lambda: shard.put(put("t", 2)))
    shard.context.timer.schedule_if_absent("t", 1, lambda: shard.put(put("t", 3)))
    box.advance(99)
    assert committed(box) == {}
    box.advance(1)
    assert committed(box) == {"t": 2}
    assert len(box.records(P0)) == 1


def test_a_timer_that_is_cancelled_while_it_is_in_line() -> None:
    box = loaded()
    shard = table(box)
    shard.context.timer.schedule("t", 10, lambda: shard.put(put("t", 1)))
    box.processor.hold()

    def cancel(shard: Table) -> CoordinatorResult[int]:
        shard.context.timer.cancel("t")
        return shard.put()

    box.runtime.schedule_write_operation("cancel", P0, cancel)
    box.advance(10)
    box.processor.release()
    assert committed(box) == {}


def test_a_timer_whose_write_failed_tries_again() -> None:
    box = loaded()
    shard = table(box)
    shard.context.timer.schedule("t", 10, lambda: shard.put(put("t", 1)))
    shard.context.timer.schedule("once", 10, lambda: shard.put(put("once", 1)), retry=False)
    box.writer.fails_with = not_leader()
    box.advance(10)
    assert committed(box) == {}
    box.writer.fails_with = None
    box.advance(499)
    assert committed(box) == {}
    box.advance(1)
    assert committed(box) == {"t": 1}


@pytest.mark.parametrize("retry", [True, False])
def test_a_timer_whose_operation_raises_tries_again_ever_more_slowly(retry: bool) -> None:
    """Or a session would never expire, and a rebalance never end, because of one bad moment."""
    box = loaded()
    shard = table(box)
    runs = []

    def fail_nine_times() -> CoordinatorResult[int]:
        runs.append(box.clock.milliseconds())
        if len(runs) < 10:
            raise ValueError("not now")
        return shard.put(put("t", 1))

    shard.context.timer.schedule("t", 10, fail_nine_times, retry=retry)
    for _ in range(250):
        box.advance(1000)
    waits_ms = [after - before for before, after in pairwise(runs)]
    assert waits_ms == [500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]
    assert committed(box) == {"t": 1}
    assert box.timer.size() == 0


def test_a_timer_that_raised_is_not_tried_again_if_it_was_scheduled_anew() -> None:
    box = loaded()
    shard = table(box)
    shard.context.timer.schedule("t", 10, lambda: 1 / 0, retry=False)  # type: ignore[arg-type, return-value]
    box.advance(10)
    shard.context.timer.schedule("t", 50, lambda: shard.put(put("t", 2)))
    box.advance(50)
    assert committed(box) == {"t": 2}
    box.advance(1000)
    assert len(box.records(P0)) == 1


def test_a_timer_does_not_try_again_where_it_is_not_responsible() -> None:
    box = loaded()
    shard = table(box)

    def fail() -> CoordinatorResult[None]:
        raise CoordinatorNotAvailableError

    shard.context.timer.schedule("t", 10, fail)
    box.advance(10)
    assert box.timer.size() == 0


# -- tasks


def test_a_task_runs_beside_the_loop_and_comes_back_to_it() -> None:
    box = loaded()
    shard = table(box)
    box.pool.holds = True
    executor = shard.context.executor
    assert executor.schedule("k", lambda: 5, lambda found, _: shard.put(put("k", found or 0)))
    assert not executor.schedule("k", lambda: 6, lambda found, _: shard.put(put("k", found or 0)))
    assert executor.is_scheduled("k")
    box.pool.release()
    assert committed(box) == {"k": 5}
    assert not executor.is_scheduled("k")


def test_a_task_that_fails_or_is_cancelled() -> None:
    box = loaded()
    shard = table(box)
    errors: list[BaseException | None] = []

    def task() -> int:
        raise OSError("no")

    def operation(found: int | None, error: BaseException | None) -> CoordinatorResult[int]:
        assert found is None
        errors.append(error)
        return shard.put()

    shard.context.executor.schedule("k", task, operation)
    assert isinstance(errors[0], OSError)
    box.pool.holds = True
    shard.context.executor.schedule("k", task, operation)
    shard.context.executor.cancel("k")
    box.pool.release()
    assert len(errors) == 1


# -- metadata, all partitions, the end


def test_shards_hear_of_metadata() -> None:
    box = bench()
    box.loader.holds = True
    box.load(P0)
    image = MetadataImage()
    box.runtime.on_new_metadata_image(image, MetadataDelta(EMPTY_IMAGE))
    box.loader.release()
    assert [one is image for one in table(box).images] == [True], "when it is loaded"
    later = MetadataImage()
    box.runtime.on_new_metadata_image(later, MetadataDelta(image))
    assert table(box).images[-1] is later


def test_operations_on_all_partitions() -> None:
    box = loaded()
    box.load(P1)
    answers = box.runtime.schedule_write_all_operation("put", lambda shard: shard.put(put("a", 1)))
    assert [answer.result(0) for answer in answers] == [0, 0]
    looks = box.runtime.schedule_read_all_operation("look", lambda shard, _: shard.context.partition)
    assert [look.result(0) for look in looks] == [P0, P1]


def test_closing() -> None:
    box = loaded()
    box.writer.commits_at_once = False
    waiting = write(box, put("a", 1))
    shard = box.runtime.schedule_read_operation("look", P0, lambda shard, _: shard).result(0)
    box.runtime.close()
    box.runtime.close()
    with pytest.raises(NotCoordinatorError):
        waiting.result(0)
    assert shard.unloaded
    assert box.loader.closed
    assert box.runtime.states() == []
