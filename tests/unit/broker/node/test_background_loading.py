"""What is loaded after the start, and what a stop does to it."""

from __future__ import annotations

import threading

from barnabas.broker.node.background_loading import LOAD_DELAY_MS, LOAD_PERIOD_MS, BackgroundLoading
from barnabas.common.scheduler import MockScheduler


def test_one_step_at_a_time_until_all_are_done() -> None:
    scheduler, done = MockScheduler(), list[int]()
    BackgroundLoading(scheduler, [lambda number=number: done.append(number) for number in range(3)])  # type: ignore[misc]
    scheduler.advance(LOAD_DELAY_MS - 1)
    assert done == []
    scheduler.advance(1)
    assert done == [0]
    scheduler.advance(2 * LOAD_PERIOD_MS)
    assert done == [0, 1, 2]
    scheduler.advance(LOAD_PERIOD_MS)
    assert scheduler.advance(1_000) == 0, "and then never again"


def test_nothing_is_loaded_after_a_stop() -> None:
    scheduler, done = MockScheduler(), list[int]()
    loading = BackgroundLoading(scheduler, [lambda: done.append(1), lambda: done.append(2)])
    scheduler.advance(LOAD_DELAY_MS)
    loading.stop()
    assert scheduler.advance(1_000) == 0
    assert done == [1]


def test_a_stop_waits_for_the_step_that_is_under_way() -> None:
    scheduler = MockScheduler()
    began, go_on, ended = threading.Event(), threading.Event(), list[str]()

    def step() -> None:
        began.set()
        go_on.wait(60)
        ended.append("step")

    loading = BackgroundLoading(scheduler, [step])
    loader = threading.Thread(target=lambda: scheduler.advance(LOAD_DELAY_MS))
    loader.start()
    assert began.wait(60)

    def stop() -> None:
        loading.stop()
        ended.append("stop")

    stopper = threading.Thread(target=stop)
    stopper.start()
    stopper.join(0.05)
    assert stopper.is_alive()
    go_on.set()
    loader.join(60)
    stopper.join(60)
    assert ended == ["step", "stop"]
