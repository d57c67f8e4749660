"""Taking connections in: how their sockets are set up, who gets them, and what happens to those that are too many."""

from __future__ import annotations

import errno
import logging
import os
import resource
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from barnabas.common.clock import MockClock
from barnabas.metrics.registry import Metrics
from barnabas.network.reactor.memory_pool import UNBOUNDED
from barnabas.network.server import acceptor as acceptor_module
from barnabas.network.server.acceptor import SELECT_MS, Acceptor
from barnabas.network.server.config import SocketServerConfig
from barnabas.network.server.connection_limits import UNLIMITED, descriptor_ceiling
from barnabas.network.server.connection_quotas import (
    ConnectionLimits,
    ConnectionQuotas,
    ConnectionThrottledError,
    ListenerClosedError,
)
from barnabas.network.server.endpoint import Endpoint
from barnabas.network.server.processor import CONNECTION_QUEUE_SIZE, Processor
from network_fixtures import LISTENER, WAIT_S, Client, Plane, Policy, nothing_left_behind, within

WAIT_MS = WAIT_S * 1000


class FakeProcessor:
    """Takes connections while it has room."""

    def __init__(self, room: float = float("inf")) -> None:
        self.room = room
        self.sockets: list[socket.socket] = []
        self.offers: list[bool] = []
        """For each connection it was offered, whether it was allowed to block."""
        self.started = False

    def accept(
        self, sock: socket.socket, peer: tuple[Any, ...], *, may_block: bool, blocked: Callable[[int], None]
    ) -> bool:
        self.offers.append(may_block)
        if self.room <= 0 and not may_block:
            return False
        self.room -= 1
        self.sockets.append(sock)
        return True

    def start(self) -> None:
        self.started = True

    def begin_shutdown(self) -> None: ...

    def join(self) -> None:
        for sock in self.sockets:
            sock.close()


class ScriptedQuotas(ConnectionQuotas):
    """Raises what it is told to, connection by connection."""

    def __init__(self, clock: MockClock, *script: BaseException | None) -> None:
        super().__init__(ConnectionLimits(), clock, Metrics(clock=clock))
        self.script = list(script)

    def inc(self, listener: str, address: str, blocked: Callable[[int], None] | None = None) -> None:
        step = self.script.pop(0) if self.script else None
        if step is not None:
            raise step
        super().inc(listener, address, blocked)


class Bench:
    """An acceptor whose turns the test takes."""

    def __init__(
        self,
        processors: list[Any],
        quotas: ConnectionQuotas | None = None,
        clock: MockClock | None = None,
        **config: Any,
    ) -> None:
        self.clock = clock or MockClock()
        self.quotas = quotas or ConnectionQuotas(ConnectionLimits(), self.clock, Metrics(clock=self.clock))
        self.quotas.add_listener(LISTENER)
        self.blocked: list[int] = []
        unused = iter(processors)
        self.acceptor = Acceptor(
            Endpoint(LISTENER, port=0),
            SocketServerConfig(**config),
            self.quotas,
            self.clock,
            lambda _: next(unused),
            self.blocked.append,
        )
        self.acceptor.add_processors(len(processors))
        self.clients: list[Client] = []

    def connect(self) -> Client:
        """A connection in the backlog."""
        client = Client.connect(self.acceptor.endpoint.port)
        self.clients.append(client)
        return client

    def accept(self, count: int = 1) -> list[Client]:
        """So many connections, each taken in with one turn."""
        clients = []
        for _ in range(count):
            clients.append(self.connect())
            self.acceptor.run_once(WAIT_MS)
        return clients

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.quotas.close()
        self.acceptor.begin_shutdown()
        within(WAIT_S, self.acceptor.join)


@contextmanager
def bench(processors: list[Any] | None = None, *args: Any, **config: Any) -> Iterator[Bench]:
    with nothing_left_behind():
        made = Bench([FakeProcessor()] if processors is None else processors, *args, **config)
        try:
            yield made
        finally:
            made.close()


# ---------------------------------------------------------------------------------------------------- N03


@pytest.mark.mechanism("N03")
def test_accepted_sockets_are_set_up() -> None:
    processor = FakeProcessor()
    with bench([processor], socket_send_buffer_bytes=30_000, socket_receive_buffer_bytes=40_000) as b:
        b.accept()
        (sock,) = processor.sockets
        assert sock.gettimeout() == 0.0
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        # Linux reports twice what was asked for: it counts its own bookkeeping.
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in {30_000, 60_000}
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in {40_000, 80_000}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a connection choose its algorithm")
def test_a_connection_within_the_machine_is_not_paced() -> None:
    processor = FakeProcessor()
    with bench([processor]) as b:
        try:
            b.acceptor._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"bbr")
        except OSError as error:
            pytest.skip(f"this system has no bbr, or does not give it to us: {error}")
        b.accept()
        (sock,) = processor.sockets
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0") == b"reno"


@pytest.mark.mechanism("N03")
def test_the_buffers_of_the_system_stay_as_they_are_when_asked_for() -> None:
    processor = FakeProcessor()
    with bench([processor], socket_send_buffer_bytes=-1, socket_receive_buffer_bytes=-1) as b:
        b.accept()
        with socket.create_server(("127.0.0.1", 0)) as plain:
            client = socket.create_connection(plain.getsockname())
            reference, _ = plain.accept()
        with client, reference:
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                assert processor.sockets[0].getsockopt(socket.SOL_SOCKET, option) == reference.getsockopt(
                    socket.SOL_SOCKET, option
                )


@pytest.mark.mechanism("N03")
def test_processors_get_connections_in_turn() -> None:
    processors = [FakeProcessor() for _ in range(3)]
    with bench(processors) as b:
        clients = b.accept(7)
        for number, client in enumerate(clients):
            sock = processors[number % 3].sockets[number // 3]
            assert sock.getpeername() == client.socket.getsockname()
        assert b.acceptor.accepted == b.quotas.total == 7


@pytest.mark.mechanism("N03")
def test_a_processor_without_room_is_skipped() -> None:
    processors = [FakeProcessor(room=1), FakeProcessor(), FakeProcessor(room=1)]
    with bench(processors) as b:
        b.accept(6)
        assert [len(processor.sockets) for processor in processors] == [1, 4, 1]
        assert [processors[0].room, processors[2].room] == [0, 0], "and not made to take more"


@pytest.mark.mechanism("N03")
def test_only_the_last_processor_is_waited_for() -> None:
    processors = [FakeProcessor(room=0) for _ in range(3)]
    with bench(processors) as b:
        b.accept(2)
        assert [processor.offers for processor in processors] == [[False, False], [False, False], [True, True]]
        assert len(processors[2].sockets) == 2


class RealProcessors:
    """Processors with their real queues, whose turns the test takes."""

    def __init__(self, count: int, clock: MockClock, quotas: ConnectionQuotas) -> None:
        plane = Plane(Policy.QUEUE, clock=clock)
        self.processors = [
            Processor(number, 0, Endpoint(LISTENER), SocketServerConfig(), plane.data_plane, quotas, UNBOUNDED, clock)
            for number in range(count)
        ]


@pytest.mark.mechanism("N03")
def test_no_connection_is_dropped_when_all_processors_are_full() -> None:
    clock = MockClock()
    quotas = ConnectionQuotas(ConnectionLimits(), clock, Metrics(clock=clock))
    with nothing_left_behind():
        processors = RealProcessors(2, clock, quotas).processors
        b = Bench(processors, quotas, clock, socket_listen_backlog_size=100)
        try:
            full = 2 * CONNECTION_QUEUE_SIZE
            clients = b.accept(full)
            assert quotas.total == full
            assert b.blocked == []
            clients.append(b.connect())
            waiting = threading.Event()
            put = processors[1]._new_connections.put

            def note(*args: Any, **kwargs: Any) -> None:
                waiting.set()
                put(*args, **kwargs)

            processors[1]._new_connections.put = note  # type: ignore[method-assign]
            turn = threading.Thread(target=b.acceptor.run_once, args=(WAIT_MS,))
            turn.start()
            assert waiting.wait(WAIT_S)
            clock.advance(70)
            processors[1].run_once(0)
            turn.join(WAIT_S)
            assert b.blocked == [70_000_000], "how long the acceptor had to wait is reported"
            for processor in processors:
                processor.run_once(0)
                processor.run_once(0)
            assert sum(len(processor.selector.channels) for processor in processors) == full + 1
            assert all(client.is_silent for client in clients)
        finally:
            b.close()
        assert quotas.total == 0


@pytest.mark.mechanism("N03")
def test_an_acceptor_that_waits_for_a_processor_can_be_shut_down() -> None:
    clock = MockClock()
    quotas = ConnectionQuotas(ConnectionLimits(), clock, Metrics(clock=clock))
    with nothing_left_behind():
        processors = RealProcessors(1, clock, quotas).processors
        b = Bench(processors, quotas, clock)
        b.accept(CONNECTION_QUEUE_SIZE)
        last = b.connect()
        waiting = threading.Event()
        put = processors[0]._new_connections.put

        def note(*args: Any, **kwargs: Any) -> None:
            waiting.set()
            put(*args, **kwargs)

        processors[0]._new_connections.put = note  # type: ignore[method-assign]
        turn = threading.Thread(target=b.acceptor.run_once, args=(WAIT_MS,))
        turn.start()
        assert waiting.wait(WAIT_S)
        b.acceptor.begin_shutdown()
        turn.join(WAIT_S)
        last.await_close()
        b.close()
        assert quotas.total == 0


@pytest.mark.mechanism("N03")
def test_the_acceptor_looks_up_twice_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    with bench() as b:
        waits: list[float] = []

        def poll(timeout_ms: float) -> list[tuple[int, int]]:
            waits.append(timeout_ms)
            b.acceptor.begin_shutdown()
            return []

        monkeypatch.setattr(b.acceptor._poller, "poll", poll)
        b.acceptor.start()
        b.acceptor.thread.join(WAIT_S)
        assert waits == [SELECT_MS] == [500]


@pytest.mark.mechanism("N03")
def test_a_connection_that_is_handed_over_too_late_is_closed() -> None:
    """The acceptor was at it when the processor ended."""
    clock = MockClock()
    quotas = ConnectionQuotas(ConnectionLimits(), clock, Metrics(clock=clock))
    quotas.add_listener(LISTENER)
    with nothing_left_behind(), socket.create_server(("127.0.0.1", 0)) as listening:
        (processor,) = RealProcessors(1, clock, quotas).processors
        processor.start()
        processor.begin_shutdown()
        processor.thread.join(WAIT_S)
        with Client.connect(listening.getsockname()[1]) as client:
            sock, peer = listening.accept()
            quotas.inc(LISTENER, peer[0])
            assert processor.accept(sock, peer, may_block=False, blocked=lambda _: None)
            processor.join()
            client.await_close()
            assert quotas.total == 0


class HandingOver(FakeProcessor):
    """Is taken out just while it is given a connection."""

    def __init__(self, order: list[str]) -> None:
        super().__init__()
        self.order = order
        self.entered = threading.Event()
        self.go_on = threading.Event()

    def accept(self, *args: Any, **kwargs: Any) -> bool:
        self.entered.set()
        assert self.go_on.wait(WAIT_S)
        self.order.append("handed over")
        return super().accept(*args, **kwargs)

    def begin_shutdown(self) -> None:
        self.order.append("stopped")
        self.go_on.set()


class ContendedLock:
    """Tells when somebody has to wait for it."""

    def __init__(self, contended: threading.Event) -> None:
        self._lock = threading.Lock()
        self._contended = contended

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._contended.set()
            self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()


@pytest.mark.mechanism("N23")
def test_no_connection_goes_to_a_processor_that_was_taken_out() -> None:
    order: list[str] = []
    processor = HandingOver(order)
    with bench([FakeProcessor(), processor]) as b:
        b.accept()
        b.acceptor._processors_lock = ContendedLock(processor.go_on)  # type: ignore[assignment]
        turn = threading.Thread(target=b.accept)
        turn.start()
        assert processor.entered.wait(WAIT_S)
        b.acceptor.remove_processors(1)
        turn.join(WAIT_S)
        assert order == ["handed over", "stopped"]


# ---------------------------------------------------------------------------------------------------- N04


@pytest.mark.mechanism("N04")
def test_too_many_connections_of_an_address_are_closed() -> None:
    clock = MockClock()
    quotas = ConnectionQuotas(ConnectionLimits(max_connections_per_ip=2), clock, Metrics(clock=clock))
    processor = FakeProcessor()
    with bench([processor], quotas, clock) as b:
        first, second, third, fourth = b.accept(4)
        third.await_close()
        fourth.await_close()
        assert first.is_silent
        assert second.is_silent
        assert (b.acceptor.accepted, b.acceptor.refused) == (2, 2)
        assert len(processor.sockets) == quotas.total == 2
        quotas.dec(LISTENER, "127.0.0.1")
        (fifth,) = b.accept()
        assert fifth.is_silent


@pytest.mark.mechanism("N04")
def test_a_connection_that_comes_too_fast_is_kept_silent_for_its_delay_and_then_closed() -> None:
    clock = MockClock()
    quotas = ConnectionQuotas(ConnectionLimits(), clock, Metrics(clock=clock))
    quotas.update_ip_connection_rate("127.0.0.1", 1)
    processor = FakeProcessor()
    with bench([processor], quotas, clock) as b:
        allowed = b.accept(len(processor.sockets) + 1)
        while not b.acceptor.throttled:
            allowed += b.accept()
        throttled = allowed.pop()
        assert len(processor.sockets) == len(allowed) == quotas.total
        (delay,) = [close_at - clock.hi_res_milliseconds() for close_at, *_ in b.acceptor._throttled]
        assert delay > 0
        clock.advance(delay - 1)
        b.acceptor.run_once(0)
        assert throttled.is_silent
        clock.advance(1)
        b.acceptor.run_once(0)
        throttled.await_close()
        assert all(client.is_silent for client in allowed)
        assert (b.acceptor.throttled, b.acceptor.refused) == (0, 1)


def throttle(clock: MockClock, delay_ms: int) -> ConnectionThrottledError:
    return ConnectionThrottledError("127.0.0.1", clock.milliseconds(), delay_ms)


@pytest.mark.mechanism("N04")
def test_throttled_connections_are_closed_each_after_its_own_delay() -> None:
    clock = MockClock()
    quotas = ScriptedQuotas(clock, *(throttle(clock, delay) for delay in (300, 100, 200)))
    with bench(None, quotas, clock) as b:
        clients = b.accept(3)
        for late in (1, 2, 0):
            clock.advance(99)
            b.acceptor.run_once(0)
            assert clients[late].is_silent
            clock.advance(1)
            b.acceptor.run_once(0)
            clients[late].await_close()
        assert quotas.total == 0


@pytest.mark.mechanism("N04")
def test_a_throttled_connection_does_not_live_longer_when_the_date_is_set_back() -> None:
    clock = MockClock()
    with bench(None, ScriptedQuotas(clock, throttle(clock, 100)), clock) as b:
        (client,) = b.accept()
        clock.set_milliseconds(clock.milliseconds() - 3_600_000)
        clock.advance(100)
        b.acceptor.run_once(0)
        client.await_close()


@pytest.mark.mechanism("N04")
def test_throttled_connections_are_closed_with_the_acceptor() -> None:
    clock = MockClock()
    with nothing_left_behind():
        b = Bench([FakeProcessor()], ScriptedQuotas(clock, throttle(clock, 10**6)), clock)
        (client,) = b.accept()
        assert client.is_silent
        b.acceptor.begin_shutdown()
        b.acceptor.join()
        client.await_close()
        b.close()


@pytest.mark.mechanism("N04")
def test_one_bad_connection_does_not_end_the_acceptor(caplog: pytest.LogCaptureFixture) -> None:
    clock = MockClock()
    quotas = ScriptedQuotas(clock, RuntimeError("a bug"), ListenerClosedError(LISTENER))
    processor = FakeProcessor()
    taken = threading.Event()
    plain = processor.accept

    def accept(*args: Any, **kwargs: Any) -> bool:
        taken.set()
        return plain(*args, **kwargs)

    processor.accept = accept  # type: ignore[method-assign]
    with bench([processor], quotas, clock) as b, caplog.at_level(logging.ERROR):
        b.acceptor.start()
        bad = b.connect()
        bad.await_close()
        closed = b.connect()
        closed.await_close()
        good = b.connect()
        assert taken.wait(WAIT_S)
        assert good.is_silent
        assert b.acceptor.thread.is_alive()
        assert processor.started
    assert [record.getMessage() for record in caplog.records] == [f"Error while accepting on {b.acceptor.endpoint}"]


class ScriptedSocket:
    """A listening socket with bad luck."""

    def __init__(self, real: socket.socket, *script: OSError | tuple[Any, Any]) -> None:
        self._real = real
        self.script = list(script)
        self.fileno = real.fileno
        self.close = real.close

    def accept(self) -> Any:
        if not self.script:
            return self._real.accept()
        step = self.script.pop(0)
        if isinstance(step, OSError):
            raise step
        return step


@pytest.mark.mechanism("N04")
def test_a_connection_that_ends_before_it_is_accepted_is_passed_over() -> None:
    processor = FakeProcessor()
    with bench([processor]) as b:
        b.acceptor._socket = ScriptedSocket(  # type: ignore[assignment]
            b.acceptor._socket, ConnectionAbortedError(errno.ECONNABORTED, "gone")
        )
        b.accept()
        assert len(processor.sockets) == 1


@pytest.mark.mechanism("N04")
@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_without_descriptors_the_acceptor_pauses_instead_of_spinning(
    error: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    processor = FakeProcessor()
    with bench([processor]) as b, caplog.at_level(logging.ERROR):
        b.acceptor._socket = ScriptedSocket(b.acceptor._socket, OSError(error, "no more"))  # type: ignore[assignment]
        poll = b.acceptor._poller.poll
        found: list[tuple[float, int]] = []

        def note(timeout_ms: float) -> list[tuple[int, int]]:
            ready = poll(timeout_ms if not found else 0)
            found.append((timeout_ms, len(ready)))
            return ready

        monkeypatch.setattr(b.acceptor._poller, "poll", note)
        b.connect()
        b.acceptor.run_once(WAIT_MS)
        assert found == [(WAIT_MS, 1), (SELECT_MS, 0)], "the second wait is not ended by the same connection again"
        assert processor.sockets == []
        b.acceptor.run_once(WAIT_MS)
        assert len(processor.sockets) == 1
    assert len(caplog.records) == 1


@pytest.mark.mechanism("N04")
def test_descriptors_kept_back_for_logs_are_not_used_for_connections(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    processor = FakeProcessor()
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]
    with bench([processor]) as b, caplog.at_level(logging.INFO):
        b.acceptor._descriptor_ceiling = taken[0] + 1
        monkeypatch.setattr(acceptor_module, "SELECT_MS", 0)
        for _ in range(3):
            b.connect()
            b.acceptor.run_once(WAIT_MS)
        assert processor.sockets == []
        assert (b.quotas.total, b.acceptor.refused) == (0, 0), "it waits"
        os.close(taken[0])
        b.acceptor.run_once(WAIT_MS)
        assert processor.sockets, "there is a descriptor now"
        b.acceptor._descriptor_ceiling = UNLIMITED
        b.acceptor.run_once(0)
        b.acceptor.run_once(0)
        assert len(processor.sockets) == 3
    for descriptor in taken[1:]:
        os.close(descriptor)
    lines = [record.getMessage() for record in caplog.records if "onnections" in record.getMessage()]
    assert f"the descriptors from {taken[0] + 1} on are kept back for logs; raise the limit" in lines[0]
    assert lines[1].startswith("Accepting connections on ")


@pytest.mark.mechanism("N04")
def test_throttled_connections_are_closed_while_another_waits_for_their_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise an address that connects too fast could stop its listener for good."""
    clock = MockClock()
    processor = FakeProcessor()
    with bench([processor], ScriptedQuotas(clock, throttle(clock, 100)), clock) as b:
        monkeypatch.setattr(acceptor_module, "SELECT_MS", 0)
        (throttled,) = b.accept()
        ((_, _, sock, _),) = b.acceptor._throttled
        b.acceptor._descriptor_ceiling = sock.fileno() + 1
        b.accept()
        assert (b.acceptor.throttled, processor.sockets) == (1, []), "there is no descriptor for it"
        clock.advance(100)
        b.acceptor.run_once(0)
        throttled.await_close()
        b.acceptor.run_once(0)
        assert len(processor.sockets) == 1


@pytest.mark.parametrize(
    ("limit", "reserve"), [(64, 32), (256, 32), (1024, 64), (8192, 512), (20_000, 1024), (1 << 20, 1024)]
)
def test_the_descriptors_that_are_kept_back(monkeypatch: pytest.MonkeyPatch, limit: int, reserve: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert descriptor_ceiling() == limit - reserve
    assert descriptor_ceiling(for_clients=False) == limit - reserve // 2
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert descriptor_ceiling() == UNLIMITED


class BrokenSocket:
    def __init__(self) -> None:
        self.closed = False

    def fileno(self) -> int:
        return 0

    def setblocking(self, flag: bool) -> None: ...

    def setsockopt(self, *args: int) -> None:
        raise OSError(errno.EINVAL, "the peer is gone")

    def close(self) -> None:
        self.closed = True


@pytest.mark.mechanism("N04")
def test_a_connection_that_ends_while_it_is_set_up_is_counted_down() -> None:
    processor = FakeProcessor()
    with bench([processor]) as b:
        broken = BrokenSocket()
        b.acceptor._socket = ScriptedSocket(b.acceptor._socket, (broken, ("127.0.0.1", 1)))  # type: ignore[assignment]
        b.accept()
        assert broken.closed
        assert len(processor.sockets) == b.quotas.total == b.acceptor.accepted == 1


# ---------------------------------------------------------------------------------------------------- N02


@pytest.mark.mechanism("N02")
def test_an_acceptor_starts_once_after_its_processors() -> None:
    processor = FakeProcessor()
    with bench([processor]) as b:
        assert not b.acceptor.started_future.done()
        assert not b.acceptor.thread.is_alive()
        b.acceptor.start()
        b.acceptor.start()
        assert processor.started
        assert b.acceptor.thread.is_alive()
        assert b.acceptor.started_future.result(0) is None


@pytest.mark.mechanism("N02")
def test_an_acceptor_that_was_shut_down_does_not_start() -> None:
    processor = FakeProcessor()
    with bench([processor]) as b:
        b.acceptor.begin_shutdown()
        with pytest.raises(RuntimeError, match="shut down before it was started"):
            b.acceptor.started_future.result(0)
        b.acceptor.start()
        assert not processor.started
        assert not b.acceptor.thread.is_alive()


@pytest.mark.mechanism("N02")
def test_a_start_that_fails_is_told() -> None:
    processor = FakeProcessor()

    def start() -> None:
        raise RuntimeError("can't start new thread")

    processor.start = start  # type: ignore[method-assign]
    with bench([processor]) as b:
        with pytest.raises(RuntimeError, match="new thread"):
            b.acceptor.start()
        with pytest.raises(RuntimeError, match="new thread"):
            b.acceptor.started_future.result(0)


@pytest.mark.mechanism("N01")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_any_free_port_is_found_and_said(host: str) -> None:
    clock = MockClock()
    quotas = ConnectionQuotas(ConnectionLimits(), clock, Metrics(clock=clock))
    with nothing_left_behind():
        acceptor = Acceptor(Endpoint("A", host=host, port=0), SocketServerConfig(), quotas, clock, lambda _: None)  # type: ignore[arg-type, return-value]
        assert acceptor.endpoint.port > 0
        assert repr(acceptor) == f"Acceptor(A://{host}:{acceptor.endpoint.port}, 0 processors)"
        acceptor.begin_shutdown()
        acceptor.join()


@pytest.mark.mechanism("N01")
def test_a_port_that_cannot_be_opened_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = MockClock()
    quotas = ConnectionQuotas(ConnectionLimits(), clock, Metrics(clock=clock))

    def make(endpoint: Endpoint) -> None:
        Acceptor(endpoint, SocketServerConfig(), quotas, clock, lambda _: None)  # type: ignore[arg-type, return-value]

    with nothing_left_behind(), socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot open A://127.0.0.1:{port}"):
            make(Endpoint("A", port=port))

        def unknown(*args: object, **kwargs: object) -> None:
            raise socket.gaierror(socket.EAI_NONAME, "no such host")

        monkeypatch.setattr(socket, "getaddrinfo", unknown)
        with pytest.raises(OSError, match=r"cannot open A://host\.invalid:0: no such host"):
            make(Endpoint("A", host="host.invalid", port=0))
