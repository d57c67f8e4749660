"""The threads that handle requests: what surrounds a handler, what it may do wrong, and how many there are."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from barnabas.common.clock import SYSTEM_CLOCK, Clock, MockClock
from barnabas.common.errors import ProtocolError
from barnabas.common.shutdownable_thread import FatalExitError
from barnabas.metrics.names import MBeanName
from barnabas.network.reactor.memory_pool import SimpleMemoryPool
from barnabas.network.server.response import CLOSE_CONNECTION, SEND
from barnabas.server.dispatch import RequestRunner
from barnabas.server.handler_pool import WAKE_AFTER, KafkaRequestHandlerPool
from barnabas.server.request import Request
from barnabas.server.request_local import RequestLocal
from network_fixtures import (
    WAIT_S,
    FakeProcessorHandle,
    Plane,
    Policy,
    Script,
    heartbeat,
    leave_group,
    nothing_left_behind,
    request_from,
    within,
)


class Bench(Plane):
    """A handler pool behind a request channel, with a processor that only keeps responses."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        threads: int = 2,
        clock: Clock = SYSTEM_CLOCK,
        idle: Callable[[int, int], None] = lambda _nanoseconds, _threads: None,
    ) -> None:
        super().__init__(Policy.QUEUE, script, clock=clock)
        self.processor = FakeProcessorHandle()
        self.channel.add_processor(self.processor)
        self.memory = SimpleMemoryPool(1 << 20, 1 << 20)
        self.handlers = KafkaRequestHandlerPool(self.runner, threads, clock, idle=idle)

    def request(self, number: int = 1, *, long: bool = False) -> Request:
        frame = leave_group(number) if long else heartbeat(number)
        self.memory.try_reserve(len(frame) - 4)
        return request_from(frame, self.times, pool=self.memory)

    def send(self, *requests: Request) -> None:
        self.channel.send_requests(requests)

    def run(self, request: Request) -> Any:
        """Has a request handled, and returns its response."""
        self.send(request)
        return self.processor.next_response()


@contextmanager
def pooled(script: Script | None = None, **settings: Any) -> Iterator[Bench]:
    with nothing_left_behind():
        b = Bench(script, **settings)
        try:
            yield b
        finally:
            within(WAIT_S, b.handlers.shutdown)
        assert b.memory.available == b.memory.size, "a buffer was not given back"


# ---------------------------------------------------------------------------------------------------- N12, N22


@pytest.mark.mechanism("N12")
@pytest.mark.mechanism("N22")
def test_handlers_are_daemon_threads_with_documented_names() -> None:
    before = set(threading.enumerate())
    with pooled(threads=5) as b:
        assert [thread.name for thread in b.handlers.threads] == [
            f"data-plane-kafka-request-handler-{number}" for number in range(5)
        ]
        assert all(thread.daemon and thread.is_alive() for thread in b.handlers.threads)
        assert (b.handlers.size, len(set(threading.enumerate()) - before)) == (5, 5)
        threads = b.handlers.threads
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.mechanism("N22")
def test_the_pool_of_a_controller_has_its_own_names() -> None:
    with nothing_left_behind():
        plane = Plane(Policy.QUEUE, clock=SYSTEM_CLOCK)
        pool = KafkaRequestHandlerPool(plane.runner, 1, SYSTEM_CLOCK, name_prefix="controller")
        assert [thread.name for thread in pool.threads] == ["controller-kafka-request-handler-0"]
        pool.shutdown()


@pytest.mark.mechanism("N12")
def test_a_request_is_handled_on_a_handler_thread_with_the_local_of_that_thread() -> None:
    seen: list[tuple[str, bool, Request | None]] = []

    def handle(request: Request, local: RequestLocal) -> None:
        seen.append((threading.current_thread().name, local.is_confined, local.request))
        b.answer(request)

    with pooled(handle, threads=1) as b:
        request = b.request()
        assert b.run(request).kind is SEND
        assert seen == [("data-plane-kafka-request-handler-0", True, request)]


@pytest.mark.mechanism("N12")
@pytest.mark.parametrize("responded", [False, True], ids=["before_its_response", "after_its_response"])
def test_a_handler_that_raises_leaves_its_thread_alive(responded: bool, caplog: pytest.LogCaptureFixture) -> None:
    def handle(request: Request, local: RequestLocal) -> None:
        if responded or request.correlation_id != 1:
            b.answer(request)
        if request.correlation_id == 1:
            raise RuntimeError("a bug")

    def fail(*args: object) -> None:
        raise RuntimeError("no error response either")

    with pooled(handle, threads=1) as b, caplog.at_level(logging.ERROR):
        (thread,) = b.handlers.threads
        b.helper.send = fail  # type: ignore[assignment]
        assert b.run(b.request(1)).kind is (SEND if responded else CLOSE_CONNECTION)
        assert b.run(b.request(2)).kind is SEND
        assert b.handlers.threads == [thread]
        assert thread.is_alive()
        assert b.processor.response_queue_size == 0, "exactly one response each"
    request = "Request(Heartbeat v4, correlation id 1, client 'test', connection c)"
    assert [record.getMessage() for record in caplog.records] == (
        [f"{request} failed after its response"]
        if responded
        else [f"Unexpected error while handling {request}", f"Handling {request} failed"]
    )


@pytest.mark.mechanism("N12")
def test_a_response_that_comes_from_elsewhere_while_the_handler_fails_is_the_only_one() -> None:
    def handle(request: Request, local: RequestLocal) -> None:
        answering = threading.Thread(target=b.answer, args=(request,))
        answering.start()
        answering.join(WAIT_S)
        raise RuntimeError("too late")

    with pooled(handle, threads=1) as b:
        assert b.run(b.request(1)).kind is SEND
        assert b.run(b.request(2)).kind is SEND
        assert b.processor.response_queue_size == 0


@pytest.mark.mechanism("N12")
def test_a_body_that_cannot_be_decoded_closes_the_connection_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    def handle(request: Request, local: RequestLocal) -> None:
        assert request.body is not None

    with pooled(handle, threads=1) as b, caplog.at_level(logging.WARNING):
        frame = heartbeat(1)[:-3]
        b.memory.try_reserve(len(frame) - 4)
        assert b.run(request_from(frame, b.times, pool=b.memory)).kind is CLOSE_CONNECTION
        tags = {"request": "Heartbeat", "error": "INVALID_REQUEST"}
        errors: Any = b.registry.get(MBeanName("kafka.network", "RequestMetrics", "ErrorsPerSec", tags))
        assert errors.count == 1
    (record,) = caplog.records
    assert record.exc_info is None, "anybody could fill the log with stack traces"


@pytest.mark.mechanism("N12")
def test_a_fatal_error_ends_the_process() -> None:
    def handle(request: Request, local: RequestLocal) -> None:
        raise FatalExitError(3, "the log directory is gone")

    with pooled(handle, threads=1) as b:
        b.send(b.request())
        assert b.exit_codes.get(timeout=WAIT_S) == 3
        assert b.processor.response_queue_size == 0


@pytest.mark.mechanism("N12")
@pytest.mark.parametrize("error", [None, RuntimeError("a bug"), ProtocolError("bad"), FatalExitError(1)])
def test_the_buffer_is_given_back_whatever_the_handler_does(error: BaseException | None) -> None:
    done: queue.Queue[bool] = queue.Queue()

    def handle(request: Request, local: RequestLocal) -> None:
        done.put(b.memory.available < b.memory.size and request.buffer is not None)
        if error is not None:
            raise error

    clock = MockClock()
    with pooled(handle, threads=1, clock=clock) as b:
        request = b.request()
        b.send(request)
        assert done.get(timeout=WAIT_S), "while it runs the memory is held"
        assert clock.await_waiters(1), "the handler waits for the next one"
        assert request.buffer is None
        assert b.memory.available == b.memory.size


@pytest.mark.mechanism("N12")
@pytest.mark.mechanism("N20")
@pytest.mark.parametrize("answered", [False, True], ids=["parked", "answered"])
def test_the_moments_of_the_handler_are_noted(answered: bool) -> None:
    clock = MockClock()
    entered = threading.Event()

    def handle(request: Request, local: RequestLocal) -> None:
        entered.set()
        clock.advance(5)
        if answered:
            b.answer(request)
            clock.advance(100)  # after the response its work is no longer the request's

    with pooled(handle, threads=1, clock=clock) as b:
        clock.advance(3)
        request = b.request()
        b.send(request)
        assert entered.wait(WAIT_S)
        assert clock.await_waiters(1), "the handler waits for the next one"
        assert (request.request_dequeue_time_ns, request.api_local_complete_time_ns) == (3_000_000, 8_000_000)


@pytest.mark.mechanism("N12")
def test_idle_time_is_measured_and_reported_with_the_number_of_threads() -> None:
    clock = MockClock()
    reports: queue.Queue[tuple[int, int]] = queue.Queue()
    with pooled(threads=1, clock=clock, idle=lambda ns, threads: reports.put((ns, threads))) as b:
        assert clock.await_waiters(1)
        clock.advance(7)  # not enough for the handler's own timeout
        b.send(b.request())
        assert reports.get(timeout=WAIT_S) == (7_000_000, 1)
        b.next_request()
        assert clock.await_waiters(1)
        clock.advance(300)  # nothing came in all that time
        assert reports.get(timeout=WAIT_S) == (300_000_000, 1)


@pytest.mark.mechanism("N12")
def test_short_idle_times_are_added_up_before_they_are_reported() -> None:
    clock = MockClock()
    reports: queue.Queue[int] = queue.Queue()
    with pooled(threads=1, clock=clock, idle=lambda ns, _threads: reports.put(ns)) as b:
        for _ in range(3):
            assert clock.await_waiters(1)
            clock.advance(0.4)
            b.send(b.request())
            b.next_request()
        assert reports.get(timeout=WAIT_S) == 1_200_000
        assert reports.empty()


@pytest.mark.mechanism("N12")
def test_a_busy_handler_is_not_idle() -> None:
    clock = MockClock()
    reports: queue.Queue[int] = queue.Queue()
    entered, leave = threading.Semaphore(0), threading.Semaphore(0)

    def handle(request: Request, local: RequestLocal) -> None:
        entered.release()
        assert leave.acquire(timeout=WAIT_S)

    with pooled(handle, threads=1, clock=clock, idle=lambda ns, _threads: reports.put(ns)) as b:
        for _ in range(3):
            b.send(b.request())
            assert entered.acquire(timeout=WAIT_S)
            clock.advance(5000)
            leave.release()
        assert reports.empty()


@pytest.mark.mechanism("N11")
def test_a_processor_is_woken_for_several_responses_together() -> None:
    clock = MockClock()
    gate = threading.Event()

    def handle(request: Request, local: RequestLocal) -> None:
        gate.wait(WAIT_S)
        b.answer(request)

    with pooled(handle, threads=1, clock=clock) as b:
        b.send(*(b.request(number) for number in range(2 * WAKE_AFTER + 5)))
        gate.set()
        for _ in range(2 * WAKE_AFTER + 5):
            b.processor.next_response()
        assert clock.await_waiters(1), "the handler is done with all of them"
        assert b.processor.wakeups == 3


@pytest.mark.mechanism("N12")
def test_what_is_queued_is_handled_before_the_handlers_end() -> None:
    handled: list[int] = []
    gate = threading.Event()

    def handle(request: Request, local: RequestLocal) -> None:
        gate.wait(WAIT_S)
        handled.append(request.correlation_id)

    with pooled(handle, threads=2) as b:
        b.send(*(b.request(number, long=True) for number in range(10)))
        ending = threading.Thread(target=b.handlers.shutdown)
        ending.start()
        gate.set()
        ending.join(WAIT_S)
        assert sorted(handled) == list(range(10))
        b.handlers.shutdown()
        b.handlers.resize_thread_pool(5)
        assert not any(thread.is_alive() for thread in b.handlers.threads)


@pytest.mark.mechanism("N12")
def test_the_local_of_a_handler_is_closed_with_its_thread() -> None:
    locals_seen: queue.Queue[RequestLocal] = queue.Queue()
    with pooled(lambda _request, local: locals_seen.put(local), threads=1) as b:
        b.send(b.request())
        local = locals_seen.get(timeout=WAIT_S)
        assert not local.closed
    assert local.closed


@pytest.mark.mechanism("N12")
def test_every_handler_thread_is_placed_when_it_starts() -> None:
    placed: queue.Queue[str] = queue.Queue()
    with nothing_left_behind():
        plane = Plane(Policy.QUEUE, clock=SYSTEM_CLOCK)
        runner = RequestRunner(
            plane.apis,
            plane.channel,
            SYSTEM_CLOCK,
            placement=lambda: placed.put(threading.current_thread().name),
        )
        pool = KafkaRequestHandlerPool(runner, 2, SYSTEM_CLOCK)
        names = {placed.get(timeout=WAIT_S) for _ in range(2)}
        assert names == {thread.name for thread in pool.threads}
        pool.shutdown()


# ---------------------------------------------------------------------------------------------------- N23


@pytest.mark.mechanism("N12")
@pytest.mark.mechanism("N23")
def test_the_number_of_handlers_can_be_changed_while_they_work() -> None:
    with pooled(lambda request, _local: b.answer(request), threads=2) as b:
        for count in (6, 1, 3, 3, 8, 4, 5):
            b.handlers.resize_thread_pool(count)
            alive = [thread for thread in b.handlers.threads if thread.is_alive()]
            assert b.handlers.size == len(alive) == count
            assert len({thread.name for thread in alive}) == count, "no two of the same name"
            assert all(thread.daemon for thread in alive)
            assert b.run(b.request()).kind is SEND


@pytest.mark.mechanism("N23")
def test_a_new_handler_does_not_get_the_name_of_one_that_is_still_there() -> None:
    """Which handlers end cannot be chosen. Here it is the first two of three that do."""
    entered = threading.Semaphore(0)
    gates = {f"data-plane-kafka-request-handler-{number}": threading.Event() for number in range(3)}

    def handle(request: Request, local: RequestLocal) -> None:
        entered.release()
        gates[threading.current_thread().name].wait(WAIT_S)

    with pooled(handle, threads=3) as b:
        first, second, last = b.handlers.threads
        b.send(*(b.request(number, long=True) for number in range(3)))
        for _ in range(3):
            assert entered.acquire(timeout=WAIT_S)
        gates[first.name].set()
        gates[second.name].set()
        b.handlers.resize_thread_pool(1)
        assert b.handlers.threads == [last]
        b.handlers.resize_thread_pool(3)
        assert {thread.name for thread in b.handlers.threads} == set(gates)
        gates[last.name].set()


@pytest.mark.mechanism("N23")
def test_more_handlers_do_more_at_a_time() -> None:
    inside = threading.Semaphore(0)
    leave = threading.Event()

    def handle(request: Request, local: RequestLocal) -> None:
        inside.release()
        leave.wait(WAIT_S)

    with pooled(handle, threads=1) as b:
        b.send(*(b.request(number, long=True) for number in range(4)))
        assert inside.acquire(timeout=WAIT_S)
        assert b.channel.request_queue_size == 3
        b.handlers.resize_thread_pool(4)
        for _ in range(3):
            assert inside.acquire(timeout=WAIT_S)
        assert b.channel.request_queue_size == 0
        leave.set()


@pytest.mark.mechanism("N23")
def test_fewer_handlers_finish_what_they_are_at() -> None:
    entered, leave = threading.Semaphore(0), threading.Event()

    def handle(request: Request, local: RequestLocal) -> None:
        entered.release()
        leave.wait(WAIT_S)
        b.answer(request)

    with pooled(handle, threads=4) as b:
        b.send(*(b.request(number, long=True) for number in range(4)))
        for _ in range(4):
            assert entered.acquire(timeout=WAIT_S)
        resizing = threading.Thread(target=b.handlers.resize_thread_pool, args=(1,))
        resizing.start()
        leave.set()
        resizing.join(WAIT_S)
        assert b.handlers.size == 1
        assert [b.processor.next_response().kind for _ in range(4)] == [SEND] * 4


@pytest.mark.mechanism("N23")
@pytest.mark.parametrize("count", [0, -1])
def test_there_is_at_least_one_handler(count: int) -> None:
    with pooled(threads=1) as b:
        with pytest.raises(ValueError, match="at least 1"):
            b.handlers.resize_thread_pool(count)
        with pytest.raises(ValueError, match="at least 1"):
            KafkaRequestHandlerPool(b.runner, count, SYSTEM_CLOCK)


# ---------------------------------------------------------------------------------------------------- N13


class Deferring:
    """A handler that has to wait for something that completes on another thread."""

    def __init__(self, complete: Callable[[Request, RequestLocal, Any], None]) -> None:
        self.waiting: queue.Queue[Callable[[Any], None]] = queue.Queue()
        self._complete = complete

    def __call__(self, request: Request, local: RequestLocal) -> None:
        self.waiting.put(local.wrap_async_callback(lambda local, result: self._complete(request, local, result)))

    def completion(self) -> Callable[[Any], None]:
        return self.waiting.get(timeout=WAIT_S)


@pytest.mark.mechanism("N13")
def test_a_completion_on_a_foreign_thread_goes_on_on_a_handler_thread() -> None:
    seen: list[tuple[str, bool, bool, Any]] = []
    actions: list[str] = []

    def complete(request: Request, local: RequestLocal, result: Any) -> None:
        name = threading.current_thread().name
        seen.append((name, local.is_confined, local.request is request, result))
        b.answer(request)

    handler = Deferring(complete)
    with pooled(handler, threads=3) as b:
        b.apis.actions = lambda: actions.append(threading.current_thread().name)
        b.send(b.request())
        handler.completion()("result")
        assert b.processor.next_response().kind is SEND
    ((name, *rest),) = seen
    assert name.startswith("data-plane-kafka-request-handler-")
    assert rest == [True, True, "result"]
    assert len(actions) == 2
    assert actions[-1] == name, "what the completion has set off is done, too"


@pytest.mark.mechanism("N13")
def test_a_completion_within_the_handler_runs_at_once() -> None:
    order: list[str] = []

    def handle(request: Request, local: RequestLocal) -> None:
        local.wrap_async_callback(lambda _local, result: order.append(result))("inline")
        order.append("after")
        b.answer(request)

    with pooled(handle, threads=1) as b:
        request = b.request()
        b.run(request)
        assert order == ["inline", "after"]
        assert request.callback_request_dequeue_time_ns == -1, "no callback was queued"


@pytest.mark.mechanism("N13")
def test_the_times_of_several_callbacks_of_a_request_add_up() -> None:
    clock = MockClock()
    steps: queue.Queue[Callable[[Any], None]] = queue.Queue()

    def complete(request: Request, local: RequestLocal, work_ms: int) -> None:
        clock.advance(work_ms)
        if work_ms < 11:
            steps.put(local.wrap_async_callback(lambda local, result: complete(request, local, result)))
        else:
            b.answer(request)
            clock.advance(1000)  # not the request's any more

    handler = Deferring(complete)
    with pooled(handler, threads=1, clock=clock) as b:
        request = b.request()
        b.send(request)
        first = handler.completion()
        assert clock.await_waiters(1)
        clock.advance(100)
        first(3)
        second = steps.get(timeout=WAIT_S)
        assert clock.await_waiters(1)
        clock.advance(100)
        second(5)
        third = steps.get(timeout=WAIT_S)
        assert clock.await_waiters(1)
        clock.advance(100)
        third(11)
        response = b.processor.next_response()
        assert clock.await_waiters(1)
        assert request.callback_request_complete_time_ns - request.callback_request_dequeue_time_ns == 19_000_000
        request.response_dequeue_time_ns = request.response_complete_time_ns
        request.complete(0, response)
        times = b.times_of("Heartbeat")
        assert (times["LocalTimeMs"], times["RemoteTimeMs"]) == (19, 300)


@pytest.mark.mechanism("N13")
@pytest.mark.mechanism("N12")
@pytest.mark.parametrize("where", ["callback", "actions"])
def test_a_completion_that_raises_leaves_the_thread_alive_and_closes_the_connection(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("a bug")

    def fail_later(*args: object) -> None:
        b.apis.actions = fail

    handler = Deferring(fail if where == "callback" else fail_later)
    with pooled(handler, threads=1) as b, caplog.at_level(logging.ERROR):
        (thread,) = b.handlers.threads
        b.send(b.request(1))
        handler.completion()(None)
        assert b.processor.next_response().kind is CLOSE_CONNECTION
        b.apis.actions = lambda: None
        b.send(b.request(2))
        handler.completion()
        assert thread.is_alive()
    assert len(caplog.records) == 1


@pytest.mark.mechanism("N13")
@pytest.mark.mechanism("N12")
def test_a_fatal_error_in_a_completion_ends_the_process() -> None:
    def fail(request: Request, local: RequestLocal, result: Any) -> None:
        raise FatalExitError(4)

    handler = Deferring(fail)
    with pooled(handler, threads=1) as b:
        b.send(b.request())
        handler.completion()(None)
        assert b.exit_codes.get(timeout=WAIT_S) == 4


@pytest.mark.mechanism("N13")
def test_many_completions_from_many_threads_each_run_once_and_never_two_on_one_local() -> None:
    inside: set[int] = set()
    overlaps: list[int] = []
    runs: list[int] = []
    lock = threading.Lock()

    def complete(request: Request, local: RequestLocal, result: int) -> None:
        with lock:
            if id(local) in inside:
                overlaps.append(result)
            inside.add(id(local))
        assert local.is_confined
        with lock:
            inside.discard(id(local))
            runs.append(result)
        b.answer(request)

    handler = Deferring(complete)
    with pooled(handler, threads=4) as b:
        b.send(*(b.request(number) for number in range(120)))
        completions = [handler.completion() for _ in range(120)]
        start = threading.Barrier(6)

        def complete_some(first: int) -> None:
            start.wait(WAIT_S)
            for number in range(first, 120, 6):
                completions[number](number)

        threads = [threading.Thread(target=complete_some, args=(first,)) for first in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        assert [b.processor.next_response().kind for _ in range(120)] == [SEND] * 120
        assert sorted(runs) == list(range(120))
        assert overlaps == []
