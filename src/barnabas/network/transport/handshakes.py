"""Threads that run the expensive steps of TLS handshakes.

One step of a handshake can contain a private-key operation: a millisecond with RSA. A network thread that ran the steps
of 1,000 new connections itself would delay the requests of all others by a second. OpenSSL releases the interpreter
lock during a step, so a few threads run the steps beside the network threads. They touch only the memory of a TLS
engine, never a socket: the network thread moves the bytes.

    network thread                           handshake thread
    reads the peer's flight
    stops watching the socket
    submit(step)           ---------------->  step(): do_handshake in memory
    ... serves other connections ...          wakes the selector
    sends the own flight   <----------------
    watches the socket again
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Final

from barnabas.common.log_safety import LimitedLogger

log = LimitedLogger(logging.getLogger(__name__), lines=10)

DEFAULT_THREADS: Final = 2
DEFAULT_CAPACITY: Final = 4096
"""How many steps may wait. Each connection has at most one, so this limits connections in the middle of a handshake."""


class HandshakesBusyError(ConnectionError):
    """The queue of handshake steps is full, or the pool is closed."""


class HandshakePool:
    """A few threads and a bounded queue, first in, first out: a connection's next step waits behind all others.

    The threads are daemons and start with the first step, so that a broker without TLS clients has none.
    """

    def __init__(
        self,
        threads: int = DEFAULT_THREADS,
        name: str = "data-plane-kafka-tls-handshake",
        *,
        capacity: int = DEFAULT_CAPACITY,
    ) -> None:
        if threads < 1:
            raise ValueError(f"a handshake pool needs at least 1 thread: {threads}")
        self._count = threads
        self._name = name
        self._capacity = capacity
        self._steps: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        """Guards `_threads` and `_closed`. No other lock is taken inside."""
        self._threads: list[threading.Thread] = []
        self._closed = False

    def submit(self, step: Callable[[], None]) -> None:
        """Queues a step. Raises `HandshakesBusyError` if too many wait; the caller closes the connection."""
        if self._steps.qsize() >= self._capacity:
            log.warning("Refusing a new TLS connection: %d handshakes are waiting already", self._capacity)
            raise HandshakesBusyError(f"{self._capacity} TLS handshakes are waiting already")
        with self._lock:
            if self._closed:
                raise HandshakesBusyError("the handshake threads are stopped")
            if not self._threads:
                self._start()
            self._steps.put(step)

    def _start(self) -> None:
        for number in range(self._count):
            thread = threading.Thread(target=self._run, name=f"{self._name}-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _run(self) -> None:
        while (step := self._steps.get()) is not None:
            try:
                step()
            except Exception:
                log.exception("A TLS handshake step failed unexpectedly")
            del step  # it refers to a connection, which may be closed while this thread waits for the next step

    def close(self) -> None:
        """Stops the threads after the steps that are queued already, and waits for them."""
        with self._lock:
            self._closed = True
            threads, self._threads = self._threads, []
            for _ in threads:
                self._steps.put(None)
        for thread in threads:
            thread.join()

    def __repr__(self) -> str:
        return f"HandshakePool({self._name}, {self._steps.qsize()} steps waiting)"
