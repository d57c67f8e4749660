"""Keeps the clients of a Python worker process between its tasks.

Spark reuses worker processes (``spark.python.worker.reuse``, true by default), so the tasks of a batch, and those of
the next micro-batches, find a client that is connected and authenticated.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.spark.client_settings import ClientSettings
from barnabas.spark.cluster_client import ClusterClient

log = logging.getLogger(__name__)


class WorkerClients:
    """Lends a client to one task at a time, and closes clients that no task has used for a while.

    A worker runs one task at a time, in one thread. Between tasks that thread waits for Spark, so a timer thread closes
    idle clients. A client is taken out of the collection while it is in use: the two threads never share one.
    """

    def __init__(
        self,
        new_client: Callable[[ClientSettings], ClusterClient] = ClusterClient,
        *,
        clock: Clock = SYSTEM_CLOCK,
        new_timer: Callable[[float, Callable[[], None]], threading.Timer] = threading.Timer,
    ) -> None:
        self._new_client = new_client
        self._clock = clock
        self._new_timer = new_timer
        self._lock = threading.Lock()
        """Guards the two fields below."""
        self._idle: dict[ClientSettings, tuple[ClusterClient, float]] = {}
        """Clients, with the time at which they are closed."""
        self._timer: threading.Timer | None = None

    @contextmanager
    def client(self, settings: ClientSettings) -> Iterator[ClusterClient]:
        """Lends a client: a kept one with the same settings, or a new one."""
        with self._lock:
            client, _ = self._idle.pop(settings, (None, 0.0))
        if client is None:
            client = self._new_client(settings)
        try:
            yield client
        except BaseException:
            client.close()  # not reused: a response may still be in flight
            raise
        if client.is_idle:
            self._keep(settings, client)
        else:
            client.close()

    def _keep(self, settings: ClientSettings, client: ClusterClient) -> None:
        closes_at = self._clock.hi_res_milliseconds() + settings.max_idle_ms
        with self._lock:
            self._idle[settings] = client, closes_at
            if self._timer is None:
                self._start_timer(settings.max_idle_ms)

    def _start_timer(self, milliseconds: float) -> None:
        self._timer = self._new_timer(milliseconds / 1000, self.close_idle)
        self._timer.daemon = True
        self._timer.start()

    def close_idle(self) -> None:
        """Closes the clients that were idle for too long; the timer calls it."""
        now = self._clock.hi_res_milliseconds()
        with self._lock:
            due = [settings for settings, (_, closes_at) in self._idle.items() if closes_at <= now]
            closing = [self._idle.pop(settings)[0] for settings in due]
            self._timer = None
            if self._idle:
                self._start_timer(min(closes_at for _, closes_at in self._idle.values()) - now)
        for client in closing:
            client.close()
        if closing:
            log.debug("Closed %d unused clients", len(closing))


WORKER_CLIENTS: Final = WorkerClients()
"""The clients of this process."""
