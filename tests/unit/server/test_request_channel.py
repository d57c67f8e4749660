"""The queues between network threads and handlers: bounds, order, who is woken, and where answers go.

The clock stands still in most of these tests, so nobody is helped by a timeout: a wake-up that is forgotten is a test
that fails.
"""

from __future__ import annotations

import queue
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.errors import Errors
from barnabas.metrics.names import MBeanName
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.network.reactor.memory_pool import SimpleMemoryPool
from barnabas.network.server.response import (
    CLOSE_CONNECTION,
    END_THROTTLING,
    NO_OP,
    SEND,
    START_THROTTLING,
    SendResponse,
)
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.heartbeat import HeartbeatResponse
from barnabas.server.request import Request
from barnabas.server.request_channel import SHUTDOWN, WAKEUP, CallbackRequest, RequestChannel
from barnabas.server.request_local import RequestLocal
from barnabas.server.request_metrics import RequestTimes
from network_fixtures import WAIT_S, FakeProcessorHandle, heartbeat, leave_group, request_from
from unit.network.waiting_threads import WatchedClock

SHORT = frozenset({ApiKey.HEARTBEAT})
NEVER = 1 << 40
"""A timeout in milliseconds that a clock which stands still never gets to."""

both_ways_to_wake = pytest.mark.parametrize("parallel", [False, True], ids=["one-handler", "parallel"])


class Bench:
    """A channel and a clock that stands still."""

    def __init__(self, size: int = 500, *, parallel: bool = False, clock: MockClock | None = None) -> None:
        self.clock = clock or MockClock()
        self.registry = MetricsRegistry(self.clock)
        self.times = RequestTimes(self.registry, self.clock)
        self.channel = RequestChannel(size, self.clock, self.times, short_apis=SHORT, parallel=parallel)
        self.processor = FakeProcessorHandle()
        self.channel.add_processor(self.processor)

    def short(self, number: int = 0) -> Request:
        return request_from(heartbeat(number), self.times)

    def long(self, number: int = 0) -> Request:
        return request_from(leave_group(number), self.times)

    def take(self) -> Any:
        return self.channel.receive_request(0)

    def queued(self) -> list[Any]:
        """All that can be taken now."""
        items = []
        while (item := self.take()) is not None:
            items.append(item)
        return items


def nothing(local: RequestLocal) -> None: ...


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Lets threads take turns far more often than they do by themselves, so that a race has its chance."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def in_thread(function: Callable[[], object]) -> threading.Thread:
    """Runs it beside the test; a daemon, because broken code may leave it waiting for ever."""
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def ended(thread: threading.Thread) -> None:
    thread.join(WAIT_S)
    assert not thread.is_alive(), "a thread is stuck"


# ---------------------------------------------------------------------------------------------------- the bound


@pytest.mark.mechanism("N11")
def test_requests_come_out_in_the_order_they_went_in() -> None:
    b = Bench()
    requests = [b.short(number) for number in range(10)]
    b.channel.send_requests(requests[:3])
    b.channel.send_requests(requests[3:4])
    b.channel.send_requests(requests[4:])
    assert b.channel.request_queue_size == 10
    assert b.channel.requests or b.channel.callbacks
    assert b.queued() == requests
    assert not b.channel.requests
    assert not b.channel.callbacks


@pytest.mark.mechanism("N11")
@both_ways_to_wake
def test_a_full_queue_makes_the_processor_wait_and_a_free_place_lets_it_go_on(parallel: bool) -> None:
    clock = WatchedClock()
    b = Bench(3, parallel=parallel, clock=clock)
    requests = [b.short(number) for number in range(8)]
    sender = in_thread(lambda: b.channel.send_requests(requests))
    for taken in range(5):
        clock.await_waits(taken + 1)  # it is held up, once more
        assert b.channel.request_queue_size == 3, "no more than the bound"
        assert b.take() is requests[taken]
    ended(sender)
    assert [b.take() for _ in range(3)] == requests[5:]


@pytest.mark.mechanism("N11")
@both_ways_to_wake
def test_several_processors_that_wait_all_get_their_turn(parallel: bool) -> None:
    b = Bench(2, parallel=parallel)
    b.channel.send_requests([b.short(), b.short()])
    senders = [in_thread(lambda: b.channel.send_requests([b.short(), b.short()])) for _ in range(5)]
    assert b.clock.await_waiters(5)
    taken = 0
    while taken < 12:
        item = b.channel.receive_request(NEVER)  # waits for a processor that has been let go
        assert isinstance(item, Request)
        taken += 1
    for sender in senders:
        ended(sender)
    assert not b.channel.requests
    assert not b.channel.callbacks


@pytest.mark.mechanism("N11")
def test_a_queue_needs_a_place() -> None:
    clock = MockClock()
    with pytest.raises(ValueError, match=r"queued\.max\.requests must be at least 1"):
        RequestChannel(0, clock, RequestTimes(MetricsRegistry(clock), clock))


@pytest.mark.mechanism("N11")
def test_closing_lets_processors_go_and_gives_back_what_they_hold() -> None:
    b = Bench(1)
    pool = SimpleMemoryPool(1000, 1000)
    frame = heartbeat(1)
    requests = []
    for _ in range(3):
        pool.try_reserve(len(frame) - 4)
        requests.append(request_from(frame, b.times, pool=pool))
    sender = in_thread(lambda: b.channel.send_requests(requests))
    assert b.clock.await_waiters(1)
    b.channel.close()
    ended(sender)
    assert b.queued() == requests[:1]
    requests[0].release_buffer()
    assert pool.available == 1000


# ---------------------------------------------------------------------------------------------------- callbacks


@pytest.mark.mechanism("N11")
@pytest.mark.mechanism("N13")
def test_callbacks_are_served_before_requests() -> None:
    b = Bench()
    waiting = b.short(1)
    b.channel.send_requests([waiting])
    done = [b.short(2), b.short(3)]
    for request in done:
        b.channel.send_callback(nothing, request)
    first, second, third = b.take(), b.take(), b.take()
    assert isinstance(first, CallbackRequest)
    assert isinstance(second, CallbackRequest)
    assert [first.request, second.request, third] == [*done, waiting]
    assert b.queued() == [WAKEUP, WAKEUP], "sentinels whose callbacks were taken without them"


@pytest.mark.mechanism("N11")
@both_ways_to_wake
def test_a_callback_wakes_a_handler_that_sleeps(parallel: bool) -> None:
    b = Bench(parallel=parallel)
    taken: list[Any] = []
    handler = in_thread(lambda: taken.append(b.channel.receive_request(NEVER)))
    assert b.clock.await_waiters(1)
    b.channel.send_callback(nothing, b.short())
    ended(handler)
    assert isinstance(taken[0], CallbackRequest)
    assert b.take() is WAKEUP
    assert repr(WAKEUP) == "WakeupRequest"


@pytest.mark.mechanism("N11")
def test_a_callback_never_waits_for_room() -> None:
    """Whoever completes a request may be the one that all handlers wait for."""
    b = Bench(2)
    b.channel.send_requests([b.short(), b.short()])
    for _ in range(5):
        b.channel.send_callback(nothing, b.short())
    assert [type(item) for item in (b.take() for _ in range(5))] == [CallbackRequest] * 5
    assert [type(item) for item in (b.take() for _ in range(2))] == [Request] * 2


@pytest.mark.mechanism("N11")
def test_a_callback_counts_as_something_queued() -> None:
    b = Bench()
    b.channel.send_callback(nothing, b.short())
    assert b.channel.requests or b.channel.callbacks


# ---------------------------------------------------------------------------------------------------- handlers


@pytest.mark.mechanism("N11")
@both_ways_to_wake
def test_a_shutdown_is_for_one_handler_and_comes_after_what_was_queued(parallel: bool) -> None:
    b = Bench(parallel=parallel)
    request = b.short()
    b.channel.send_requests([request])
    b.channel.send_shutdown()
    assert b.queued() == [request, SHUTDOWN]
    assert repr(SHUTDOWN) == "ShutdownRequest"
    taken: queue.Queue[Any] = queue.Queue()
    handlers = [in_thread(lambda: taken.put(b.channel.receive_request(NEVER))) for _ in range(3)]
    assert b.clock.await_waiters(3)
    for _ in handlers:
        b.channel.send_shutdown()
    assert [taken.get(timeout=WAIT_S) for _ in handlers] == [SHUTDOWN] * 3
    for handler in handlers:
        ended(handler)


@pytest.mark.mechanism("N11")
def test_a_handler_that_waited_long_enough_gets_nothing() -> None:
    b = Bench()
    taken: list[Any] = []
    handler = in_thread(lambda: taken.append(b.channel.receive_request(300)))
    assert b.clock.await_waiters(1)
    b.clock.advance(300)
    ended(handler)
    assert taken == [None]
    b.channel.send_requests([b.short()])
    assert isinstance(b.take(), Request), "and is not missed by those who wake"


@pytest.mark.mechanism("N11")
def test_under_an_interpreter_lock_one_handler_is_woken_for_many_short_requests() -> None:
    b = Bench()
    taken: queue.Queue[Any] = queue.Queue()
    go_on = threading.Event()

    def handle() -> None:
        while (item := b.channel.receive_request(NEVER)) is not SHUTDOWN:
            taken.put(item)
            go_on.wait(WAIT_S)

    handlers = [in_thread(handle) for _ in range(3)]
    assert b.clock.await_waiters(3)
    b.channel.send_requests([b.short(), b.short()])
    b.channel.send_requests([b.short()])
    assert isinstance(taken.get(timeout=WAIT_S), Request)
    assert b.clock.await_waiters(2)
    assert b.channel.request_queue_size == 2, "the other two sleep on: the first one comes back for these"
    go_on.set()
    for _ in range(2):
        assert isinstance(taken.get(timeout=WAIT_S), Request)
    ended_after_shutdown(b, handlers)


@pytest.mark.mechanism("N11")
@both_ways_to_wake
def test_a_handler_that_may_take_long_has_another_one_woken(parallel: bool) -> None:
    b = Bench(parallel=parallel)
    taken: queue.Queue[Any] = queue.Queue()
    go_on = threading.Event()

    def handle() -> None:
        while (item := b.channel.receive_request(NEVER)) is not SHUTDOWN:
            taken.put(item)
            go_on.wait(WAIT_S)

    handlers = [in_thread(handle) for _ in range(4)]
    assert b.clock.await_waiters(4)
    b.channel.send_requests([b.long(), b.long(), b.long(), b.short()])
    assert len([taken.get(timeout=WAIT_S) for _ in range(4)]) == 4, "though the first three are stuck"
    go_on.set()
    ended_after_shutdown(b, handlers)


def ended_after_shutdown(b: Bench, handlers: list[threading.Thread]) -> None:
    for _ in handlers:
        b.channel.send_shutdown()
    for handler in handlers:
        ended(handler)


@pytest.mark.mechanism("N11")
@both_ways_to_wake
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.usefixtures("quick_switches")
def test_every_request_and_callback_is_handled_once_whoever_is_asleep(parallel: bool, seed: int) -> None:
    """Processors that wait for room, handlers that sleep, long and short requests, callbacks from anywhere.

    The clock stands still, so a handler or processor that is not woken when it should be sleeps for ever.
    """
    b = Bench(4, parallel=parallel)
    choose = random.Random(seed)
    per_processor = [
        [b.short(number) if choose.random() < 0.7 else b.long(number) for number in range(200)] for _ in range(3)
    ]
    handled: Counter[int] = Counter()
    called_back: Counter[int] = Counter()
    lock = threading.Lock()
    everything = threading.Semaphore(0)

    def process(requests: list[Request], seed: int) -> None:
        cut = random.Random(seed)
        start = 0
        while start < len(requests):
            stop = start + cut.randint(1, 7)
            b.channel.send_requests(requests[start:stop])
            start = stop

    def handle() -> None:
        b.channel.defer_wakeups()
        while (item := b.channel.receive_request(NEVER)) is not SHUTDOWN:
            if isinstance(item, CallbackRequest):
                with lock:
                    called_back[id(item.request)] += 1
                everything.release()
            elif isinstance(item, Request):
                with lock:
                    handled[id(item)] += 1
                b.channel.send_callback(nothing, item)

    handlers = [in_thread(handle) for _ in range(4)]
    processors = [in_thread(lambda r=requests: process(r, seed)) for requests in per_processor]  # type: ignore[misc]
    for _ in range(600):
        assert everything.acquire(timeout=WAIT_S), f"stuck: {b.channel!r}"
    for processor in processors:
        ended(processor)
    ended_after_shutdown(b, handlers)
    expected = Counter({id(request): 1 for requests in per_processor for request in requests})
    assert handled == expected
    assert called_back == expected


# ---------------------------------------------------------------------------------------------------- answers


@pytest.mark.mechanism("N11")
def test_a_response_goes_to_the_processor_that_the_request_came_from() -> None:
    b = Bench()
    other = FakeProcessorHandle(7)
    b.channel.add_processor(other)
    request = request_from(heartbeat(3), b.times, processor_id=7)
    b.channel.send_response(request, HeartbeatResponse(error_code=27))
    response = other.next_response()
    assert isinstance(response, SendResponse)
    assert (response.kind, response.request) == (SEND, request)
    assert b.processor.response_queue_size == 0
    assert repr(response).startswith("SendResponse(0 of ")


@pytest.mark.mechanism("N11")
def test_the_response_to_a_processor_that_is_gone_is_dropped() -> None:
    b = Bench()
    request = b.short()
    b.channel.remove_processor(0)
    b.channel.send_no_op_response(request)
    b.channel.start_throttling(request)
    assert request.terminal
    assert b.processor.response_queue_size == 0
    assert b.channel.response_queue_size == 0


@pytest.mark.mechanism("N11")
def test_a_processor_is_known_once() -> None:
    b = Bench()
    with pytest.raises(ValueError, match="a processor 0 already"):
        b.channel.add_processor(FakeProcessorHandle(0))
    assert repr(b.channel) == "RequestChannel(0 of 500 queued, 1 processors)"


@pytest.mark.mechanism("N10")
def test_there_are_five_kinds_of_responses() -> None:
    b = Bench()
    first, second, third = b.short(1), b.short(2), b.short(3)
    b.channel.start_throttling(first)
    b.channel.send_parts(first, [b"\0\0\0\4", b"\0\0\0\1"])
    b.channel.end_throttling(first)
    b.channel.send_no_op_response(second)
    b.channel.close_connection(third, {Errors.INVALID_TXN_STATE: 2})
    assert [(b.processor.next_response().kind) for _ in range(5)] == [
        START_THROTTLING,
        SEND,
        END_THROTTLING,
        NO_OP,
        CLOSE_CONNECTION,
    ]
    tags = {"request": "Heartbeat", "error": "INVALID_TXN_STATE"}
    errors: Any = b.registry.get(MBeanName("kafka.network", "RequestMetrics", "ErrorsPerSec", tags))
    assert errors.count == 2


@pytest.mark.mechanism("N20")
def test_the_moment_of_the_response_is_noted() -> None:
    b = Bench()
    answered_at_once, answered_later = b.short(1), b.short(2)
    b.clock.advance(5)
    answered_later.api_local_complete_time_ns = b.clock.nanoseconds()
    b.clock.advance(7)
    for request in (answered_at_once, answered_later):
        b.channel.send_no_op_response(request)
    assert [request.response_complete_time_ns for request in (answered_at_once, answered_later)] == [12_000_000] * 2
    assert answered_at_once.api_local_complete_time_ns == 12_000_000
    assert answered_later.api_local_complete_time_ns == 5_000_000


@pytest.mark.mechanism("N11")
@pytest.mark.parametrize("asleep", [False, True])
def test_a_processor_is_woken_if_it_sleeps(asleep: bool) -> None:
    b = Bench()
    b.processor.asleep = asleep
    b.channel.send_no_op_response(b.short())
    assert b.processor.wakeups == int(asleep)
    b.channel.start_throttling(b.short())
    assert b.processor.wakeups == 2 * int(asleep)


@pytest.mark.mechanism("N11")
def test_a_handler_with_more_short_requests_to_do_wakes_the_processor_later() -> None:
    b = Bench()
    to_wake = b.channel.defer_wakeups()
    b.channel.send_requests([b.short(1), b.short(2), b.long()])
    b.channel.send_no_op_response(b.take())
    following = b.channel.take_short_request()
    assert following is not None
    assert (b.processor.wakeups, following.correlation_id) == (0, 2)
    b.channel.send_no_op_response(following)
    assert b.channel.take_short_request() is None, "a long one comes next"
    assert (b.processor.wakeups, b.channel.request_queue_size) == (0, 1)
    b.channel.wake_processors(to_wake)
    assert (b.processor.wakeups, to_wake) == (1, {})


@pytest.mark.mechanism("N11")
@pytest.mark.parametrize("left", ["nothing", "a-long-request"])
def test_a_response_is_not_slept_over_when_the_next_request_went_to_another_handler(left: str) -> None:
    b = Bench()
    to_wake = b.channel.defer_wakeups()
    b.channel.send_requests([b.short(), b.short(), *([b.long()] if left != "nothing" else [])])
    b.channel.send_no_op_response(b.take())
    other = in_thread(b.take)
    ended(other)
    assert b.channel.take_short_request() is None
    b.take()  # waits, or begins with something that may take long
    assert (b.processor.wakeups, to_wake) == (1, {})


@pytest.mark.mechanism("N11")
def test_a_handler_that_may_not_be_counted_on_takes_no_short_request_on_the_side() -> None:
    """It was at a long one, and somebody else was woken for the rest."""
    b = Bench()
    b.channel.send_requests([b.long(), b.short()])
    assert b.take().api_key is ApiKey.LEAVE_GROUP
    assert b.channel.take_short_request() is None
    assert b.take().api_key is ApiKey.HEARTBEAT


@pytest.mark.mechanism("N11")
@pytest.mark.parametrize("ahead", ["callback", "shutdown"])
def test_short_requests_do_not_go_before_what_is_due_first(ahead: str) -> None:
    b = Bench()
    b.channel.send_requests([b.short(1)])
    first = b.take()
    if ahead == "callback":
        b.channel.send_requests([b.short(2)])
        b.channel.send_callback(nothing, first)
    else:
        b.channel.send_shutdown()
        b.channel.send_requests([b.short(2)])
    assert b.channel.take_short_request() is None
    assert isinstance(b.take(), CallbackRequest) if ahead == "callback" else b.take() is SHUTDOWN


@pytest.mark.mechanism("N11")
def test_a_short_request_that_is_taken_makes_room_for_a_processor_that_waits() -> None:
    clock = WatchedClock()
    b = Bench(2, clock=clock)
    b.channel.send_requests([b.short(1), b.short(2)])
    b.take()
    b.channel.send_requests([b.short(3)])
    waiting = in_thread(lambda: b.channel.send_requests([b.short(4)]))
    clock.await_waiters()
    assert b.channel.take_short_request() is not None
    ended(waiting)
    assert b.channel.request_queue_size == 2
