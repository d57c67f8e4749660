"""The delay queue and its reaper, step by step."""

from __future__ import annotations

import threading

import pytest

from barnabas.common.clock import MockClock
from barnabas.metrics.registry import Metrics
from barnabas.quota.throttled_channel import DelayQueue, ThrottledChannel, ThrottledChannelReaper
from quota_fixtures import Muting


@pytest.mark.mechanism("Q05")
def test_channels_come_out_when_their_time_is_over_the_earliest_first() -> None:
    clock = MockClock()
    queue = DelayQueue(clock)
    late, early, same = (ThrottledChannel(clock, delay, Muting()) for delay in (300, 100, 300))
    for channel in (late, early, same):
        queue.add(channel)
    assert queue.poll(0) is None
    clock.advance(100)
    assert queue.poll(0) is early
    assert queue.poll(0) is None
    clock.advance(200)
    assert [queue.poll(0), queue.poll(0), queue.poll(0)] == [late, same, None]


@pytest.mark.mechanism("Q05")
def test_a_channel_is_muted_before_anybody_can_unmute_it() -> None:
    muting = Muting()
    channel = ThrottledChannel(MockClock(), 100, muting)
    assert (muting.started, muting.ended) == (1, 0)
    channel.notify_throttling_done()
    assert (muting.started, muting.ended) == (1, 1)


@pytest.mark.mechanism("Q05")
def test_one_that_comes_in_earlier_than_the_others_shortens_the_wait() -> None:
    clock = MockClock()
    queue = DelayQueue(clock)
    found: list[ThrottledChannel | None] = []
    queue.add(ThrottledChannel(clock, 900, Muting()))
    thread = threading.Thread(target=lambda: found.append(queue.poll(1_000)))
    thread.start()
    assert clock.await_waiters(1)
    early = ThrottledChannel(clock, 50, Muting())
    queue.add(early)
    clock.advance(50)
    thread.join(60)
    assert found == [early]


@pytest.mark.mechanism("Q05")
def test_a_shutdown_does_not_wait_for_anybody_who_is_held_back() -> None:
    clock = MockClock()
    queue = DelayQueue(clock)
    muting = Muting()
    queue.add(ThrottledChannel(clock, 1_000_000, muting))
    reaper = ThrottledChannelReaper("reaper", queue, Metrics(clock=clock).sensor("size"), clock)
    reaper.start()
    assert clock.await_waiters(1)
    reaper.shutdown()
    assert not reaper.is_alive()
    assert muting.ended == 0


def test_one_channel_that_cannot_be_unmuted_leaves_no_other_muted(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Muting):
        def end_throttling(self) -> None:
            raise RuntimeError("no such processor")

    clock = MockClock()
    queue = DelayQueue(clock)
    good = Muting()
    queue.add(ThrottledChannel(clock, 0, Broken()))
    queue.add(ThrottledChannel(clock, 0, good))
    reaper = ThrottledChannelReaper("reaper", queue, Metrics(clock=clock).sensor("size"), clock)
    reaper.do_work()
    reaper.do_work()
    assert good.ended == 1
    assert "Cannot unmute" in caplog.text
