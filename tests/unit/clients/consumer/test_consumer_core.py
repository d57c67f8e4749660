"""What an application's thread does for the background thread: listeners, callbacks, errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from barnabas.clients.consumer import ConsumerRebalanceListener, TopicPartition
from barnabas.clients.consumer.errors import IllegalStateError
from barnabas.clients.consumer.internals.background_events import CallbackEvent
from barnabas.clients.consumer.internals.consumer_core import ConsumerCore
from barnabas.clients.consumer.internals.group_events import RebalanceCallback, RebalanceListenerEvent
from barnabas.clients.consumer.testing import ConsumerCluster

T0 = TopicPartition("t", 0)


class Noting(ConsumerRebalanceListener):
    """Notes its calls; may return or raise something."""

    def __init__(self, outcome: Any = None) -> None:
        self.outcome = outcome
        self.calls: list[tuple[TopicPartition, ...]] = []

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> Any:
        self.calls.append(tuple(partitions))
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


class Bench:
    """A consumer's application side, and what the background thread hears of listeners."""

    def __init__(self) -> None:
        self.consumer = ConsumerCluster({"t": 1}).consumer(group_id="g")
        self.core: ConsumerCore = self.consumer._core
        self.events = self.core.parts.background_events
        self.done: list[tuple[int, Exception | None]] = []
        self.core.group.listener_done = lambda *arguments: self.done.append(arguments)  # type: ignore[method-assign]

    def put_call(self, number: int, listener: ConsumerRebalanceListener) -> None:
        self.events.put(RebalanceListenerEvent(number, RebalanceCallback.ASSIGNED, (T0,), listener))

    def heard(self) -> list[tuple[int, type[Exception] | None]]:
        self.core.events.process(self.core.now())
        return [(number, None if error is None else type(error)) for number, error in self.done]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_callback_that_fails_loses_no_event_behind_it(bench: Bench) -> None:
    def fail() -> None:
        raise ValueError("the callback")

    called: list[str] = []
    listener = Noting()
    bench.events.put(CallbackEvent(fail))
    bench.events.put(CallbackEvent(lambda: called.append("callback")))
    bench.put_call(1, listener)
    with pytest.raises(ValueError, match="the callback"):
        bench.core.run(bench.core.process_background_events())
    assert called == ["callback"]
    assert listener.calls == [(T0,)]
    assert bench.heard() == [(1, None)]


def test_a_cancelled_listener_stops_no_rebalance(bench: Bench) -> None:
    """As when a task is cancelled that awaits the listener's coroutine: its steps are closed."""

    class Pending:
        def __await__(self) -> Any:
            yield

    first, second = Noting(Pending()), Noting()
    bench.put_call(1, first)
    bench.put_call(2, second)
    steps = bench.core.process_background_events()
    assert isinstance(next(steps), Pending)
    steps.close()
    ((number, kind),) = bench.heard()
    assert number == 1
    assert kind is not None
    assert not second.calls
    bench.core.run(bench.core.process_background_events())
    assert second.calls == [(T0,)]
    assert bench.heard()[1:] == [(2, None)]


def test_an_interrupted_listener_stops_no_rebalance(bench: Bench) -> None:
    listener = Noting()
    bench.put_call(1, Noting(KeyboardInterrupt()))
    bench.put_call(2, listener)
    with pytest.raises(KeyboardInterrupt):
        bench.core.run(bench.core.process_background_events())
    assert [number for number, _ in bench.heard()] == [1]
    bench.core.run(bench.core.process_background_events())
    assert listener.calls == [(T0,)]


def test_a_coroutine_as_a_listener_of_a_blocking_consumer_is_an_error(bench: Bench) -> None:
    async def wait() -> None: ...

    coroutine = wait()
    bench.put_call(1, Noting(coroutine))
    with pytest.raises(TypeError, match="AsyncKafkaConsumer"):
        bench.core.run(bench.core.process_background_events())
    assert [number for number, _ in bench.heard()] == [1]
    coroutine.close()


# -- close


def test_close_ends_commits_that_got_no_response() -> None:
    cluster = ConsumerCluster({"t": 1})
    consumer = cluster.consumer(group_id="g", enable_auto_commit=False)
    consumer.assign([T0])
    cluster.stop(1)
    commits = [consumer.commit_async({T0: offset}) for offset in (5, 6)]
    consumer.network_thread.run_once()
    assert not any(commit.done() for commit in commits)
    cluster.run(consumer, lambda: consumer.close(0))
    for commit in commits:
        with pytest.raises(IllegalStateError, match="closed"):
            commit.result(0)


class OnlyDeserializes:
    def deserialize(self, _topic: str, _headers: object, data: bytes) -> str:
        return data.decode()


@pytest.mark.parametrize("given", [OnlyDeserializes, OnlyDeserializes()])
def test_a_deserializer_needs_no_other_method(given: object) -> None:
    cluster = ConsumerCluster({"t": 1})
    cluster.append("t", 0, [b"x"])
    consumer = cluster.consumer(value_deserializer=given)
    consumer.assign([T0])
    consumer.seek(T0, 0)
    (record,) = cluster.run(consumer, lambda: consumer.poll(10_000))
    assert record.value == "x"
    cluster.run(consumer, lambda: consumer.close(0))
