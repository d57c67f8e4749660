"""The moments of a request and what becomes of them, in both implementations."""

from __future__ import annotations

import importlib
import os
import random
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from barnabas._kernels.pure import metrics as pure_metrics
from barnabas._kernels.pure import timeline as pure_timeline
from barnabas.network.reactor.memory_pool import UNBOUNDED, SimpleMemoryPool
from barnabas.protocol.api_keys import ApiKey

NOT_SET = pure_timeline.NOT_SET

Kit = tuple[ModuleType, ModuleType, ModuleType]
"""Timelines and the two kinds of metrics that they are written to."""
IMPLEMENTATIONS: list[Kit] = [(pure_timeline, pure_metrics, pure_metrics)]
try:
    IMPLEMENTATIONS.append(
        (
            importlib.import_module("barnabas._kernels.compiled.timeline"),
            importlib.import_module("barnabas._kernels.compiled.metrics"),
            importlib.import_module("barnabas._kernels.compiled.metrics"),
        )
    )
except ImportError:
    # Built without a compiler. A CI run must not lose half of these tests.
    assert os.environ.get("CI") != "true", "the compiled timelines are not built"
needs_both = pytest.mark.skipif(len(IMPLEMENTATIONS) < 2, reason="the compiled timelines are not built")

MOMENTS = (
    "request_dequeue_time_ns",
    "api_local_complete_time_ns",
    "response_complete_time_ns",
    "response_dequeue_time_ns",
    "callback_request_dequeue_time_ns",
    "callback_request_complete_time_ns",
)


@pytest.fixture(params=IMPLEMENTATIONS, ids=lambda kit: kit[0].__name__.rpartition(".")[2])
def kit(request: pytest.FixtureRequest) -> Any:
    return request.param


class Context:
    connection_id = "c"


class Metrics:
    """What an API's metrics are to a timeline."""

    def __init__(self, kit: Kit) -> None:
        self.table = kit[1].BucketTable(8, 0.0, 0)
        self._new_count: Callable[[], Any] = lambda: kit[2].EventCount(0)
        self.counts: dict[int, Any] = {}

    def new_count(self, version: int) -> Any:
        return self.counts.setdefault(version, self._new_count())

    def read(self) -> list[Any]:
        return [self.table.read(column) for column in range(8)]


def timeline(kit: Kit, *, start_ns: int = 100, pool: Any = UNBOUNDED, times: Any = None, version: int = 9) -> Any:
    payload = memoryview(b"0123456789")
    return kit[0].Timeline(3, Context, (ApiKey.FETCH, version, 5, "me", 6), payload, pool, start_ns, times)


@pytest.mark.mechanism("N20")
def test_a_timeline_begins_with_what_the_header_says_and_no_moment_but_the_first(kit: Kit) -> None:
    one = timeline(kit)
    assert (one.api_key, one.api_version, one.correlation_id, one.client_id) == (ApiKey.FETCH, 9, 5, "me")
    assert (one.body_start, one.processor_id, one.connection_id, one.size, one.start_time_ns) == (6, 3, "c", 10, 100)
    assert [getattr(one, name) for name in MOMENTS] == [NOT_SET] * 6
    assert (one.api_throttle_time_ms, one.record_network_thread_time, one.awaits_response) == (0, None, True)


@pytest.mark.parametrize("header", [(), (ApiKey.FETCH, 1, 2, None)])
def test_half_a_header_is_none(kit: Kit, header: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError)):
        kit[0].Timeline(3, Context, header, memoryview(b""), UNBOUNDED, 0, None)


@pytest.mark.mechanism("N20")
def test_the_response_is_a_moment_and_ends_what_was_going_on(kit: Kit) -> None:
    one = timeline(kit)
    assert one.finish(7)
    assert (one.response_complete_time_ns, one.api_local_complete_time_ns) == (7, 7)
    assert one.callback_request_complete_time_ns == NOT_SET
    assert not one.finish(8)
    assert (one.response_complete_time_ns, one.awaits_response) == (7, False)
    other = timeline(kit)
    other.api_local_complete_time_ns = 3
    other.callback_request_dequeue_time_ns = 5
    assert other.finish(7)
    assert (other.api_local_complete_time_ns, other.callback_request_complete_time_ns) == (3, 7)


@pytest.mark.mechanism("N10")
def test_of_many_threads_one_gives_the_response(kit: Kit) -> None:
    for _ in range(50):
        one = timeline(kit)
        start = threading.Barrier(4)
        won: list[bool] = []

        def claim(one: Any = one, start: threading.Barrier = start, won: list[bool] = won) -> None:
            start.wait()
            won.append(one.claim_response())

        threads = [threading.Thread(target=claim) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(won) == [False, False, False, True]


@pytest.mark.mechanism("N12")
def test_the_buffer_is_given_back_once(kit: Kit) -> None:
    pool = SimpleMemoryPool(10, 10)
    assert pool.try_reserve(10)
    one = timeline(kit, pool=pool)
    one.handler_done(lambda: 42)
    assert (one.buffer, one.api_local_complete_time_ns, pool.available) == (None, 42, 10)
    one.release_buffer()
    one.handler_done(lambda: 43)
    assert (one.api_local_complete_time_ns, pool.available) == (42, 10)


@pytest.mark.mechanism("N20")
def test_the_end_is_told_to_the_quota_and_to_the_metrics(kit: Kit) -> None:
    recorded: list[Any] = []

    class Times:
        def record(self, request: Any, response: Any) -> None:
            recorded.append((request, response))

    one = timeline(kit, times=Times())
    spent: list[int] = []
    one.complete(5, "first")
    one.record_network_thread_time = spent.append
    one.complete(0, "second")
    one.complete(7, "third")
    assert spent == [7]
    assert recorded == [(one, "first"), (one, "second"), (one, "third")]


@pytest.mark.mechanism("N20")
def test_the_moments_become_durations(kit: Kit) -> None:
    metrics = Metrics(kit)
    one = timeline(kit)
    for name, moment in zip(MOMENTS[:4], (110, 130, 160, 200), strict=True):
        setattr(one, name, moment)
    one.api_throttle_time_ms = 33
    one.record_in(metrics, 250)
    assert [totals[1] for totals, _, _ in metrics.read()] == [10, 20, 30, 33, 40, 50, 150, 10]
    one.record_in(metrics, 250)
    assert {version: count.count for version, count in metrics.counts.items()} == {9: 2}


@needs_both
@pytest.mark.mechanism("N20")
def test_both_write_the_same_whatever_is_missing_or_out_of_order() -> None:
    source = random.Random(11)
    pairs = [(kit, Metrics(kit)) for kit in IMPLEMENTATIONS]
    for _ in range(3_000):
        moments = {name: source.choice((NOT_SET, source.randrange(1_000))) for name in MOMENTS}
        start, throttled, now = source.randrange(500), source.randrange(3), source.randrange(1_000, 2_000)
        for kit, metrics in pairs:
            one = timeline(kit, start_ns=start, version=start % 3)
            one.api_throttle_time_ms = throttled
            for name, moment in moments.items():
                setattr(one, name, moment)
            one.record_in(metrics, now)
    pure, compiled = (metrics for _, metrics in pairs)
    for ours, theirs in zip(pure.read(), compiled.read(), strict=True):
        assert ours[1] == theirs[1]
        assert ours[2] == pytest.approx(theirs[2])
        assert ours[0] == pytest.approx(theirs[0])
    assert {key: count.count for key, count in pure.counts.items()} == {
        key: count.count for key, count in compiled.counts.items()
    }


@pytest.mark.mechanism("N20")
def test_requests_of_one_api_count_in_two_places(kit: Kit) -> None:
    first, second = Metrics(kit), Metrics(kit)

    by_api: dict[ApiKey, Any] = {}
    recorder = kit[0].TimelineRecorder(
        lambda: 500, by_api, lambda api_key: by_api.setdefault(api_key, first), ApiKey.FETCH, lambda _: second
    )
    heard: list[Any] = []
    one = timeline(kit, times=recorder)
    recorder.record(one, "answer")
    recorder.listener = lambda *arguments: heard.append(arguments)
    recorder.record(one, "answer")
    one.api_key = ApiKey.PRODUCE
    recorder.record(one, "answer")
    assert heard == [(one, "answer", 500)] * 2
    assert (first.counts[9].count, second.counts[9].count) == (3, 2)
    recorder.untold = 2
    for _ in range(3):
        assert len(heard) == 2
        recorder.record(one, "answer")
    assert len(heard) == 3
    assert first.counts[9].count == 6, "all of them are in the metrics"
