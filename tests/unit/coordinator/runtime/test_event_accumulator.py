from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from barnabas.common.errors import NotCoordinatorError
from barnabas.coordinator.runtime.event_accumulator import EventAccumulator
from barnabas.coordinator.runtime.event_processor import MultiThreadedEventProcessor
from barnabas.log.dirs.log_dir_pace import LogDirPaces


@dataclass(frozen=True)
class Event:
    key: str
    number: int


def test_events_of_a_key_come_in_order_and_one_at_a_time() -> None:
    accumulator: EventAccumulator[str, Event] = EventAccumulator()
    for number in range(3):
        accumulator.add_last(Event("a", number))
    assert accumulator.poll() == Event("a", 0)
    assert accumulator.poll() is None, "the key is taken"
    accumulator.done("a")
    assert accumulator.poll() == Event("a", 1)
    accumulator.done("a")
    assert len(accumulator) == 1


def test_a_key_that_is_taken_does_not_hold_up_others() -> None:
    accumulator: EventAccumulator[str, Event] = EventAccumulator()
    accumulator.add_last(Event("a", 0))
    accumulator.add_last(Event("a", 1))
    accumulator.add_last(Event("b", 0))
    assert accumulator.poll() == Event("a", 0)
    assert accumulator.poll() == Event("b", 0)
    assert accumulator.poll() is None


def test_first_goes_before_what_waits() -> None:
    accumulator: EventAccumulator[str, Event] = EventAccumulator()
    accumulator.add_last(Event("a", 0))
    accumulator.add_first(Event("a", 1))
    assert accumulator.poll() == Event("a", 1)


def test_a_key_can_be_begun_only_if_it_is_free_and_nothing_waits() -> None:
    accumulator: EventAccumulator[str, Event] = EventAccumulator()
    assert accumulator.try_begin("a")
    assert not accumulator.try_begin("a")
    accumulator.add_last(Event("a", 0))
    assert accumulator.poll() is None
    accumulator.done("a")
    assert not accumulator.try_begin("a"), "it would overtake"
    assert accumulator.poll() == Event("a", 0)


def test_closing_hands_back_what_waits_and_takes_no_more() -> None:
    accumulator: EventAccumulator[str, Event] = EventAccumulator()
    accumulator.add_last(Event("a", 0))
    assert accumulator.close() == [Event("a", 0)]
    assert accumulator.poll(None) is None
    assert not accumulator.try_begin("a")
    with pytest.raises(RuntimeError):
        accumulator.add_last(Event("a", 1))


class Step:
    """An event that notes when it runs."""

    def __init__(self, key: str, run: object = None) -> None:
        self.key = key
        self._run = run
        self.done = threading.Event()
        self.error: BaseException | None = None
        self.thread = ""

    def run(self) -> None:
        self.thread = threading.current_thread().name
        if callable(self._run):
            self._run()
        self.done.set()

    def complete(self, error: BaseException | None) -> None:
        self.error = error
        self.done.set()


@pytest.mark.mechanism("R09")
def test_threads_run_the_events_of_a_key_one_after_the_other() -> None:
    processor = MultiThreadedEventProcessor("test", 4)
    seen: dict[str, list[int]] = {"a": [], "b": []}
    busy: dict[str, int] = {"a": 0, "b": 0}
    overlaps: list[str] = []

    def work(key: str, number: int) -> None:
        busy[key] += 1
        if busy[key] > 1:
            overlaps.append(key)
        seen[key].append(number)
        busy[key] -= 1

    steps = [Step(key, lambda key=key, number=number: work(key, number)) for number in range(200) for key in seen]
    for step in steps:
        processor.enqueue_last(step)
    for step in steps:
        assert step.done.wait(60)
    processor.close()
    assert not overlaps
    assert seen == {"a": list(range(200)), "b": list(range(200))}
    assert steps[0].thread.startswith("test-event-processor-")


def test_inline_runs_on_the_spot_but_never_out_of_turn() -> None:
    processor = MultiThreadedEventProcessor("test", 1, inline=True)
    order: list[str] = []
    inner = Step("a", lambda: order.append("inner"))

    def outer() -> None:
        processor.enqueue_last(inner)
        assert not inner.done.is_set() or inner.thread != threading.current_thread().name
        order.append("outer")

    step = Step("a", outer)
    processor.enqueue_last(step)
    assert step.thread == threading.current_thread().name
    assert inner.done.wait(60)
    assert inner.thread == "test-event-processor-0"
    processor.close()
    assert order == ["outer", "inner"]


class TestSlowLogDirectory:
    """The log of the partition "slow" is in a directory that is slow."""

    @pytest.fixture
    def paces(self) -> Iterator[LogDirPaces]:
        paces = LogDirPaces()
        paces.of(Path("/disk2")).wrote(2_000_000_000)
        yield paces
        paces.close()

    @pytest.fixture
    def processor(self, paces: LogDirPaces) -> Iterator[MultiThreadedEventProcessor]:
        lane = paces.of(Path("/disk2")).coordination
        processor = MultiThreadedEventProcessor(
            "test", 1, inline=True, paces=paces, lane_of=lambda key: lane if key == "slow" else None
        )
        yield processor
        processor.close()

    def test_its_events_run_in_its_lane_and_in_order(self, processor: MultiThreadedEventProcessor) -> None:
        entered, leave = threading.Event(), threading.Event()
        order: list[int] = []

        def write() -> None:
            entered.set()
            assert leave.wait(60)
            order.append(0)

        first, *others = steps = [
            Step("slow", write),
            *(Step("slow", lambda number=number: order.append(number)) for number in (1, 2, 3)),
        ]
        for step in steps:
            processor.enqueue_last(step)
        assert entered.wait(60)
        inline, queued = Step("quick"), Step("other")
        processor.enqueue_last(inline)
        assert inline.done.is_set(), "on this thread, which has not waited"
        processor.enqueue_first(queued)
        assert queued.done.wait(60), "on the one event thread, which has not waited either"
        assert queued.thread == "test-event-processor-0"
        assert not order
        leave.set()
        for step in others:
            assert step.done.wait(60)
        assert order == [0, 1, 2, 3]
        assert {step.thread.rpartition("-")[0] for step in steps} == {"slow-log-dir-coordinator-disk2"}
        assert first.error is None

    def test_what_an_event_of_a_lane_adds_comes_after_it(self, processor: MultiThreadedEventProcessor) -> None:
        order: list[str] = []
        inner = Step("slow", lambda: order.append("inner"))

        def outer() -> None:
            processor.enqueue_last(inner)
            order.append("outer")

        processor.enqueue_last(Step("slow", outer))
        assert inner.done.wait(60)
        assert order == ["outer", "inner"]


def test_an_event_that_fails_hears_of_it() -> None:
    processor = MultiThreadedEventProcessor("test", 1)

    def fail() -> None:
        raise ValueError("no")

    step = Step("a", fail)
    processor.enqueue_last(step)
    assert step.done.wait(60)
    assert isinstance(step.error, ValueError)
    processor.close()


def test_what_waits_at_the_end_is_told_to_go_elsewhere() -> None:
    processor = MultiThreadedEventProcessor("test", 0)
    before, after = Step("a"), Step("a")
    processor.enqueue_last(before)
    processor.close()
    processor.close()
    processor.enqueue_last(after)
    assert isinstance(before.error, NotCoordinatorError)
    assert isinstance(after.error, NotCoordinatorError)


def test_closing_waits_for_an_event_that_runs_on_another_thread() -> None:
    processor = MultiThreadedEventProcessor("test", 1, inline=True)
    entered, leave = threading.Event(), threading.Event()
    order: list[str] = []

    def slow() -> None:
        entered.set()
        assert leave.wait(60)
        order.append("event")

    def close() -> None:
        processor.close()
        order.append("closed")

    running = threading.Thread(target=processor.enqueue_last, args=(Step("a", slow),))
    running.start()
    assert entered.wait(60)
    closing = threading.Thread(target=close)
    closing.start()
    leave.set()
    running.join(60)
    closing.join(60)
    assert order == ["event", "closed"]
